"""Code of users: a Python file that they name, or an installed package that says so. Nothing else is ever run."""
