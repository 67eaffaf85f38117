"""Puts this folder on the path, so that tests in sub-folders can import the shared helpers (legal_traces, broken_traces)."""
