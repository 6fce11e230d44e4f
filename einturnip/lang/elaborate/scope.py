"""The names that a program or a function body has defined so far, and its diagnostics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from einturnip.core.diagnostics import Diagnostic, Edit, Span, nearest
from einturnip.ir.dtypes import DTYPES, I64, DType
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate.draft import FunctionDefinition, ProgramDraft
from einturnip.lang.expressions import Expr, SizeExpr, SizeLiteral, SizeName, SizeNumber, SizeOp, SizeOperator, Strength
from einturnip.lang.keywords import BUILT_IN, RESERVED, describe
from einturnip.lang.program import DimDef, InputDef, Tensor
from einturnip.lang.sizes import negate

# fmt: off
_FOREIGN_DTYPES = {
    "float": "f32", "float16": "f16", "float32": "f32", "float64": "f64", "half": "f16", "single": "f32",
    "double": "f64", "bfloat16": "bf16", "int": "i64", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "long": "i64", "boolean": "bool", "byte": "u8",
    "complex": "c128", "complex64": "c64", "complex128": "c128",
    "f2": "f16", "f4": "f32", "f8": "f64", "i1": "i8", "i2": "i16", "i4": "i32", "u1": "u8", "u2": "u16", "u4": "u32",
    "c8": "c64", "c16": "c128",
    # Types that do not exist here, each near the name of one that does.
    "f128": "", "f80": "", "f6": "", "i128": "", "u128": "", "c32": "", "c256": "",
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


@dataclass(frozen=True, slots=True)
class KnownNames:
    """A tensor as a text sees it: with ``rank`` axes.

    Within a function it may have further axes before these that the text does not show: labels that its scalars carry.
    """

    tensor: Tensor
    rank: int
    carried: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """The tensor's number."""
        return self.tensor.number

    @property
    def dtype(self) -> DType:
        """The tensor's element type."""
        return self.tensor.dtype

    @property
    def strength(self) -> Strength:
        """Its strength in type promotion."""
        return self.tensor.strength

    @property
    def span(self) -> Span:
        """Where it is defined."""
        return self.tensor.span


@dataclass(frozen=True, slots=True)
class NamedConstant:
    """A name for a static number: a loop's variable, or a function's scalar.

    ``size`` is None if the number is not an integer.
    """

    size: SizeExpr | None
    number: Expr
    span: Span
    is_variable: bool


