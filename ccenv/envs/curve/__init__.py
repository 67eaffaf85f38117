"""Environments over the curve engine."""
