"""Flows that come and go: when, how large, and in which slots they are held."""
