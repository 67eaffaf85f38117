"""Scripted network adversaries, one file each, over the records of ``ccenv.engine.compiled.signals``."""
