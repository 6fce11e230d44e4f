"""Prints an EinGraph as text, and as the JSON nodes of ``plan --emit einsum``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, assert_never

from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode, Node
from einturnip.ir.aggregations import Aggregation
from einturnip.ir.einsum import Access, Einsum, Index, TileSpace
from einturnip.ir.region import Region, RegionStep
from einturnip.ir.scalar import COMPARISONS, LabelValue, OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst

_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "^"}
_SYMBOLS |= {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "and": "and", "or": "or"}
_PRECEDENCE = {"or": 1, "and": 2, **dict.fromkeys(COMPARISONS, 4), "add": 5, "sub": 5}
_PRECEDENCE |= {"mul": 6, "div": 6, "floordiv": 6, "mod": 6, "pow": 8}
_NOT, _NEG, _ATOM = 3, 7, 9


def show(graph: EinGraph) -> str:
    """Return one line for each node: ``3: S[b,h,s,t] : f32 = sum[d] Q[b,h,s,d]*K[b,h,t,d]``."""
    outputs: dict[int, list[str]] = {}
    for name, number in graph.outputs:
        outputs.setdefault(number, []).append(name)
    lines = []
    for i, node in enumerate(graph.nodes):
        shape = "x".join(map(str, node.shape)) or "scalar"
        text = f"{i}: {_head(node)} : {node.dtype} {shape} = {_definition(graph, node)}"
        lines.append(text + (f"  -> output {', '.join(outputs[i])}" if i in outputs else ""))
    return "\n".join(lines)


def _head(node: Node) -> str:
    labels = node.einsum.labels[: node.einsum.n_out] if isinstance(node, EinsumNode) else ()
    return f"{node.name}[{','.join(labels)}]" if labels else node.name


def _definition(graph: EinGraph, node: Node) -> str:
    match node:
        case InputNode():
            return "input"
        case EinsumNode(einsum=Region() as region):
            return _region(graph, node, region)
        case EinsumNode(einsum=einsum, operands=operands):
            assert isinstance(einsum, Einsum)
            return _formula(einsum, [graph.nodes[o].name for o in operands], einsum.labels)
        case ConcatNode(pieces=pieces):
            return " | ".join(f"{graph.nodes[p.operand].name} at {list(p.offsets)}" for p in pieces)
        case _:
            assert_never(node)


def _region(graph: EinGraph, node: EinsumNode, region: Region) -> str:
    """Format a region: ``along t: S[s,t] = ...; P[s,t] = ...; O[s,e] = ...``."""
    labels, steps = unique_labels(region), []
    for (name, _), (step, tensors, own) in zip(node.steps, _body(graph, node, region), strict=True):
        indices = ",".join(own[: step.einsum.n_out])
        steps.append(f"{name}[{indices}] = " if indices else f"{name} = ")
        steps[-1] += _formula(step.einsum, tensors, own)
    along = sorted(region.whole) if region.of_rows else region.aggregated
    return f"{'by rows of' if region.of_rows else 'along'} {','.join(labels[p] for p in along)}: {'; '.join(steps)}"


def _formula(einsum: Einsum, tensors: list[str], labels: Sequence[str]) -> str:
    """Format the right side of an einsum, each operand with its indices."""
    names = [_access(name, einsum, slot, labels) for slot, name in enumerate(tensors)]
    join = show_scalar(einsum.join, names, tuple(labels))
    if einsum.aggregation is None:
        return join
    keys = [f"{labels[k.label]} = {show_scalar(k.value, names, tuple(labels))}" for k in einsum.keys]
    held = f"where {', '.join(keys)}: " if keys else ""
    return f"{_operator(einsum.aggregation)}[{','.join(labels[einsum.n_out :])}] {held}{join}"


def _operator(aggregation: Aggregation) -> str:
    """The name of an aggregation; ``NAME.fold`` if it has a lift, because its join is lifted already."""
    return aggregation.op if aggregation.row.lift is None else f"{aggregation.op}.fold"


def _body(graph: EinGraph, node: EinsumNode, region: Region) -> Iterator[tuple[RegionStep, list[str], list[str]]]:
    """Yield the steps of a region, each with the names of its operands and of its labels."""
    labels = unique_labels(region)
    for step in region.steps:
        sources = [node.steps[~o][0] if o < 0 else graph.nodes[node.operands[o]].name for o in step.operands]
        yield step, sources, [labels[p] for p in step.labels]


def _access(name: str, einsum: Einsum, slot: int, labels: Sequence[str]) -> str:
    indices = show_indices(einsum.accesses[slot], labels)
    return f"{name}[{','.join(indices)}]" if indices else name


def show_indices(access: Access, labels: Sequence[str]) -> list[str]:
    """Format each index of an access in the syntax of the language."""
    return [labels[index] if isinstance(index, int) else _index(index, labels) for index in access]


def _index(index: Index, labels: Sequence[str]) -> str:
    text = ""
    for p, c in index.terms:
        term = labels[p] if abs(c) == 1 else f"{abs(c)}*{labels[p]}"
        text += (" + " if c > 0 else " - ") + term if text else (term if c > 0 else f"-{term}")
    if index.offset or not text:
        n = index.offset
        text = f"{text} {'+' if n > 0 else '-'} {abs(n)}" if text else str(n)
    for sign, n, none in (("//", index.divisor, 1), ("%", index.modulus, 0)):
        if n != none:
            text = f"({text}) {sign} {n}" if " " in text or "-" in text else f"{text} {sign} {n}"
    return f"clamp({text})" if index.clamped else text


def show_scalar(expr: Scalar, operands: list[str], labels: tuple[str, ...], outer: int = 0) -> str:
    """Format a join in the syntax of the language, with names of operands and labels."""

    def inner(e: Scalar, level: int = 0) -> str:
        return show_scalar(e, operands, labels, level)

    match expr:
        case ScalarConst(value, _):
            text, level = _number(value), _NEG if str(value).startswith("-") else _ATOM
        case OperandRef(slot, _):
            text, level = operands[slot], _ATOM
        case LabelValue(position, _):
            text, level = labels[position], _ATOM
        case ScalarCast(argument, dtype):
            text, level = f"{dtype.name}({inner(argument)})", _ATOM
        case ScalarCall("not", (argument,), _):
            text, level = f"not {inner(argument, _NOT)}", _NOT
        case ScalarCall("neg", (argument,), _):
            text, level = f"-{inner(argument, _NEG)}", _NEG
        case ScalarCall("pow", (base, exponent), _):
            level = _PRECEDENCE["pow"]
            text = f"{inner(base, level + 1)}^{inner(exponent, _NEG)}"
        case ScalarCall(op, (left, right), _) if op in _SYMBOLS:
            level = _PRECEDENCE[op]
            tight = op in ("mul", "div")
            first = inner(left, level + (op in COMPARISONS))
            symbol = _SYMBOLS[op] if tight else f" {_SYMBOLS[op]} "
            text = f"{first}{symbol}{inner(right, level + 1)}"
        case ScalarCall(op, arguments, _):
            text, level = f"{op}({', '.join(map(inner, arguments))})", _ATOM
        case _:
            assert_never(expr)
    return f"({text})" if level < outer else text


def _number(value: bool | int | float | complex) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)


def to_json(graph: EinGraph) -> list[dict[str, Any]]:
    """The nodes as ``plan --emit einsum --format json`` prints them, including the program's inputs."""
    return [_node_json(graph, i) for i in range(len(graph.nodes))]


