"""Draws a function whose parameters have the shapes and types of existing tensors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from einturnip.testing.drawing_base import Applicable, Draw, Drawer, DrawingContext, Drawn, DrawnTensor
from einturnip.testing.drawing_steps import StepDrawer
from einturnip.testing.kinds import type_of
from einturnip.testing.labels import accesses, free_labels, has_rest, plain_indices, rewritten, shown_labels
from einturnip.testing.terms import (
    AccessTerm,
    CallTerm,
    DrawnParameter,
    DrawnStatement,
    FixedTerm,
    Fn,
    KeyedTerm,
    NumberTerm,
    RestTerm,
    Step,
    Term,
)

OWN = ("a", "i", "b", "n", "c", "d", "e", "f", "g", "h")
"""Labels of parameters: some that callers also use, and one that is a dim outside."""


@dataclass
class _Signature:
    """The parameters drawn so far."""

    parameters: list[DrawnParameter] = field(default_factory=list)
    given: dict[str, DrawnTensor] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, Term] = field(default_factory=dict)
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    rest: tuple[int, ...] | None = None

    @property
    def resting(self) -> frozenset[str]:
        """The parameters with ``...``."""
        return frozenset(p.name for p in self.parameters if p.labels and isinstance(p.labels[0], RestTerm))


def draw_function(draw: Draw, world: DrawingContext, name: str) -> Applicable | None:
    """A function over tensors like existing ones; None if there are none."""
    drawer = Drawer(draw, world)
    signature = _Signature()
    for parameter in ("A", "X", "Y")[: drawer.pick((1, 2, 3))]:
        _add_tensor(drawer, signature, parameter)
    if not signature.parameters:
        return None
    _add_scalars(drawer, signature)
    numbers = {
        name: DrawnTensor((), type_of(number, {}), exact=True)
        for name, number in signature.numbers.items()
        if name not in signature.counts
    }
    given = {**signature.given, **numbers}
    features = world.features - {"functions", "hints"} - ({"loops"} if signature.resting else set())
    functions = () if signature.resting else world.functions
    inner = DrawingContext(signature.sizes, given, world.exact, features, signature.counts, functions)
    steps = StepDrawer(draw, inner, frozenset((signature.parameters[0].name,)))
    for _ in range(drawer.pick((0, 1, 2))):
        steps.step()
    returns = [_returned(steps, signature) for _ in range(drawer.pick((1, 1, 1, 2)))]
    if len(returns) > 1 and any(made for _, made in returns):
        returns = returns[:1]
    drawn = _with_rest(steps.steps, signature.resting)
    if drawn is None:
        return None
    terms = tuple(_at_rest(r.term, drawn[1]) for r, _ in returns)
    if signature.rest and not all(map(has_rest, terms)):
        return None
    function = Fn(name, tuple(signature.parameters), tuple(drawn[0]), terms)
    exact = tuple(r.exact for r, _ in returns)
    return Applicable(function, given, signature.numbers, signature.rest or (), exact, returns[0][1])


def _add_tensor(drawer: Drawer, signature: _Signature, name: str) -> None:
    """Add a parameter like one of the tensors; its leading axes may be ``...``."""
    fitting = [t for t in drawer.names.values() if t.shape and t.type.strength != "python"]
    if not fitting:
        return
    tensor = drawer.pick(fitting)
    shape, labels = tensor.shape, list[str | RestTerm]()
    if signature.rest is None and not signature.parameters and len(shape) > 1 and drawer.pick((True, False)):
        signature.rest = shape[:1]
    if signature.rest and shape[:1] == signature.rest and len(shape) > 1:
        shape, labels = shape[1:], [RestTerm()]
    for size in shape:
        known = [x for x, s in signature.sizes.items() if s == size and x not in labels]
        free = [x for x in OWN if x not in signature.sizes]
        label = drawer.pick((*known, *free[:2]))
        signature.sizes[label] = size
        labels.append(label)
    signature.parameters.append(DrawnParameter(name, tuple(labels)))
    signature.given[name] = DrawnTensor(shape, tensor.type, tensor.exact)


def _add_scalars(drawer: Drawer, signature: _Signature) -> None:
    """Possibly add a scalar that takes labels point by point, a number, and a size."""
    points = [t for t in drawer.names.values() if t.type.strength == "strong" and t.type.dtype != "bool"]
    if points and drawer.rarely(3):
        signature.parameters.append(DrawnParameter("x"))
        signature.given["x"] = drawer.pick(points)._replace(shape=(), below=None)
    numbers: list[DrawnParameter] = []
    if drawer.rarely(3):
        value = drawer.pick((NumberTerm(0.5), NumberTerm(2)))
        numbers.append(DrawnParameter("eps", None, drawer.pick((value, None, NumberTerm(1.5)))))
        signature.numbers["eps"] = value
    if drawer.rarely(3):
        size = drawer.pick((2, 1, 3))
        numbers.append(DrawnParameter("w", None, drawer.pick((None, NumberTerm(size)))))
        signature.numbers["w"], signature.counts["w"] = NumberTerm(size), (size, size)
    signature.parameters += sorted(numbers, key=lambda p: p.default is not None)


def _returned(steps: StepDrawer, signature: _Signature) -> tuple[Drawn, dict[str, int]]:
    """A term over the parameters' labels and possibly an introduced label, with the sizes of labels."""
    drawer = steps.drawer()
    drawer.labels_as_dims = True  # what is returned is over the parameters' labels: in an index their names are labels
    labels = drawer.pick_some(tuple(signature.sizes))
    scope = {x: signature.sizes[x] for x in labels}
    made = drawer.new_label(scope, frozenset((*scope, *signature.sizes))) if drawer.rarely(3) else None
    term = drawer.number_term(scope, 2)
    shown = shown_labels(term.term)
    alone = {label for _, _, label in plain_indices(term.term)}  # a name used in arithmetic only is a size
    sized = made not in shown or drawer.is_sized(str(made), scope, (term.term,))
    rests = not signature.rest or any(a.name in signature.resting for a, _ in accesses(term.term))
    if free_labels(term.term) <= alone and _is_implied(term.term) and sized and rests:
        return term, {x: scope[x] for x in shown if x not in signature.sizes}
    first = signature.parameters[0]
    access = AccessTerm(first.name, tuple(x for x in first.labels or () if isinstance(x, str)))
    return drawer.node(access, Drawn(access, signature.given[first.name].type, signature.given[first.name].exact)), {}


