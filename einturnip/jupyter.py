"""``%%ein``: a notebook cell with a program whose inputs and outputs are the notebook's variables.

%load_ext einturnip.jupyter
"""

from __future__ import annotations

import sys

import numpy as np
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from einturnip.api.program import Program, Result, compile
from einturnip.core.diagnostics import did_you_mean
from einturnip.core.errors import BindError, EinturnipError
from einturnip.report.progress import shown
from einturnip.report.summary import warning_lines


class CellError(Exception):
    """Raised for a cell or run that fails; a notebook shows its message without a traceback."""

    def _render_traceback_(self) -> list[str]:
        """IPython's hook: the lines to show."""
        return str(self).splitlines()


@magics_class
class EinMagics(Magics):
    """The magics of einturnip."""

    shell: InteractiveShell

    @magic_arguments()
    @argument("--memory", metavar="SIZE", help="Maximum memory that the run adds to this process. [half of the free]")
    @argument("--dim", metavar="NAME=SIZE", action="append", default=[], help="Give a size: --dim n=4096.")
    @argument("--quiet", "-q", action="store_true", help="Print nothing but warnings.")
    @cell_magic
    def ein(self, line: str, cell: str) -> None:
        """Run the cell as an einturnip program.

        An input takes its value from the notebook's variable of its name, or its default; every output becomes a
        variable.
        """
        options = parse_argstring(self.ein, line)
        try:
            program = compile(cell.rstrip() + "\n", dims=dict(map(_size, options.dim)))
            for finding in program.warnings:
                print(finding, file=sys.stderr)
            with shown(options.quiet, notebook=True) as show:
                result = program(data=self._inputs(program), memory=options.memory, progress=show)
        except EinturnipError as error:
            text = str(error)
            raise CellError(text if text.startswith("error") else f"error: {text}") from None
        self.shell.push({name: _plain(value) for name, value in result.items()})
        for line in warning_lines(result.report):
            print(line, file=sys.stderr)
        if not options.quiet:
            print("\n".join(_output_lines(result)))

    def _inputs(self, program: Program) -> dict[str, object]:
        names = self.shell.user_ns
        for name in program.required:
            if name not in names:
                known = [n for n in names if not n.startswith("_")]
                hint = did_you_mean(name, known) or f"assign it in a cell before: {name} = ..."
                raise BindError(f"input {name} is no variable of this notebook. help: {hint}")
        return {name: names[name] for name in program.inputs if name in names}


def _size(text: str) -> tuple[str, int]:
    name, _, number = (part.strip() for part in text.partition("="))
    if not name or not number.replace("_", "").isdecimal():
        raise CellError(f"error: '{text}' is not of the form n=4096")
    return name, int(number)


def _plain(value: object) -> object:
    """Convert an array without axes to a number; return other values unchanged."""
    return value[()] if isinstance(value, np.ndarray) and not value.shape else value


def _output_lines(result: Result) -> list[str]:
    """A line for each output: dtype and shape, or the value of a scalar."""
    lines = []
    for name, value in result.items():
        shape = ", ".join(map(str, value.shape))
        lines.append(f"{name} : {value.dtype}" + (f"[{shape}]" if shape else f" = {_plain(value)}"))
    return lines


def load_ipython_extension(shell: InteractiveShell) -> None:
    """IPython's hook: register the magics."""
    shell.register_magics(EinMagics)
