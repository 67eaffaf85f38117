"""Equilibria, stability, phases and convergence of the fluid models."""
