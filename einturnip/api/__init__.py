"""The Python surface: compile, Program, Plan, einsum, open."""

from einturnip.api.contraction import einsum
from einturnip.api.program import File, Plan, Program, Result, compile, open

__all__ = ["File", "Plan", "Program", "Result", "compile", "einsum", "open"]
