"""Cells: the smallest piece of a suite that runs, and what identifies its result."""
