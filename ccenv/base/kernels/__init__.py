"""Compiled functions: decorator, cache of machine code, threads, and a progress message during compilation."""
