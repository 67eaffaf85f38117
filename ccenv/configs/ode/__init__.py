"""Shipped scenarios and sweeps of the fluid models."""
