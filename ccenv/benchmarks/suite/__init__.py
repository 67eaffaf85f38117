"""Suites as data: what a suite file may say, and what its published values are."""
