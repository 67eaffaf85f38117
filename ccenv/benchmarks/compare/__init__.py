"""Senders side by side on one network: a table, a picture, and each one's worst legal case."""

from ccenv.benchmarks.compare.run import Comparison, compare
from ccenv.benchmarks.compare.table import Setting

__all__ = ["Comparison", "Setting", "compare"]
