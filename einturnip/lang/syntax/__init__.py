"""Parsing: text to syntax tree.

``parser`` runs the LALR tables, which ``tables`` generates, on tokens of ``lang.lexer``;
``formatter`` is the inverse and produces the canonical text.
"""
