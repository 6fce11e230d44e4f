"""NVRTC's PTX as C++: one statement an instruction, which also counts what is executed.

So NVRTC's optimiser and its library of functions run, which a host's compiler replaces. ``ptx.h`` has the instructions'
meaning. Instructions are counted a thread and by class; bytes by the kind of memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from .ptx_arithmetic import UntranslatedError, cpp_type, split
from .ptx_instructions import Instruction, label

COUNTERS = (
    "float", "integer", "division", "special", "move", "compare", "memory", "control", "barrier",
    "read", "written", "shared_read", "shared_written", "local", "sectors", "requests",
)  # fmt: skip
"""Instructions by class, then bytes: of global memory, of shared memory, and of a thread's local memory.

``sectors``: of 32 bytes that ``requests`` of warps take of global memory; both are counted with EIN_TRAFFIC only.
"""
INSTRUCTIONS = COUNTERS[: COUNTERS.index("read")]

_SPECIAL_REGISTERS = {
    f"%{name}.{axis}": f"(u64){variable}.{axis}"
    for name, variable in {"tid": "threadIdx", "ctaid": "blockIdx", "ntid": "blockDim", "nctaid": "gridDim"}.items()
    for axis in "xyz"
}
_NO_EFFECT = frozenset({"pragma", "membar", "fence", "prefetch"})


def translated(text: str) -> str:
    """Return C++ for a module. Each entry E becomes a function of two structs, E_param_0 and E_param_1."""
    return _Module(re.sub(r"//.*", "", text)).text()


# Its kind, result, name, parameters; a semicolon, or its body.
_FUNCTION = r"\.(entry|func)\s*(?:\(([^)]*)\))?\s*(\w+)\s*\(([^)]*)\)\s*(?:\.\w+[^{;]*)?(?:(;)|\{(.*?)\n\})"
_PARAMETER = r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(\w+)(?:\[(\d+)\])?"


class _Module:
    """The variables and functions of a PTX module."""

    def __init__(self, text: str) -> None:
        self.shared: dict[str, str] = {}
        self.shared_nbytes = 0
        self.globals: dict[str, str] = {}
        for m in re.finditer(r"\.shared\s+\.align\s+(\d+)\s+\.(\w+)\s+(\w+)(?:\[(\d*)\])?;", text):
            align, kind, name, count = int(m[1]), m[2], m[3], m[4]
            if count == "":  # the size comes with the launch
                self.shared[name] = "STATIC_SHARED"
            elif name not in self.shared:
                self.shared_nbytes = -(-self.shared_nbytes // align) * align
                self.shared[name] = f"{self.shared_nbytes}"
                self.shared_nbytes += int(kind[1:]) // 8 * int(count or 1)
        pattern = r"\.(?:global|const)\s+\.align\s+(\d+)\s+\.(\w+)\s+(\w+)(?:\[(\d+)\])?(?:\s*=\s*([^;]*))?;"
        for m in re.finditer(pattern, text):
            values = m[5] or "0"
            array = f"[{m[4] or 1}] = " + (values if values.startswith("{") else f"{{{values}}}")
            self.globals[m[3]] = f"alignas({m[1]}) static {cpp_type(m[2])} {m[3]}{array};"
        self.functions = [
            _Function(self, m)
            for m in re.finditer(
                r"\.(entry|func)\s*(?:\(([^)]*)\))?\s*(\w+)\s*\(([^)]*)\)\s*(?:\.\w+[^{;]*)?(?:(;)|\{(.*?)\n\})",
                text,
                re.S,
            )
            if not m[5]
        ]

    def text(self) -> str:
        lines = [*self.globals.values(), f"enum {{ STATIC_SHARED = {-(-self.shared_nbytes // 128) * 128} }};"]
        lines += [f.signature + ";" for f in self.functions if not f.is_entry]
        return "\n".join([*lines, *(f.text() for f in self.functions)])


@dataclass
class _Block:
    """A sequence of instructions that is executed as a whole."""

    lines: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def text(self) -> Iterator[str]:
        yield from (f"counts[{name.upper()}] += {n};" for name, n in self.counts.items())
        yield from self.lines


class _Function:
    """One function. ``local``: names of variables and parameters, and C++ for their addresses."""

    def __init__(self, module: _Module, found: re.Match[str]) -> None:
        kind, result, self.name, parameters, body = found[1], found[2], found[3], found[4], found[6]
        self.module, self.is_entry = module, kind == "entry"
        self.local: dict[str, str] = {}
        self.sizes = []
        names = []
        for m in re.finditer(
            r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(\w+)(?:\[(\d+)\])?", f"{result or ''},{parameters}"
        ):
            names.append(m[2])
            self.sizes.append(int(m[1][1:]) // 8 * int(m[3] or 1))
            self.local[m[2]] = f"(u64){m[2]}"
        if self.is_entry:
            given = ", ".join(f"const {n}& bytes_{k}" for k, n in enumerate(names))
        else:
            given = ", ".join(f"byte* {n}" for n in names)
        self.parameters = names
        self.signature = f"static void {self.name}({given})"
        registers = set(re.findall(r"%(?!tid\b|ntid\b|ctaid\b|nctaid\b)(\w+)", re.sub(r"\.reg[^;]*;", "", body)))
        self.declared = ["bool carry = false;", *(f"u64 r_{r} = 0;" for r in sorted(registers))]
        for m in re.finditer(r"\.local\s+\.align\s+(\d+)\s+\.b8\s+(\w+)\[(\d+)\];", body):
            self.local[m[2]] = f"(u64){m[2]}"
            self.declared.append(f"alignas({m[1]}) byte {m[2]}[{m[3]}];")
        self.blocks = [_Block()]
        self.n_accesses = self.depth = 0
        for statement in re.split(r"([;{}]|\$?\w+:(?!:))", _grouped(_without_memory(body))):
            self._statement(" ".join(statement.split()))

    def text(self) -> str:
        lines = []
        if self.is_entry:
            for name, size in zip(self.parameters, self.sizes, strict=True):
                lines.append(f"struct {name} {{ alignas(8) byte bytes[{size}]; }};")
            self.declared = [
                f"const byte* const {n} = bytes_{k}.bytes;" for k, n in enumerate(self.parameters)
            ] + self.declared
        body = [*self.declared, *(line for block in self.blocks for line in block.text())]
        return "\n".join([*lines, self.signature + " {", *("  " + x for x in body), "  return;", "}"])

    def _statement(self, text: str) -> None:
        if text in ("{", "}"):
            self.depth += 1 if text == "{" else -1
            self.blocks.append(_Block([text]))
            self.blocks.append(_Block())
        elif text.endswith(":"):
            self.blocks.append(_Block([f"{label(text[:-1])}:;"]))
            self.blocks.append(_Block())
        elif text.startswith(".reg") and self.depth:  # hides the function's registers of this name
            names = ", ".join(f"r_{name}" for name in re.findall(r"%(\w+)", text))
            self.blocks[-1].lines += [f"u64 {names};"] if names else []
        elif text.startswith(".param"):
            m = re.fullmatch(r"\.param (?:\.align (\d+) )?\.(\w+) (\w+)(?:\[(\d+)\])?", text)
            assert m is not None, text
            self.local[m[3]] = f"(u64){m[3]}"
            self.blocks[-1].lines.append(f"alignas(16) byte {m[3]}[{int(m[2][1:]) // 8 * int(m[4] or 1)}];")
        elif text and text != ";" and not text.startswith("."):
            self._instruction(text)

    def _instruction(self, text: str) -> None:
        guard = ""
        m = re.match(r"@(!?)%(\w+) (.*)", text)
        if m is not None:
            guard, text = f"if ({m[1]}(r_{m[2]} & 1)) ", m[3]
        op, _, rest = text.partition(" ")
        name, *modifiers = op.split(".")
        if name in _NO_EFFECT:
            return
        made = Instruction(self, name, tuple(modifiers), tuple(split(rest)), bool(guard))
        kind, count = made.counted()
        block = self.blocks[-1]
        block.counts[kind] += count
        statement = made.statement()
        block.counts.update(made.nbytes)
        block.lines.append(f"{guard}{{ {statement} }}" if guard else statement)
        if kind in ("control", "barrier"):
            self.blocks.append(_Block())

    def value(self, text: str) -> str:
        """Return C++ for an operand as a 64-bit word."""
        if text in _SPECIAL_REGISTERS:
            return _SPECIAL_REGISTERS[text]
        if text[0] == "!":
            return f"!({self.value(text[1:])} & 1)"
        if text[0] == "%":
            return f"r_{text[1:]}"
        if re.fullmatch(r"0[fF][0-9A-Fa-f]{8}|0[dD][0-9A-Fa-f]{16}", text):
            return f"0x{text[2:]}ull"
        if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)U?", text):
            return f"{int(text.rstrip('U'), 0) & (1 << 64) - 1:#x}ull"
        if text in self.local:
            return self.local[text]
        if text in self.module.shared:
            return f"(u64){self.module.shared[text]}"
        if text in self.module.globals:
            return f"(u64){text}"
        raise UntranslatedError(f"operand {text}")

    def address(self, text: str) -> str:
        """Return C++ for an operand ``[base+offset]``."""
        m = re.fullmatch(r"\[([^+\]]+)(?:\+(-?\d+))?\]", text.replace(" ", ""))
        assert m is not None, text
        return f"({self.value(m[1])} + {int(m[2] or 0) & (1 << 64) - 1:#x}ull)"


def _without_memory(body: str) -> str:
    """Drop declarations of shared and local memory, which are read elsewhere."""
    return re.sub(r"^\s*\.(?:shared|local)\b[^;\n]*;", "", body, flags=re.M)


def _grouped(body: str) -> str:
    """Write groups of registers as ``<%a, %b>``, so that only scopes have braces."""
    return re.sub(r"\{([^{};\n]*)\}", lambda m: f"<{m[1]}>", body)
