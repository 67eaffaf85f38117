"""Senders as constraints."""
