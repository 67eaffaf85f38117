"""Senders side by side on one network: a table, a picture, and each one's worst legal case."""

from ccenv.comparison.run import Comparison, compare
from ccenv.comparison.table import Setting

__all__ = ["Comparison", "Setting", "compare"]
