"""Cells: the single runs of a suite, with the keys of their results."""
