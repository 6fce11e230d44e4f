"""What a program has named so far, and the problems found in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

from einturnip.core.diagnostics import Diagnostic, Span, did_you_mean
from einturnip.core.dtypes import DTYPES
from einturnip.lang import syntax as s
from einturnip.lang.types import Dim, Equation, Input, SizeExpr, SizeLiteral, SizeName, SizeOp, SizeOperator
from einturnip.lang.words import BUILT_IN, RESERVED, describe

Definition = Input | Equation

# fmt: off
_FOREIGN_DTYPES = {
    "float": "f32", "float16": "f16", "float32": "f32", "float64": "f64", "half": "f16", "single": "f32",
    "double": "f64", "bfloat16": "bf16", "int": "i64", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "long": "i64", "boolean": "bool", "byte": "u8",
    "complex": "c128", "complex64": "c64", "complex128": "c128",
}
# fmt: on
_SIZE_OPS: dict[str, SizeOperator] = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "//": "floordiv",
    "%": "mod",
    "^": "pow",
}


@dataclass
class Scope:
    """Names in the order of the text. ``tensors`` maps a name to its latest version, None where that one is wrong."""

    later: dict[str, Span]
    dims: dict[str, Dim] = field(default_factory=dict)
    tensors: dict[str, Definition | None] = field(default_factory=dict)
    problems: list[Diagnostic] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)
    broken_dims: set[str] = field(default_factory=set)

    def error(self, code: str, message: str, span: Span, help_text: str = "", **more: str) -> None:
        """Note an error."""
        self.problems.append(Diagnostic(code, message, span, help=help_text, **more))  # type: ignore[arg-type]

    def conflict(self, code: str, message: str, span: Span, other: Span, label: str, help_text: str = "") -> None:
        """Note an error that has two places."""
        self.problems.append(Diagnostic(code, message, span, secondary=((other, label),), help=help_text))

    def unknown(self, what: str, name: str, span: Span, known: Iterable[str], code: str = "E020") -> None:
        """Note an unknown name, with the nearest known one or the place where it is defined later."""
        if name in self.later and self.later[name] > span:
            message = f"'{name}' is used before it is defined"
            self.conflict(code, message, span, self.later[name], "defined here", "move the definition up")
        else:
            self.error(code, f"unknown {what} '{name}'", span, did_you_mean(name, known))

    def usable(self, name: str, span: Span) -> bool:
        """Whether a name may be given to something; a reserved word is noted as an error."""
        if name not in RESERVED:
            return True
        message = f"'{name}' is {describe(name)} and cannot be used as a name"
        self.error("E006", message, span, f"choose another name, such as {name}_")
        return False

    def unknown_dtype(self, name: str, span: Span) -> None:
        """Note an unknown dtype."""
        close = get_close_matches(name.lower(), DTYPES, n=1, cutoff=0.5)
        better = _FOREIGN_DTYPES.get(name.lower(), close[0] if close else "")
        help_text = f"did you mean '{better}'?" if better else ""
        self.error("E022", f"unknown dtype '{name}'", span, help_text, expected=" ".join(DTYPES))

    # -- sizes

    def size(self, node: s.Node, implied: list[Dim] | None = None) -> SizeExpr | None:
        """A size expression; names that are new join ``implied`` where it is given, and are errors elsewhere."""
        match node:
            case s.Literal(value=int() as value, span=span):
                return SizeLiteral(value, span)
            case s.Name(name=name, span=span):
                return self._size_name(name, span, implied)
            case s.Binary(op=op, left=left, right=right, span=span) if op in _SIZE_OPS:
                return self._size_op(_SIZE_OPS[op], (left, right), span, implied)
            case s.Unary(op="-", argument=argument, span=span):
                return self._size_op("neg", (argument,), span, implied)
            case s.Unary(op="+", argument=argument):
                return self.size(argument, implied)
            case s.Call(name="min" | "max" as name, arguments=arguments, span=span) if arguments:
                return self._size_op("min" if name == "min" else "max", arguments, span, implied)
            case _:
                self.error(
                    "E052", "this is not a size", node.span, "a size is made of whole numbers, dims, + - * / // % ^"
                )
                return None

    def _size_op(
        self, op: SizeOperator, nodes: tuple[s.Node, ...], span: Span, implied: list[Dim] | None
    ) -> SizeExpr | None:
        sizes = [self.size(node, implied) for node in nodes]
        arguments = tuple(size for size in sizes if size is not None)
        return SizeOp(op, arguments, span) if len(arguments) == len(sizes) else None

    def _size_name(self, name: str, span: Span, implied: list[Dim] | None) -> SizeExpr | None:
        if name in self.dims:
            return SizeName(name, span)
        if name in self.broken_dims:
            return None
        tensor = self.tensors.get(name)
        if tensor is not None and (tensor.rank == 0 or implied is None):
            message = f"'{name}' is a tensor, not a size"
            self.conflict("E052", message, span, tensor.span, "defined here", f"declare the size: dim {name}_")
        elif name in RESERVED:
            self.usable(name, span)
        elif implied is None:
            self.unknown("size", name, span, self.dims)
        else:
            dim = Dim(name, None, True, span)
            self.dims[name] = dim
            implied.append(dim)
            return SizeName(name, span)
        return None

    def known_names(self) -> list[str]:
        """Everything that an expression could name."""
        return [*self.tensors, *self.dims, *BUILT_IN]


def dtype_named(name: str) -> bool:
    """Whether the name is a dtype, ours or another language's."""
    return name in DTYPES or name.lower() in _FOREIGN_DTYPES
