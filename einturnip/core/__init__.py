"""Services that know nothing of tensors: errors, diagnostics, process limits, regular files."""
