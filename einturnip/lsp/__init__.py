"""The language server: diagnostics, hover, definitions, completion and formatting for editors.

In: an editor's texts and positions. Out: responses of the language server protocol, through ``server``. Read
``reading`` (a text with its program, sizes and diagnostics), ``names`` (visible names, from the syntax tree alone),
``meaning`` (a word to its definition), ``hover``, ``completion``, ``glossary``, then ``server``. Only ``server`` needs
pygls.
"""
