"""Scripted network adversaries, one file each, over the records of ``ccenv.agents.callbacks``."""
