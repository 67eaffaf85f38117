"""Shipped configurations, one folder per command."""
