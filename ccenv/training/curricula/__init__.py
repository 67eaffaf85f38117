"""Curricula: which paths a training plays next."""
