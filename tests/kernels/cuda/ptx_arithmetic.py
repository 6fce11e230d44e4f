"""PTX's arithmetic as C++ statements over the functions of ``ptx.h``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

_TYPES = frozenset(
    ["u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "b8", "b16", "b32", "b64", "f16", "f32", "f64", "pred"]
)
_ROUNDING = {"rz": "FE_TOWARDZERO", "rm": "FE_DOWNWARD", "rp": "FE_UPWARD"}
_TO_WHOLE = {"rni": "NEAREST", "rzi": "ZERO", "rmi": "DOWN", "rpi": "UP"}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_UNSIGNED = {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}


class UntranslatedError(Exception):
    """An instruction that the translation does not know."""


class Function(Protocol):
    """The function that an instruction belongs to."""

    n_accesses: int

    def value(self, text: str) -> str:
        """Return C++ for an operand as a 64-bit word."""

    def address(self, text: str) -> str:
        """Return C++ for an operand ``[base+offset]``."""


def cpp_type(name: str) -> str:
    """Return the C++ type; PTX's bits are unsigned numbers."""
    return "bool" if name == "pred" else name.replace("b", "u")


def split(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    found, depth, start = [], 0, 0
    for at, c in enumerate(text):
        depth += (c in "{[(<") - (c in "}])>")
        if c == "," and not depth:
            found.append(text[start:at].strip())
            start = at + 1
    return [x for x in (*found, text[start:].strip()) if x]


@dataclass
class Arithmetic:
    """One instruction: its operands, and its meaning where that is a function of numbers."""

    function: Function
    name: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]

    @property
    def types(self) -> list[str]:
        return [cpp_type(m) for m in self.modifiers if m in _TYPES]

    @property
    def type(self) -> str:
        return self.types[-1]

    @property
    def is_float(self) -> bool:
        return bool(self.types) and self.type in ("f16", "f32", "f64")

    def word(self, n: int) -> str:
        return self.function.value(self.operands[n])

    def read(self, n: int, kind: str = "") -> str:
        """Return C++ for an operand as a number; denormals are zero under .ftz."""
        text = f"get<{kind or self.type}>({self.word(n)})"
        return f"flush({text})" if "ftz" in self.modifiers and (kind or self.type) == "f32" else text

    def put(self, value: str, kind: str = "") -> str:
        kind = kind or self.type
        if self.is_float:
            value = f"flush({value})" if "ftz" in self.modifiers and kind == "f32" else value
            value = f"saturate<{kind}>({value})" if "sat" in self.modifiers else value
        return f"r_{self.operands[0][1:]} = put<{kind}>(({kind})({value}));"

    # --- arithmetic ---

    @property
    def _mode(self) -> str:
        """Return the rounding mode if it is not to the nearest."""
        return next((_ROUNDING[m] for m in self.modifiers if m in _ROUNDING), "")

    def _carried(self, value: str) -> str:
        """Return an operation of wider numbers, whose carry or borrow the next one takes (.cc)."""
        kind = f"u{self.type[1:]}"
        keep = f" carry = whole >> {self.type[1:]} & 1;" if "cc" in self.modifiers else ""
        return f"{{ const unsigned __int128 whole = {value};{keep} {self.put('whole', kind)} }}"

    def _unsigned(self, n: int) -> str:
        return f"(unsigned __int128)get<u{self.type[1:]}>({self.word(n)})"

    def _addc(self) -> str:
        carry = " + carry" if self.name == "addc" else ""
        return self._carried(f"{self._unsigned(1)} + {self._unsigned(2)}{carry}")

    def _subc(self) -> str:
        carry = " - carry" if self.name == "subc" else ""
        return self._carried(f"{self._unsigned(1)} - {self._unsigned(2)}{carry}")

    def _madc(self) -> str:
        carry = " + carry" if self.name == "madc" else ""
        kind, width = f"u{self.type[1:]}", int(self.type[1:])
        product = f"{self._unsigned(1)} * {self._unsigned(2)}"
        part = f"({product} >> {width})" if "hi" in self.modifiers else f"({kind})({product})"
        return self._carried(f"{self._unsigned(3)} + {part}{carry}")

    def _binary(self, sign: str, rounded: str) -> str:
        if self.is_float:
            a, b = self.read(1), self.read(2)
            if self._mode:
                b = f"-{b}" if sign == "-" else b
                return self.put(f"{rounded}<{self.type}>({self._mode}, {a}, {b})")
            return self.put(f"{a} {sign} {b}")
        return self.put(f"(u64){self.read(1)} {sign} (u64){self.read(2)}")

    def _add(self) -> str:
        if "cc" in self.modifiers:
            return self._addc()
        return self._binary("+", "rounded_add")

    def _sub(self) -> str:
        if "cc" in self.modifiers:
            return self._subc()
        return self._binary("-", "rounded_add")

    def _wide(self) -> str:
        return f"{self.type[0]}{2 * int(self.type[1:])}"

    def _mul(self) -> str:
        if "wide" in self.modifiers:
            wide = self._wide()
            return self.put(f"({wide}){self.read(1)} * ({wide}){self.read(2)}", wide)
        if "hi" in self.modifiers:
            return self.put(f"high<{self.type}>({self.read(1)}, {self.read(2)})")
        return self._binary("*", "rounded_mul")

    def _mad(self) -> str:
        if self.is_float:
            return self._fma()
        if "cc" in self.modifiers:
            return self._madc()
        if "wide" in self.modifiers:
            wide = self._wide()
            text = f"(u64)(({wide}){self.read(1)} * ({wide}){self.read(2)}) + (u64){self.read(3, wide)}"
            return self.put(text, wide)
        if "hi" in self.modifiers:
            return self.put(f"(u64)high<{self.type}>({self.read(1)}, {self.read(2)}) + (u64){self.read(3)}")
        return self.put(f"(u64){self.read(1)} * (u64){self.read(2)} + (u64){self.read(3)}")

    def _fma(self) -> str:
        given = ", ".join(self.read(n) for n in (1, 2, 3))
        return self.put(f"rounded_fma<{self.type}>({self._mode}, {given})" if self._mode else f"fused({given})")

    def _div(self) -> str:
        return self.put(f"quotient<{self.type}>({self.read(1)}, {self.read(2)})")

    def _rem(self) -> str:
        return self.put(f"remainder<{self.type}>({self.read(1)}, {self.read(2)})")

    def _min(self) -> str:
        return self._extreme("smaller")

    def _max(self) -> str:
        return self._extreme("larger")

    def _extreme(self, name: str) -> str:
        name += "_nan" * ("NaN" in self.modifiers)
        return self.put(f"{name}<{self.type}>({self.read(1)}, {self.read(2)})")

    def _abs(self) -> str:
        x = self.read(1)
        return self.put(f"fabs({x})" if self.is_float else f"{x} < 0 ? 0 - (u64){x} : (u64){x}")

    def _neg(self) -> str:
        return self.put(f"-{self.read(1)}" if self.is_float else f"0 - (u64){self.read(1)}")

    def _copysign(self) -> str:
        return self.put(f"copysign({self.read(2)}, {self.read(1)})")

    def _and(self) -> str:
        return self.put(f"{self.read(1)} & {self.read(2)}")

    def _or(self) -> str:
        return self.put(f"{self.read(1)} | {self.read(2)}")

    def _xor(self) -> str:
        return self.put(f"{self.read(1)} ^ {self.read(2)}")

    def _not(self) -> str:
        return self.put(f"{'!' if self.type == 'bool' else '~'}{self.read(1)}")

    def _lop3(self) -> str:
        words, table, terms = [self.word(n) for n in (1, 2, 3)], self.word(4), []
        for n in range(8):
            bits = " & ".join(x if n & m else f"~{x}" for x, m in zip(words, (4, 2, 1), strict=True))
            terms.append(f"({table} >> {n} & 1 ? {bits} : 0)")
        return self.put(" | ".join(terms))

    def _shl(self) -> str:
        return self.put(f"shift_left<{self.type}>({self.read(1)}, (u32){self.word(2)})")

    def _shr(self) -> str:
        return self.put(f"shift_right<{self.type}>({self.read(1)}, (u32){self.word(2)})")

    def _bfi(self) -> str:
        return self.put(
            f"insert_bits<{self.type}>({self.read(1)}, {self.read(2)}, (u32){self.word(3)}, (u32){self.word(4)})"
        )

    def _bfe(self) -> str:
        return self.put(f"extract_bits<{self.type}>({self.read(1)}, (u32){self.word(2)}, (u32){self.word(3)})")

    def _prmt(self) -> str:
        return self.put(f"permute({', '.join(f'(u32){self.word(n)}' for n in (1, 2, 3))})", "u32")

    def _shf(self) -> str:
        left, wrap = (str(m in self.modifiers).lower() for m in ("l", "wrap"))
        words = ", ".join(f"(u32){self.word(n)}" for n in (1, 2, 3))
        return self.put(f"funnel({words}, {left}, {wrap})", "u32")

    def _clz(self) -> str:
        width = int(self.type[1:])
        x = self.read(1)
        return f"r_{self.operands[0][1:]} = {x} ? __builtin_clzll((u64){x}) - {64 - width} : {width};"

    def _popc(self) -> str:
        return f"r_{self.operands[0][1:]} = __builtin_popcountll((u64){self.read(1)});"

    def _brev(self) -> str:
        width, x = int(self.type[1:]), self.read(1)
        loop = f"for (int n = 0; n < {width}; n++) r |= ((u64){x} >> n & 1) << ({width - 1} - n);"
        return f"{{ u64 r = 0; {loop} {self.put('r')} }}"

    # --- functions; approximations are rounded results ---

    def _unary(self, text: str) -> str:
        x = f"(f64){self.read(1)}"
        return self.put(text.format(x))

    def _ex2(self) -> str:
        return self._unary("exp2({0})")

    def _lg2(self) -> str:
        return self._unary("log2({0})")

    def _sin(self) -> str:
        return self._unary("sin({0})")

    def _cos(self) -> str:
        return self._unary("cos({0})")

    def _tanh(self) -> str:
        return self._unary("tanh({0})")

    def _sqrt(self) -> str:
        return self._unary("sqrt({0})")

    def _rcp(self) -> str:
        return self._reciprocal("1 / {0}")

    def _rsqrt(self) -> str:
        return self._reciprocal("1 / sqrt({0})")

    def _reciprocal(self, text: str) -> str:
        return self._unary(f"upper_half({text})" if self.type == "f64" and "approx" in self.modifiers else text)

    # --- comparisons and choices ---

    def _setp(self) -> str:
        name, kind = self.modifiers[0], self.type
        a, b = self.read(1), self.read(2)
        if name in _UNSIGNED:
            kind = f"u{kind[1:]}"
            test = f"get<{kind}>({self.word(1)}) {_UNSIGNED[name]} get<{kind}>({self.word(2)})"
        elif name in ("num", "nan"):
            test = f"({a} == {a} && {b} == {b})" if name == "num" else f"({a} != {a} || {b} != {b})"
        elif name not in _COMPARISONS:  # true for NaN too
            test = f"({a} != {a} || {b} != {b} || {a} {_COMPARISONS[name[:-1]]} {b})"
        elif name == "ne" and self.is_float:
            test = f"({a} < {b} || {a} > {b})"
        else:
            test = f"({a} {_COMPARISONS[name]} {b})"
        combined = next((m for m in self.modifiers[1:] if m in ("and", "or", "xor")), None)
        made = "{0}"
        if combined is not None:
            other = f"(bool)({self.word(3)} & 1)"
            made = f"({{0}}) {dict(and_='&&', or_='||', xor_='!=')[combined + '_']} {other}"
        yes, *no = self.operands[0].split("|")
        lines = [f"const bool test = {test}, first = {made.format('test')};"]
        if no:
            lines.append(f"r_{no[0][1:]} = {made.format('!test')};")
        return f"{{ {' '.join(lines)} r_{yes[1:]} = first; }}"

    def _set(self) -> str:
        (to, kind), (name, *_) = self.types, self.modifiers
        a, b = (f"get<{kind}>({self.word(n)})" for n in (1, 2))
        yes = "1.0f" if to == "f32" else f"({to})-1"
        return self.put(f"{a} {_COMPARISONS[name]} {b} ? {yes} : 0", to)

    def _selp(self) -> str:
        return self.put(f"{self.word(3)} & 1 ? {self.read(1)} : {self.read(2)}")

    def _testp(self) -> str:
        x = self.read(1)
        test = {
            "finite": f"isfinite({x})",
            "infinite": f"isinf({x})",
            "notanumber": f"{x} != {x}",
            "number": f"{x} == {x}",
        }
        return f"r_{self.operands[0][1:]} = {test[self.modifiers[0]]};"

    def _cvt(self) -> str:
        to, source = self.types
        whole = next((_TO_WHOLE[m] for m in self.modifiers if m in _TO_WHOLE), "")
        x = self.read(1, source)
        target = f"r_{self.operands[0][1:]}"
        from_float, to_float = source[0] == "f", to[0] == "f"
        if to_float and from_float and whole:
            return self._converted(to, f"to_whole({x}, {whole})")
        if to_float:
            if self._mode and to != source:
                raise UntranslatedError(".".join((self.name, *self.modifiers)))
            return self._converted(to, x)
        if from_float:
            return f"{target} = (u64)(s64)to_integer<{to}>({x}, {whole});"
        if "sat" in self.modifiers:
            raise UntranslatedError(".".join((self.name, *self.modifiers)))
        return f"{target} = (u64)(s64)({to}){x};"

    def _converted(self, kind: str, value: str) -> str:
        value = f"({kind})({value})"
        value = f"saturate<{kind}>({value})" if "sat" in self.modifiers else value
        return f"r_{self.operands[0][1:]} = put<{kind}>({value});"