def _node_json(graph: EinGraph, i: int) -> dict[str, Any]:
    node = graph.nodes[i]
    common: dict[str, Any] = {"id": i, "name": node.name, "line": node.line, "dtype": node.dtype.name}
    match node:
        case InputNode(shape=shape):
            labels = [f"i{axis}" for axis in range(len(shape))]
            rest = {"labels": labels, "bounds": list(shape), "output": labels, "inputs": []}
            return common | rest | {"join": None, "aggregation": None, "kind": "input"}
        case EinsumNode(einsum=Region() as region):
            return common | _region_json(graph, node, region)
        case EinsumNode(einsum=einsum, operands=operands):
            assert isinstance(einsum, Einsum)
            names, sources = [graph.nodes[o].name for o in operands], [{"node": o} for o in operands]
            return common | _einsum_json(einsum, unique_labels(einsum), sources, names)
        case ConcatNode(shape=shape, pieces=pieces):
            labels = [f"i{axis}" for axis in range(len(shape))]
            rest = {"labels": labels, "bounds": list(shape), "output": labels}
            rest["inputs"] = [
                {"node": p.operand, "labels": [labels[a] for a in p.axes], "offsets": list(p.offsets)} for p in pieces
            ]
            return common | rest | {"join": None, "aggregation": None, "kind": "concat"}
        case _:
            assert_never(node)


