"""Text to Program: parse, resolve, format."""
