"""A function of several in one module: named parameters, memory, loops over numbers."""

from __future__ import annotations

from collections.abc import Callable

from einturnip.codegen.native.ir import Code, Value

ZERO, ONE = Value("0", "i64", 0), Value("1", "i64", 0)
_WORD = Value("1", "i32", 0)  # what lies in memory is aligned to single bytes
Way = Callable[[], None]


def number(value: Value | int) -> Value:
    """A number as a value."""
    return Value(str(value), "i64", 0) if isinstance(value, int) else value


class Routine(Code):
    """A function that takes pointers, then numbers; ``end`` is its last line."""

    def __init__(
        self, name: str, pointers: str, numbers: str, result: str = "void", linkage: str = "internal "
    ) -> None:
        super().__init__()
        self.head = f"{linkage}{result} @{name}"
        self.arguments = {p: Value(f"%{p}", "ptr", 0) for p in pointers.split()}
        self.arguments |= {p: Value(f"%{p}", "i64", 0) for p in numbers.split()}
        self.end = "ret void"

    def __getitem__(self, name: str) -> Value:
        return self.arguments[name]

    @property
    def text(self) -> str:
        """All of it."""
        listed = ", ".join(map(str, self.arguments.values()))
        body = "\n".join(self.lines)
        return f"define {self.head}({listed}) #0 {{\nentry:\n{body}\n  {self.end}\n}}\n"

    # --- memory -------------------------------------------------------------------------------------------------------

    def at(self, base: Value, offset: Value | int) -> Value:
        """An address some bytes on."""
        return self.pointer(base, number(offset))

    def word(self, base: Value, index: Value | int) -> Value:
        """An i64 of an array."""
        return self.load(self.at(base, self.times(index, 8)), "i64")

    def words(self, base: Value, index: Value | int) -> Value:
        """An array of i64 from an index on."""
        return self.at(base, self.times(index, 8))

    def load(self, address: Value, kind: str, width: int = 0) -> Value:
        """What stands there."""
        return self.make(f"load {Value('', kind, width).type}, {address}, align 1", kind, width)

    def load_some(self, address: Value, kind: str, mask: Value) -> Value:
        """The lanes of a mask, the others 0."""
        name = f"llvm.masked.load.v{mask.width}{_short(kind)}.p0"
        return self.call(name, [address, _WORD, mask, self.constant(0, kind, mask.width)], kind, mask.width)

    def store(self, value: Value, address: Value) -> None:
        """Put it there."""
        self.line(f"store {value}, {address}, align 1")

    def stream(self, value: Value, address: Value) -> None:
        """Put it there past the caches; it must lie on lines of its own."""
        nbytes = value.width * {"float": 4, "double": 8}[value.element]
        self.line(f"store {value}, {address}, align {nbytes}, !nontemporal !0")

    def address(self, place: Value) -> Value:
        """A place as a number."""
        return self.cast("ptrtoint", place, "i64")

    def store_some(self, value: Value, address: Value, mask: Value) -> None:
        """Put the lanes of a mask there."""
        name = f"llvm.masked.store.v{mask.width}{_short(value.element)}.p0"
        self.declared.setdefault(f"declare void @{name}({value.type}, ptr, i32, {mask.type})")
        self.line(f"call void @{name}({value}, {address}, {_WORD}, {mask})")

    def prefetch(self, address: Value, cache: int = 1) -> None:
        """Have its line brought into the first or second cache; any address will do."""
        self.declared.setdefault("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.line(f"call void @llvm.prefetch.p0({address}, i32 0, i32 {4 - cache}, i32 1)")

    # --- numbers ------------------------------------------------------------------------------------------------------

    def times(self, a: Value | int, b: Value | int) -> Value:
        """A product."""
        if isinstance(a, int) and isinstance(b, int):
            return number(a * b)
        return self.integer("mul nsw", number(a), b)

    def plus(self, a: Value, b: Value | int) -> Value:
        """A sum."""
        return self.integer("add nsw", a, b)

    def minus(self, a: Value, b: Value | int) -> Value:
        """A difference."""
        return self.integer("sub nsw", a, b)

    def over(self, a: Value, b: Value | int) -> Value:
        """A quotient, rounded down."""
        return self.integer("udiv", a, b)

    def least(self, a: Value, b: Value | int) -> Value:
        """The smaller one."""
        return self.intrinsic("smin", a, number(b))

    def rounded(self, a: Value, unit: int) -> Value:
        """Up to whole units."""
        return self.times(self.over(self.plus(a, unit - 1), unit), unit)

    def whether(self, how: str, a: Value, b: Value | int) -> Value:
        """A comparison: ``eq``, ``slt``, ``sge`` and so on."""
        return self.compare(f"icmp {how}", a, number(b))

    def both(self, a: Value, b: Value) -> Value:
        """Whether two conditions hold."""
        return self.make(f"and {a}, {b.name}", "i1", a.width)

    # --- control ------------------------------------------------------------------------------------------------------

    def each(self, end: Value | int, step: int, body: Callable[[Value], None]) -> None:
        """``for i in range(0, end, step)``; the last step may be a part of one."""
        last = self.rounded(end, step) if isinstance(end, Value) and step > 1 else number(end)

        def inside(index: Value, _: list[Value]) -> list[Value]:
            body(index)
            return []

        self.loop(ZERO, last, step, [], inside)

    def span(self, begin: Value, end: Value, body: Callable[[Value], None]) -> None:
        """``for i in range(begin, end)``."""

        def inside(index: Value, _: list[Value]) -> list[Value]:
            body(index)
            return []

        self.loop(begin, end, 1, [], inside)

    def blocks(self, end: Value, step: Value, body: Callable[[Value], None]) -> None:
        """The same where the step is no constant."""
        count = self.over(self.plus(end, self.minus(step, 1)), step)
        self.each(count, 1, lambda turn: body(self.times(turn, step)))

    def either(self, condition: Value, yes: Way, no: Way) -> None:
        """One of two ways."""

        def way(body: Way) -> Callable[[], list[Value]]:
            def run() -> list[Value]:
                body()
                return []

            return run

        self.choose(condition, way(yes), way(no))

    def run(self, function: str, *arguments: Value) -> None:
        """Call another of the module."""
        self.line(f"call void @{function}({', '.join(map(str, arguments))})")


def _short(kind: str) -> str:
    return {"float": "f32", "double": "f64"}[kind]
