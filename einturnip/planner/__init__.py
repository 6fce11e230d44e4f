"""The search over choices: proposes, prices, lowers."""
