"""Distillation: from a learned policy to a belief program of a few lines, and to a proof of that program."""
