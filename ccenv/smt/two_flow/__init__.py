"""Two flows on one link."""
