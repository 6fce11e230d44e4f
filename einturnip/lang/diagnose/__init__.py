"""Explains syntax errors: where a statement fails, what was probably meant, and the edit that fixes it.."""
