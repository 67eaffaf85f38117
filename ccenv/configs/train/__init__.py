"""Training runs: ccenv train NAME."""
