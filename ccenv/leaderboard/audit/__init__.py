"""Audits: strict reading of a board, and repeated runs and proofs."""
