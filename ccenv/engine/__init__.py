"""Engines: numba kernels, each with a slow plain reference beside it."""
