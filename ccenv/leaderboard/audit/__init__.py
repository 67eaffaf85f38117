"""Audit: what stands on a board is read and decided again."""
