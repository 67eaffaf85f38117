"""Senders side by side on one network: a table, a picture, and each one's worst legal case."""

from ccenv.comparison.run import Comparison, Setting, compare

__all__ = ["Comparison", "Setting", "compare"]
