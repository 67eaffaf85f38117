"""Comparison of senders on one network: a table, a plot and worst legal cases."""

from ccenv.benchmarks.compare.run import Comparison, Setting, compare

__all__ = ["Comparison", "Setting", "compare"]
