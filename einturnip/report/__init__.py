"""Plans and runs made readable."""
