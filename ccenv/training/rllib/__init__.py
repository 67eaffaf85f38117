"""Training with RLlib: the config of a run, and the run."""