def _is_implied(term: Term) -> bool:
    """True if labels used outside calls are shown there: a function may bind those of its arguments."""
    bare = rewritten(term, lambda part: NumberTerm(0) if isinstance(part, CallTerm) else part)
    return free_labels(bare) <= {label for _, _, label in plain_indices(bare)}


# --- '...' ------------------------------------------------------------------------------------------------------------


def _with_rest(steps: list[Step], resting: frozenset[str]) -> tuple[list[Step], frozenset[str]] | None:
    """Add ``...`` to every tensor computed from one that has it; None if impossible."""
    drawn: list[Step] = []
    for step in steps:
        if not resting:
            return steps, resting
        assert isinstance(step, DrawnStatement)
        parts = [any(a.name in resting for a, _ in accesses(t)) for t in (step.body, *step.others)]
        keyed = any(a.name in resting for x in step.bounds if isinstance(x, KeyedTerm) for a, _ in accesses(x.key))
        touched, replaced = any(parts) or keyed, any(isinstance(x, FixedTerm) for x in step.bounds)
        if (step.others and len(set(parts)) > 1) or (replaced and touched and step.name not in resting):
            return None
        if touched or (replaced and step.name in resting):
            bounds = tuple(
                replace(x, key=_at_rest(x.key, resting)) if isinstance(x, KeyedTerm) else x for x in step.bounds
            )
            terms = [_at_rest(t, resting) for t in (step.body, *step.others)]
            drawn.append(DrawnStatement(step.name, (RestTerm(), *bounds), terms[0], tuple(terms[1:])))
            resting |= {step.name}
        else:
            drawn.append(step)
            resting -= {step.name}
    return drawn, resting


def _at_rest(term: Term, resting: frozenset[str]) -> Term:
    """The term with ``...`` in every access to a tensor that has it."""

    def change(term: Term) -> Term:
        if isinstance(term, AccessTerm) and term.name in resting:
            return replace(term, indices=(RestTerm(), *term.indices))
        return term

    return rewritten(term, change)
