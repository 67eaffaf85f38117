"""Metrics: series of a trace and of a packet run, and what is computed from them."""
