"""Theorems: guarantees for unbounded runs, from lemmas about traces and a composition that is decided query by query."""
