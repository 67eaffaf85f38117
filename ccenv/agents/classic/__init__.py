"""Classic congestion-control algorithms, one file each, over the records of ``ccenv.engine.compiled.signals``."""
