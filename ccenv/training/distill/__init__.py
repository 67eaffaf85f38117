"""Distillation of a learned policy into a belief program of a few lines, and the proof of that program."""
