"""What every floor shares: dtypes, scalars, einsums, algebra, diagnostics, machine, settings."""