def _region_json(graph: EinGraph, node: EinsumNode, region: Region) -> dict[str, Any]:
    """A region in JSON: its label space, and its steps in ``body``, each formatted as a node."""
    labels = unique_labels(region)
    found: dict[str, Any] = {"labels": labels, "bounds": list(region.bounds), "output": labels[: region.n_out]}
    accesses = [show_indices(access, labels) for access in region.accesses]
    found["inputs"] = [{"node": o, "labels": access} for o, access in zip(node.operands, accesses, strict=True)]
    found |= {"join": None, "aggregation": None, "kind": "region", "streamed": [labels[p] for p in region.aggregated]}
    return found | {"body": [_step_json(node, k, *parts) for k, parts in enumerate(_body(graph, node, region))]}


def _step_json(node: EinsumNode, k: int, step: RegionStep, tensors: list[str], labels: list[str]) -> dict[str, Any]:
    """A step formatted as a node; an input that is an earlier step has ``"step"`` instead of ``"node"``."""
    name, line = node.steps[k]
    sources = [{"node": node.operands[o]} if o >= 0 else {"step": ~o} for o in step.operands]
    head: dict[str, Any] = {"id": k, "name": name, "line": line, "dtype": step.einsum.dtype.name}
    return head | _einsum_json(step.einsum, labels, sources, tensors)


def _einsum_json(
    einsum: Einsum, labels: list[str], sources: Sequence[dict[str, Any]], tensors: list[str]
) -> dict[str, Any]:
    """An einsum in JSON; ``sources`` identify the tensor of each slot, ``tensors`` are their names."""
    accesses = [show_indices(access, labels) for access in einsum.accesses]
    names = _distinct(tensors, einsum, labels)
    found: dict[str, Any] = {"labels": labels, "bounds": list(einsum.bounds), "output": labels[: einsum.n_out]}
    found["inputs"] = [source | {"labels": access} for source, access in zip(sources, accesses, strict=True)]
    if einsum.keys:
        values = [show_scalar(k.value, names, tuple(labels)) for k in einsum.keys]
        pairs = zip((labels[k.label] for k in einsum.keys), values, strict=True)
        found["keys"] = [{"label": label, "value": value} for label, value in pairs]
    found["join"] = show_scalar(einsum.join, names, tuple(labels))
    found["aggregation"] = _operator(einsum.aggregation) if einsum.aggregation else None
    return found | {"kind": "einsum"}


def unique_labels(einsum: TileSpace) -> list[str]:
    """Label names with suffixes where two labels share a name (``A[i,j] / sum[j] A[i,j]``)."""
    names: list[str] = []
    for label in einsum.labels:
        name, n = label, 1
        while name in names:
            n += 1
            name = f"{label}_{n}"
        names.append(name)
    return names


def _distinct(names: list[str], einsum: Einsum, labels: Sequence[str]) -> list[str]:
    """Operand names, with indices where one tensor is read by two accesses."""
    return [_access(n, einsum, slot, labels) if names.count(n) > 1 else n for slot, n in enumerate(names)]
