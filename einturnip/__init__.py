"""einturnip: tensor programs written as index equations, run in the memory you have.

import einturnip as et
c = et.einsum("ij,jk->ik", a, b, memory="512MiB")
"""

from __future__ import annotations

TYPE_CHECKING = False  # that of typing, which takes milliseconds to import, in which Ctrl-C would show a traceback
if TYPE_CHECKING:
    from typing import Any

    from einturnip.api.contract_expression import ContractExpression, contract_expression, tensordot
    from einturnip.api.contraction_path import einsum_path
    from einturnip.api.einsum import contract, einsum
    from einturnip.api.program import File, Plan, Program, Result, compile, open
    from einturnip.core.errors import (
        BindError,
        CapacityError,
        DeviceError,
        DTypeError,
        EinturnipError,
        InternalError,
        Interrupted,
        RunError,
        SourceError,
        StoreError,
    )

__version__ = "0.1.0"

_HOMES = {
    "einturnip.api.contract_expression": ("ContractExpression", "contract_expression", "tensordot"),
    "einturnip.api.contraction_path": ("einsum_path",),
    "einturnip.api.einsum": ("contract", "einsum"),
    "einturnip.api.program": ("File", "Plan", "Program", "Result", "compile", "open"),
    "einturnip.core.errors": (
        "BindError",
        "CapacityError",
        "DTypeError",
        "DeviceError",
        "EinturnipError",
        "InternalError",
        "Interrupted",
        "RunError",
        "SourceError",
        "StoreError",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BindError",
    "CapacityError",
    "ContractExpression",
    "DTypeError",
    "DeviceError",
    "EinturnipError",
    "File",
    "InternalError",
    "Interrupted",
    "Plan",
    "Program",
    "Result",
    "RunError",
    "SourceError",
    "StoreError",
    "__version__",
    "compile",
    "contract",
    "contract_expression",
    "einsum",
    "einsum_path",
    "open",
    "tensordot",
]


def __getattr__(name: str) -> Any:
    """Names are loaded when they are first asked for, so that ``import einturnip`` costs next to nothing."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'einturnip' has no attribute {name!r}")
    from importlib import import_module

    from einturnip.core.process_resources import loading

    with loading():
        value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
