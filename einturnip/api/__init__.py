"""The Python surface, whose names ``einturnip`` gives out: compile, Program, Plan, einsum, open."""
