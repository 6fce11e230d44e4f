"""Builder of one function of a module of several: named parameters, memory access, counted loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from einturnip.kernels.llvm.ir import METADATA, IrBuilder, IrValue

ZERO, ONE = IrValue("0", "i64", 0), IrValue("1", "i64", 0)
Branch = Callable[[], None]


def number(value: IrValue | int) -> IrValue:
    """Return an integer as a constant."""
    return IrValue(str(value), "i64", 0) if isinstance(value, int) else value


class Routine(IrBuilder):
    """A function that takes pointers, then numbers; ``end`` is its last line."""

    def __init__(
        self, name: str, pointers: str, numbers: str, result: str = "void", linkage: str = "internal "
    ) -> None:
        super().__init__()
        self.head = f"{linkage}{result} @{name}"
        self.arguments = {p: IrValue(f"%{p}", "ptr", 0) for p in pointers.split()}
        self.arguments |= {p: IrValue(f"%{p}", "i64", 0) for p in numbers.split()}
        self.end = "ret void"

    def __getitem__(self, name: str) -> IrValue:
        """Return an argument by name."""
        return self.arguments[name]

    @property
    def text(self) -> str:
        """The function's IR."""
        listed = ", ".join(map(str, self.arguments.values()))
        body = "\n".join(self.lines)
        return f"define {self.head}({listed}) #0 {{\nentry:\n{body}\n  {self.end}\n}}\n"

    # --- memory -------------------------------------------------------------------------------------------------------

    def at(self, base: IrValue, offset: IrValue | int) -> IrValue:
        """Offset an address by bytes."""
        return self.pointer(base, number(offset))

    def word(self, base: IrValue, index: IrValue | int) -> IrValue:
        """Load an i64 of an array."""
        return self.load(self.at(base, self.times(index, 8)), "i64")

    def position(self, base: IrValue, index: IrValue, narrow: IrValue) -> IrValue:
        """Load a number of an array of i64, or of i32 if ``narrow``."""

        def short() -> list[IrValue]:
            return [self.cast("sext", self.load(self.at(base, self.times(index, 4)), "i32"), "i64")]

        return self.choose(narrow, short, lambda: [self.word(base, index)])[0]

    def words(self, base: IrValue, index: IrValue | int) -> IrValue:
        """Return the array of i64 from an index on."""
        return self.at(base, self.times(index, 8))

    def load(self, address: IrValue, kind: str, width: int = 0) -> IrValue:
        """Load a value."""
        return self.make(f"load {IrValue('', kind, width).type}, {address}, align 1", kind, width)

    def load_or_zero(self, address: IrValue, kind: str, mask: IrValue) -> IrValue:
        """Load the lanes that a mask selects; the others are 0."""
        return self.masked_load(address, mask, self.constant(0, kind, mask.width))

    def as_pointer(self, address: IrValue) -> IrValue:
        """Return an integer as an address."""
        return self.cast("inttoptr", address, "ptr")

    def pointer_in(self, base: IrValue, index: int) -> IrValue:
        """Load an address of an array of i64."""
        return self.as_pointer(self.word(base, index))

    def load_shared(self, address: IrValue) -> IrValue:
        """Load an i64 that other threads change."""
        return self.make(f"load atomic i64, {address} seq_cst, align 8", "i64", 0)

    def update_shared(self, op: str, address: IrValue, value: IrValue) -> IrValue:
        """Change an i64 that other threads change too; return its value before."""
        return self.make(f"atomicrmw {op} {address}, {value} seq_cst", "i64", 0)

    def store(self, value: IrValue, address: IrValue) -> None:
        """Store a value."""
        self.line(f"store {value}, {address}, align 1")

    def stream(self, value: IrValue, address: IrValue) -> None:
        """Store an aligned vector, bypassing the caches."""
        nbytes = value.width * {"float": 4, "double": 8, "i32": 4, "i64": 8}[value.element]
        self.line(f"store {value}, {address}, align {nbytes}, !nontemporal !0")

    def address(self, place: IrValue) -> IrValue:
        """Return an address as an integer."""
        return self.cast("ptrtoint", place, "i64")

    def prefetch(self, address: IrValue, cache: int = 1) -> None:
        """Prefetch a cache line into the first or second level; the address may be invalid."""
        self.run_intrinsic("prefetch.p0", address, *(IrValue(str(k), "i32", 0) for k in (0, 4 - cache, 1)))

    # --- numbers ------------------------------------------------------------------------------------------------------

    def times(self, a: IrValue | int, b: IrValue | int) -> IrValue:
        """Return a product."""
        if isinstance(a, int) and isinstance(b, int):
            return number(a * b)
        return self.integer("mul nsw", number(a), b)

    def plus(self, a: IrValue, b: IrValue | int) -> IrValue:
        """Return a sum."""
        return self.integer("add nsw", a, b)

    def minus(self, a: IrValue, b: IrValue | int) -> IrValue:
        """Return a difference."""
        return self.integer("sub nsw", a, b)

    def over(self, a: IrValue, b: IrValue | int) -> IrValue:
        """Return a quotient, rounded down."""
        return self.integer("udiv", a, b)

    def minimum(self, a: IrValue, b: IrValue | int) -> IrValue:
        """Return the minimum."""
        return self.intrinsic("smin", a, number(b))

    def rounded(self, a: IrValue, unit: int) -> IrValue:
        """Round up to a multiple of ``unit``."""
        return self.times(self.over(self.plus(a, unit - 1), unit), unit)

    def whether(self, how: str, a: IrValue, b: IrValue | int) -> IrValue:
        """Compare: ``eq``, ``slt``, ``sge`` and so on."""
        return self.compare(f"icmp {how}", a, number(b))

    def both(self, a: IrValue, b: IrValue) -> IrValue:
        """Return whether two conditions hold."""
        return self.make(f"and {a}, {b.name}", "i1", a.width)

    # --- control ------------------------------------------------------------------------------------------------------

    def each(self, end: IrValue | int, step: int, body: Callable[[IrValue], None]) -> None:
        """Write ``for i in range(0, end, step)``; the last step may be partial."""
        last = self.rounded(end, step) if isinstance(end, IrValue) and step > 1 else number(end)

        def inside(index: IrValue, _: list[IrValue]) -> list[IrValue]:
            body(index)
            return []

        self.loop(ZERO, last, step, [], inside)

    def span(self, begin: IrValue, end: IrValue, body: Callable[[IrValue], None], step: int = 1) -> None:
        """Write ``for i in range(begin, end, step)``; see ``loop``."""

        def inside(index: IrValue, _: list[IrValue]) -> list[IrValue]:
            body(index)
            return []

        self.loop(begin, end, step, [], inside)

    def blocks(self, end: IrValue, step: IrValue, body: Callable[[IrValue], None]) -> None:
        """Write ``for i in range(0, end, step)`` with a step that is not constant."""
        count = self.over(self.plus(end, self.minus(step, 1)), step)
        self.each(count, 1, lambda turn: body(self.times(turn, step)))

    def run(self, function: str, *arguments: IrValue) -> None:
        """Call another routine of the module."""
        self.line(f"call void @{function}({', '.join(map(str, arguments))})")

    def run_at(self, function: IrValue, *arguments: IrValue) -> None:
        """Call the function at an address."""
        self.line(f"call void {function.name}({', '.join(map(str, arguments))})")

    # --- floating-point flags -----------------------------------------------------------------------------------------

    def status_word(self, memory: IrValue) -> IrValue:
        """Return the status word of the floating-point unit, by way of four bytes of memory."""
        self.run_intrinsic("x86.sse.stmxcsr", memory)
        return self.load(memory, "i32")

    def set_status_word(self, memory: IrValue, word: IrValue) -> None:
        """Set the status word of the floating-point unit, by way of four bytes of memory."""
        self.store(word, memory)
        self.run_intrinsic("x86.sse.ldmxcsr", memory)


def module(routines: Sequence[Routine]) -> str:
    """Return the IR of a module of functions."""
    declared = dict.fromkeys(line for routine in routines for line in routine.declared)
    return "\n".join([*(routine.text for routine in routines), *declared]) + f"\n{METADATA}"
