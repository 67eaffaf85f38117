"""Queries about two flows."""
