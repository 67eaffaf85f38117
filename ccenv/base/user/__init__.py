"""User code: a Python file that the user names, or a plugin of an installed package. Nothing else is ever run."""
