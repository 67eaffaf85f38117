"""Simulations: ccenv sim NAME."""
