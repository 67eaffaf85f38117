"""Comparison of senders on one network: a table, a plot and worst legal cases."""

from ccenv.benchmarks.compare.run import Comparison, compare
from ccenv.benchmarks.compare.table import Setting

__all__ = ["Comparison", "Setting", "compare"]
