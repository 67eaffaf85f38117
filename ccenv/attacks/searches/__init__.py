"""Searches for the worst legal network."""
