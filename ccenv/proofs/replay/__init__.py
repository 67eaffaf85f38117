"""Counterexamples replayed in exact arithmetic and in the curve engine."""
