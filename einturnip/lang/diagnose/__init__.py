"""Explains syntax errors: the place of the error, the probable meaning, and the edit that fixes it."""
