"""Compiled functions: their decorator, where their machine code is kept, threads, and a sign of life while they are compiled."""
