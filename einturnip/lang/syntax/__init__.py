"""Text to syntax tree.

``parser`` drives the LALR tables in ``tables`` with tokens of ``lang.lexer``; ``formatter`` is the inverse and gives
the canonical text.
"""
