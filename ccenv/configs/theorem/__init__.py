"""Theorems: data only."""
