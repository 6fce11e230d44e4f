"""Builder of LLVM IR as text: vectors of one width, masks, loops with carried values."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from einturnip.ir.dtypes import DType

# Element types in registers; bool is i1 there and a byte in memory, f16 and bf16 are loaded as 16 bits.
_ELEMENTS = {"bool": "i1", "f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}
METADATA = "!0 = !{i32 1}\n"  # referenced by non-temporal stores
Loop = Callable[["IrValue", "list[IrValue]"], "list[IrValue]"]


@dataclass(frozen=True, slots=True)
class IrValue:
    """An SSA value: ``width`` lanes of an LLVM type; width 0 is a scalar."""

    name: str
    element: str
    width: int

    @property
    def type(self) -> str:
        """Its LLVM type."""
        return f"<{self.width} x {self.element}>" if self.width else self.element

    def __str__(self) -> str:
        """Return the text that stands for the value in IR."""
        return f"{self.type} {self.name}"


_UNALIGNED = IrValue("1", "i32", 0)  # bytes to which addresses are aligned


def element(dtype: DType) -> str:
    """Return the LLVM type of an element in a register."""
    return _ELEMENTS.get(dtype.name, f"i{8 * dtype.itemsize}")


def literal(value: float, kind: str) -> str:
    """Return a number in LLVM syntax; floats by their bits, to be exact."""
    if kind == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if kind in ("float", "double"):
        value = struct.unpack("f", struct.pack("f", value))[0] if kind == "float" else value
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return str(int(value))


class IrBuilder:
    """Builds the body of one function; float arithmetic may be contracted to fused multiply-add."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: dict[str, None] = {}
        self._count = 0
        self._block = "entry"

    def name(self) -> str:
        """Return an unused name."""
        self._count += 1
        return f"%v{self._count}"

    def line(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {text}")

    def make(self, instruction: str, kind: str, width: int) -> IrValue:
        """Append an instruction and return its result."""
        value = IrValue(self.name(), kind, width)
        self.lines.append(f"  {value.name} = {instruction}")
        return value

    def constant(self, value: float, kind: str, width: int = 0) -> IrValue:
        """Return a constant in every lane."""
        text = literal(value, kind)
        if not width:
            return IrValue(text, kind, 0)
        return IrValue(f"<{', '.join([f'{kind} {text}'] * width)}>", kind, width)

    def lanes(self, kind: str, width: int) -> IrValue:
        """Return the constant vector 0, 1, 2, ..."""
        return IrValue(f"<{', '.join(f'{kind} {i}' for i in range(width))}>", kind, width)

    def binary(self, op: str, a: IrValue, b: IrValue) -> IrValue:
        """``op a, b``; floats may contract."""
        flags = " contract" if op in ("fadd", "fsub", "fmul", "fdiv") else ""
        return self.make(f"{op}{flags} {a}, {b.name}", a.element, a.width)

    def compare(self, op: str, a: IrValue, b: IrValue) -> IrValue:
        """``fcmp`` or ``icmp`` with its predicate."""
        return self.make(f"{op} {a}, {b.name}", "i1", a.width)

    def select(self, condition: IrValue, yes: IrValue, no: IrValue) -> IrValue:
        """Append ``select``, lane by lane."""
        return self.make(f"select {condition}, {yes}, {no}", yes.element, yes.width)

    def cast(self, op: str, a: IrValue, kind: str) -> IrValue:
        """Append a conversion such as ``sitofp`` or ``bitcast``."""
        return self.make(f"{op} {a} to {IrValue('', kind, a.width).type}", kind, a.width)

    def call(self, function: str, arguments: Sequence[IrValue], kind: str, width: int) -> IrValue:
        """Call an intrinsic and declare it."""
        result = IrValue("", kind, width).type
        self.declared.setdefault(f"declare {result} @{function}({', '.join(a.type for a in arguments)})")
        return self.make(f"call {result} @{function}({', '.join(map(str, arguments))})", kind, width)

    def intrinsic(self, name: str, *arguments: IrValue) -> IrValue:
        """Call ``llvm.name``, overloaded on the type of its arguments."""
        first = arguments[0]
        return self.call(f"llvm.{name}.{mangled(first)}", arguments, first.element, first.width)

    def masked_load(self, address: IrValue, mask: IrValue, passthru: IrValue) -> IrValue:
        """Load the lanes that ``mask`` selects; the others are those of ``passthru``.

        ``address``: of the first of contiguous elements, or a vector of addresses, one for each lane. Addresses of
        lanes that are not selected may be invalid.
        """
        name = f"llvm.masked.{'gather' if address.width else 'load'}.{mangled(passthru)}.{mangled(address)}"
        return self.call(name, [address, _UNALIGNED, mask, passthru], passthru.element, passthru.width)

    def masked_store(self, value: IrValue, address: IrValue, mask: IrValue) -> None:
        """Store the lanes that ``mask`` selects; ``address``: as for ``masked_load``."""
        name = f"masked.{'scatter' if address.width else 'store'}.{mangled(value)}.{mangled(address)}"
        self.run_intrinsic(name, value, address, _UNALIGNED, mask)

    def run_intrinsic(self, name: str, *arguments: IrValue) -> None:
        """Call ``llvm.name``, which has no result, and declare it."""
        self.declared.setdefault(f"declare void @llvm.{name}({', '.join(a.type for a in arguments)})")
        self.line(f"call void @llvm.{name}({', '.join(map(str, arguments))})")

    def splat(self, scalar: IrValue, width: int) -> IrValue:
        """Broadcast a scalar to every lane."""
        if not width:
            return scalar
        single = IrValue("", scalar.element, width).type
        one = self.make(f"insertelement {single} poison, {scalar}, i64 0", scalar.element, width)
        return self.make(f"shufflevector {one}, {single} poison, <{width} x i32> zeroinitializer", one.element, width)

    def first(self, scalar: IrValue, width: int) -> IrValue:
        """Insert a scalar into the first lane, with 0 in the others."""
        zeros = self.constant(0, scalar.element, width)
        return self.make(f"insertelement {zeros}, {scalar}, i64 0", scalar.element, width)

    def swapped(self, value: IrValue, distance: int) -> IrValue:
        """Exchange lanes that are ``distance`` apart."""
        order = ", ".join(f"i32 {i ^ distance}" for i in range(value.width))
        text = f"shufflevector {value}, {value.type} poison, <{value.width} x i32> <{order}>"
        return self.make(text, value.element, value.width)

    def transposed(self, rows: list[IrValue]) -> list[IrValue]:
        """Transpose a square of vectors by exchanging off-diagonal blocks of increasing size."""
        width, distance = rows[0].width, 1
        while distance < width:
            for i in (i for i in range(width) if not i & distance):
                a, b = rows[i], rows[i + distance]
                rows = [*rows]
                rows[i], rows[i + distance] = self.halves(a, b, distance)
            distance *= 2
        return rows

    def _mixed(self, a: IrValue, b: IrValue, order: list[int]) -> IrValue:
        """Shuffle lanes of two vectors."""
        picked = ", ".join(f"i32 {j}" for j in order)
        return self.make(f"shufflevector {a}, {b}, <{a.width} x i32> <{picked}>", a.element, a.width)

    def halves(self, a: IrValue, b: IrValue, distance: int) -> tuple[IrValue, IrValue]:
        """Split pairs of lanes ``distance`` apart into a vector of lower and one of upper lanes, a's then b's."""
        low = [j if not j & distance else a.width + j - distance for j in range(a.width)]
        high = [j + distance if not j & distance else a.width + j for j in range(a.width)]
        return self._mixed(a, b, low), self._mixed(a, b, high)

    def lane(self, value: IrValue, at: int = 0) -> IrValue:
        """Extract one lane."""
        return self.make(f"extractelement {value}, i64 {at}", value.element, 0)

    def integer(self, op: str, a: IrValue, b: IrValue | int) -> IrValue:
        """Append an operation on 64-bit integers."""
        other = IrValue(str(b), "i64", 0) if isinstance(b, int) else b
        return self.make(f"{op} {a}, {other.name}", "i64", 0)

    def pointer(self, base: IrValue, nbytes: IrValue) -> IrValue:
        """Offset an address by bytes."""
        return self.make(f"getelementptr i8, ptr {base.name}, {nbytes}", "ptr", 0)

    # --- control ----------------------------------------------------------------------------------------------------

    def start(self, block: str) -> None:
        """Start a basic block."""
        self.lines.append(f"{block}:")
        self._block = block

    def label(self) -> str:
        """Return the name of a new basic block."""
        self._count += 1
        return f"b{self._count}"

    def loop(self, begin: IrValue, end: IrValue, step: int, carried: list[IrValue], body: Loop) -> list[IrValue]:
        """Write ``for i in range(begin, end, step)`` and return the carried values after it.

        ``end`` must be a whole number of steps from ``begin``, which may be 0.
        """

        def inside(here: list[IrValue]) -> list[IrValue]:
            results = body(here[0], here[1:])
            return [self.integer("add nsw", here[0], step), *results]

        return self.repeat(
            [begin, *carried], lambda here: self.make(f"icmp slt {here[0]}, {end.name}", "i1", 0), inside
        )[1:]

    def repeat(
        self,
        carried: list[IrValue],
        condition: Callable[[list[IrValue]], IrValue],
        body: Callable[[list[IrValue]], list[IrValue]],
    ) -> list[IrValue]:
        """Write ``while condition: body()`` and return the carried values after it."""
        head, inside, after = self.label(), self.label(), self.label()
        before = self._block
        self.line(f"br label %{head}")
        self.start(head)
        here = [IrValue(self.name(), v.element, v.width) for v in carried]
        place = len(self.lines)
        going = condition(here)
        self.line(f"br {going}, label %{inside}, label %{after}")
        self.start(inside)
        results = body(here)
        last = self._block
        self.line(f"br label %{head}")
        phis = []
        for value, first, turned in zip(here, carried, results, strict=True):
            branches = f"[ {first.name}, %{before} ], [ {turned.name}, %{last} ]"
            phis.append(f"  {value.name} = phi {value.type} {branches}")
        self.lines[place:place] = phis
        self.start(after)
        return here

    def when(self, condition: IrValue, body: Callable[[], None]) -> None:
        """Write ``if condition: body()``."""
        inside, after = self.label(), self.label()
        self.line(f"br {condition}, label %{inside}, label %{after}")
        self.start(inside)
        body()
        self.line(f"br label %{after}")
        self.start(after)

    def either(self, condition: IrValue, yes: Callable[[], None], no: Callable[[], None]) -> None:
        """Write ``if``/``else``."""

        def branch(body: Callable[[], None]) -> Callable[[], list[IrValue]]:
            def run() -> list[IrValue]:
                body()
                return []

            return run

        self.choose(condition, branch(yes), branch(no))

    def switch(self, value: IrValue, cases: Mapping[int, Callable[[], None]]) -> None:
        """Run the body whose number the value is, if any."""
        blocks, after = {number: self.label() for number in cases}, self.label()
        listed = " ".join(f"{value.type} {number}, label %{block}" for number, block in blocks.items())
        self.line(f"switch {value}, label %{after} [ {listed} ]")
        for number, body in cases.items():
            self.start(blocks[number])
            body()
            self.line(f"br label %{after}")
        self.start(after)

    def choose(
        self, condition: IrValue, yes: Callable[[], list[IrValue]], no: Callable[[], list[IrValue]]
    ) -> list[IrValue]:
        """Write ``if``/``else`` and return the values of the branch taken."""
        left, right, after = self.label(), self.label(), self.label()
        self.line(f"br {condition}, label %{left}, label %{right}")
        branches: list[tuple[list[IrValue], str]] = []
        for block, branch in ((left, yes), (right, no)):
            self.start(block)
            branches.append((branch(), self._block))
            self.line(f"br label %{after}")
        self.start(after)
        (a, from_a), (b, from_b) = branches
        return [
            self.make(f"phi {x.type} [ {x.name}, %{from_a} ], [ {y.name}, %{from_b} ]", x.element, x.width)
            for x, y in zip(a, b, strict=True)
        ]


def mangled(value: IrValue) -> str:
    """Return a type as it appears in the names of intrinsics."""
    kind = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(value.element, value.element)
    return f"v{value.width}{kind}" if value.width else kind