@dataclass
class NameScope:
    """The visible names. ``tensors`` maps a name to its latest version, None if that has an error.

    In a function body, ``function`` is its name, ``path`` the prefix of its tensors' names, ``dims`` are replaced by
    their definitions, and ``ambient`` are the labels that its scalars carry, with their sizes. Functions of an order
    below ``limit`` are visible. ``gone`` are names local to a finished loop, with its place, and ``coming`` those local
    to the loop whose condition is elaborated. ``outside`` is the program, which a function does not see. ``block``
    elaborates the statements of a body.
    """

    draft: ProgramDraft
    later: dict[str, Span]
    block: Callable[[NameScope, tuple[s.Declaration, ...]], None]
    dims: dict[str, DimDef] = field(default_factory=dict)
    tensors: dict[str, KnownNames | None] = field(default_factory=dict)
    constants: dict[str, NamedConstant] = field(default_factory=dict)
    broken_dims: set[str] = field(default_factory=set)
    gone: dict[str, Span] = field(default_factory=dict)
    coming: dict[str, Span] = field(default_factory=dict)
    ambient: dict[str, SizeExpr] = field(default_factory=dict)
    function: str = ""
    path: str = ""
    limit: int = 1 << 60
    outside: NameScope | None = None

    @property
    def problems(self) -> list[Diagnostic]:
        """The errors found so far."""
        return self.draft.problems

    @property
    def warnings(self) -> list[Diagnostic]:
        """The warnings so far."""
        return self.draft.warnings

    def find_function(self, name: str) -> FunctionDefinition | None:
        """The visible function of this name; None if there is none."""
        return self.draft.function(name, self.limit)

    def error(self, code: str, message: str, span: Span, help_text: str = "", **more: str) -> None:
        """Report an error."""
        self.problems.append(Diagnostic(code, message, span, help=help_text, **more))  # type: ignore[arg-type]

    def conflict(self, code: str, message: str, span: Span, other: Span, label: str, help_text: str = "") -> None:
        """Report an error with two places."""
        self.problems.append(Diagnostic(code, message, span, secondary=((other, label),), help=help_text))

    def unknown(self, what: str, name: str, span: Span, known: Iterable[str], code: str = "E020") -> None:
        """Report an unknown name, with the place of its definition elsewhere or the nearest known name."""
        outside = self.outside
        if name in self.gone:
            counts = self.draft.text(self.gone[name]) == name
            help_text = "" if counts else f"to keep it, define {name} before the loop"
            what = "loop's variable" if counts else "loop's own"
            message = f"'{name}' is the {what}, and not known after it"
            self.conflict(code, message, span, self.gone[name], "the loop", help_text)
        elif name in self.coming:
            message = f"'{name}' is defined in the loop, and the condition is tested before"
            self.conflict(code, message, span, self.coming[name], "defined here", f"define {name} before the loop, too")
        elif name in self.later and self.later[name] > span:
            message = f"'{name}' is used before it is defined"
            self.conflict(code, message, span, self.later[name], "defined here", "move the definition up")
        elif outside is not None and (name in outside.tensors or name in outside.dims or name in outside.constants):
            message = f"'{name}' is not known in the function '{self.function}'"
            help_text = f"a function sees its parameters and earlier functions only: make '{name}' a parameter"
            self.error(code, message, span, help_text)
        elif self.find_function(name) is not None:
            help_text = f"its arguments belong in parentheses: {name}(...)"
            self.error(code, f"'{name}' is a function, not a {what}", span, help_text)
        else:
            self.misspelt(code, f"unknown {what} '{name}'", name, span, known)

    def misspelt(self, code: str, message: str, name: str, span: Span, known: Iterable[str]) -> None:
        """Report an unknown name that may be a misspelling of a known one."""
        meant = nearest(name, known)
        edits = (Edit(span, meant),) if meant and self.draft.text(span) == name else ()
        help_text = f"did you mean '{meant}'?" if meant else ""
        self.problems.append(Diagnostic(code, message, span, help=help_text, edits=edits))

    def usable(self, name: str, span: Span) -> bool:
        """True if a name may be defined; reports reserved words."""
        if name not in RESERVED:
            return True
        message = f"'{name}' is {describe(name)} and cannot be used as a name"
        self.error("E006", message, span, f"choose another name, such as {name}_")
        return False

    def unknown_dtype(self, name: str, span: Span) -> None:
        """Report an unknown dtype."""
        better = _FOREIGN_DTYPES.get(name.lower())
        if better is None:
            better = nearest(name, DTYPES)
        help_text = f"did you mean '{better}'?" if better else ""
        edits = (Edit(span, better),) if better and self.draft.text(span) == name else ()
        message = f"unknown dtype '{name}'"
        self.problems.append(Diagnostic("E022", message, span, expected=" ".join(DTYPES), help=help_text, edits=edits))

    def is_label(self, name: str) -> bool:
        """True if an unbound bare name in an index is a label, not a loop's variable or an integer scalar."""
        if name in self.constants or name in RESERVED:
            return False
        known = self.tensors.get(name)
        return known is None or known.rank > 0 or not known.dtype.is_integer

    # -- sizes

    def size_of(self, name: str, span: Span) -> SizeExpr | None:
        """The size that a name denotes; None if it denotes none."""
        constant = self.constants.get(name)
        if constant is not None:
            return constant.size
        dim = self.dims.get(name)
        if dim is None:
            return None
        if not self.function:
            return SizeName(name, span)
        return None if dim.definition is None else replace(dim.definition, span=span)

    def number_of(self, name: str, span: Span) -> Expr | None:
        """The number that the name of a size or constant denotes; None if it denotes none."""
        constant = self.constants.get(name)
        if constant is not None:
            return replace(constant.number, span=span)
        size = self.size_of(name, span)
        return None if size is None else SizeNumber(size, I64, "number", span)

    def is_size(self, node: s.Node) -> bool:
        """True if an expression consists of known sizes, so that ``size`` returns a value."""
        match node:
            case s.LiteralNode(value=value):
                return isinstance(value, int)
            case s.NameNode(name=name):
                constant = self.constants.get(name)
                return constant.size is not None if constant is not None else name in self.dims
            case s.BinaryNode(op=op, left=left, right=right):
                return op in _SIZE_OPS and self.is_size(left) and self.is_size(right)
            case s.UnaryNode(op="-" | "+", argument=argument):
                return self.is_size(argument)
            case s.CallNode(name="min" | "max", arguments=arguments):
                return bool(arguments) and all(map(self.is_size, arguments))
            case _:
                return False

    def size(self, node: s.Node, implied: list[DimDef] | None = None) -> SizeExpr | None:
        """Convert an expression to a size.

        New names are added to ``implied`` if given, and are errors otherwise.
        """
        match node:
            case s.LiteralNode(value=int() as value, span=span):
                return SizeLiteral(value, span)
            case s.NameNode(name=name, span=span):
                return self._size_name(name, span, implied)
            case s.BinaryNode(op=op, left=left, right=right, span=span) if op in _SIZE_OPS:
                return self._size_op(_SIZE_OPS[op], (left, right), span, implied)
            case s.UnaryNode(op="-", argument=argument, span=span):
                inner = self.size(argument, implied)
                return None if inner is None else negate(inner, span)
            case s.UnaryNode(op="+", argument=argument):
                return self.size(argument, implied)
            case s.CallNode(name="min" | "max" as name, arguments=arguments, span=span) if arguments:
                return self._size_op("min" if name == "min" else "max", arguments, span, implied)
            case _:
                self.error(
                    "E052", "this is not a size", node.span, "a size is made of whole numbers, dims, + - * / // % ^"
                )
                return None

    def _size_op(
        self, op: SizeOperator, nodes: tuple[s.Node, ...], span: Span, implied: list[DimDef] | None
    ) -> SizeExpr | None:
        sizes = [self.size(node, implied) for node in nodes]
        arguments = tuple(size for size in sizes if size is not None)
        return SizeOp(op, arguments, span) if len(arguments) == len(sizes) else None

    def _size_name(self, name: str, span: Span, implied: list[DimDef] | None) -> SizeExpr | None:
        size = self.size_of(name, span)
        if size is not None or name in self.broken_dims:
            return size
        tensor = self.tensors.get(name)
        if name in self.constants:
            message = f"'{name}' is a number here, not a size"
            self.conflict("E052", message, span, self.constants[name].span, "given here", "give it a whole number")
        elif tensor is not None and (tensor.rank == 0 or implied is None):
            message = f"'{name}' is a tensor, not a size"
            self.conflict("E052", message, span, tensor.span, "defined here", f"declare the size: dim {name}_")
        elif name in self.tensors and implied is None:
            return None
        elif name in RESERVED:
            self.usable(name, span)
        elif implied is None:
            self.unknown("size", name, span, [*self.dims, *self.constants])
        else:
            dim = DimDef(name, None, True, span)
            self.dims[name] = dim
            implied.append(dim)
            return SizeName(name, span)
        return None

    def is_state(self, name: str) -> bool:
        """True if a name denotes a state."""
        known = self.tensors.get(name)
        return known is not None and isinstance(known.tensor, InputDef) and known.tensor.state

    def carried_in(self, node: s.Node | s.Index) -> tuple[str, ...]:
        """The labels that tensors in an expression carry implicitly, in the order of the function's."""
        if not self.ambient:
            return ()
        found: set[str] = set()
        stack: list[s.Node | s.Index] = [node]
        while stack:
            part = stack.pop()
            stack += s.parts(part)
            if isinstance(part, s.NameNode | s.Element):
                known = self.tensors.get(part.name)
                found |= set(known.carried) if known is not None else set()
        return tuple(name for name in self.ambient if name in found)

    def known_names(self) -> list[str]:
        """All names that an expression could use."""
        return [*self.tensors, *self.dims, *self.constants, *BUILT_IN]


def dtype_named(name: str) -> bool:
    """True if the name is a dtype of this or another language."""
    return name in DTYPES or bool(_FOREIGN_DTYPES.get(name.lower()))
