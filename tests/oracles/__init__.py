"""Slow, plain references of the kernels: they serve the tests only."""
