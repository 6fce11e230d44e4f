"""PTX's instructions as C++ statements: control, memory and moves; how instructions are counted."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from .ptx_arithmetic import Arithmetic, UntranslatedError, split

_CLASSES = {
    "compare": "setp set selp slct testp",
    "move": "mov cvt cvta prmt",
    "memory": "ld st atom red ldu",
    "control": "bra ret exit call trap",
    "barrier": "bar barrier",
    "special": "ex2 lg2 sin cos tanh rcp sqrt rsqrt",
}
_BYTES = {"global": ("read", "written"), "shared": ("shared_read", "shared_written"), "local": ("local", "local")}
_CLASS_OF = {op: name for name, ops in _CLASSES.items() for op in ops.split()}

# Instructions of the GPU for one of PTX, where the GPU has a subroutine.
_DIVISIONS = {"16": 15, "32": 20, "64": 60}
_FLOAT_DIVISION = 10


def label(text: str) -> str:
    return "L_" + re.sub(r"\W", "_", text)


@dataclass
class Instruction(Arithmetic):
    """Any instruction. ``nbytes``: by counter, the bytes that it moves whenever it is reached."""

    guarded: bool
    nbytes: Counter[str] = field(default_factory=Counter)

    def counted(self) -> tuple[str, int]:
        """Return the class, and the instructions of the GPU."""
        if self.name in ("div", "rem"):
            return ("special", _FLOAT_DIVISION) if self.is_float else ("division", _DIVISIONS[self.type[1:]])
        return _CLASS_OF.get(self.name, "float" if self.is_float else "integer"), 1

    def statement(self) -> str:
        """Return C++."""
        made = getattr(self, f"_{self.name}", None)
        if made is None:
            raise UntranslatedError(".".join((self.name, *self.modifiers)))
        return str(made())

    # --- control ---

    def _bra(self) -> str:
        return f"goto {label(self.operands[0])};"

    def _ret(self) -> str:
        return "return;"

    _exit = _ret

    def _trap(self) -> str:
        return "faults |= TRAP; return;"

    def _bar(self) -> str:
        return "emulate::barrier();"

    _barrier = _bar

    def _call(self) -> str:
        result, name, *rest = self.operands
        if not result.startswith("("):
            result, name, rest = "()", result, [name]
        given = [x for group in (result, *rest[:1]) for x in split(group[1:-1])]
        return f"{name}({', '.join(given)});"

    # --- memory ---

    def _place(self, operand: str, size: int, writes: bool) -> str:
        """Return C++ for a pointer, and count the bytes."""
        f = self.function
        at = f.address(operand)
        space = next((m for m in self.modifiers if m in ("param", "global", "shared", "local", "const")), "generic")
        if space in ("param", "const"):
            return f"(byte*){at}"
        moved = ""
        if space != "generic":
            name = _BYTES[space][writes]
            if self.guarded:
                moved = f"counts[{name.upper()}] += {size}; "
            else:
                self.nbytes[name] += size
        f.n_accesses += 1
        call = {
            "global": f"global({f.n_accesses}, {at}, {size})",
            "shared": f"aligned(ptx::shared({at}, {size}), {size})",
            "local": f"(byte*){at}",
            "generic": f"generic({f.n_accesses}, {at}, {size}, {str(writes).lower()})",
        }[space]
        return f"{moved}byte* const at = {call};"

    def _moved(self, place: int, values: int, writes: bool) -> str:
        count = next((int(m[1:]) for m in self.modifiers if m in ("v2", "v4", "v8")), 1)
        size = int(self.type[1:]) // 8
        names = split(self.operands[values][1:-1]) if count > 1 else [self.operands[values]]
        at = self._place(self.operands[place], size * count, writes)
        if not at.startswith(("byte*", "counts")):
            at = f"byte* const at = {at};"
        moves = [
            f"store<{self.type}>(at + {size * n}, {self.function.value(r)});"
            if writes
            else f"r_{r[1:]} = load<{self.type}>(at + {size * n});"
            for n, r in enumerate(names)
            if r != "_"
        ]
        return f"{{ {at} {' '.join(moves)} }}"

    def _ld(self) -> str:
        return self._moved(1, 0, False)

    def _st(self) -> str:
        return self._moved(0, 1, True)

    def _atom(self, result: bool = True) -> str:
        kind, size = self.type, int(self.type[1:]) // 8
        name = next(m for m in self.modifiers if m in ("add", "or", "min", "max", "and", "exch"))
        made = {"add": "old + v", "or": "old | v", "and": "old & v", "exch": "v"}.get(name) or (
            f"{'smaller' if name == 'min' else 'larger'}<{kind}>(old, v)"
        )
        at, value = self._place(self.operands[result], size, True), self.read(1 + result)
        back = f"r_{self.operands[0][1:]} = put(old); " if result and self.operands[0] != "_" else ""
        given = f"{kind} old = get<{kind}>(load<{kind}>(at)), v = {value};"
        return f"{{ {at} {given} {back}store<{kind}>(at, put<{kind}>({made})); }}"

    def _red(self) -> str:
        return self._atom(False)

    def _mov(self) -> str:
        target, source = self.operands
        for text in (target, source):
            if text.startswith("<"):
                names = split(text[1:-1])
                width = int(self.type[1:]) // len(names)
                mask = f"{(1 << width) - 1:#x}ull"
        if target.startswith("<"):
            parts = [f"r_{n[1:]} = whole >> {width * k} & {mask};" for k, n in enumerate(names) if n != "_"]
            return f"{{ u64 whole = {self.function.value(source)}; {' '.join(parts)} }}"
        if source.startswith("<"):
            parts = [f"({self.function.value(n)} & {mask}) << {width * k}" for k, n in enumerate(names)]
            return f"r_{target[1:]} = {' | '.join(parts)};"
        return self.put(f"get<{self.type}>({self.word(1)})")

    def _cvta(self) -> str:
        word = self.word(1)
        if "shared" in self.modifiers:
            word = f"to_shared({word})" if "to" in self.modifiers else f"(u64)(emulate_dynamic + (u32){word})"
        return f"r_{self.operands[0][1:]} = {word};"
