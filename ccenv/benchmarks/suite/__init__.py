"""Suites as data: their file format and published values."""
