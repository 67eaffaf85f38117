"""Theorems about endless runs: lemmas about traces, joined by a composition that is itself decided query by query."""
