"""Queries and templates: what is asked of all programs of a family."""
