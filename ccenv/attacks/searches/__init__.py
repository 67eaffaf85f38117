"""Searches for the worst legal network, one file each."""
