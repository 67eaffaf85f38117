"""Classic congestion-control algorithms, one file each, over the records of ``ccenv.agents.callbacks``."""
