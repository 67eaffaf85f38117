"""Replay of counterexamples in exact arithmetic and in the curve engine."""
