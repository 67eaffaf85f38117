"""What a run shows: looks at its player during training, and the run opened afterwards."""
