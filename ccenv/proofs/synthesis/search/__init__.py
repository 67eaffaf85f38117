"""Searches over a template that leave out nothing."""
