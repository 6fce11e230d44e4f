"""The language server: diagnostics, hover, definitions, completion and formatting for editors."""
