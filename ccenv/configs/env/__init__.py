"""Shipped scenario distributions of the packet environments."""
