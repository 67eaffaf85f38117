"""Searching adversaries: the moves of a legal network that hurt one sender most."""
