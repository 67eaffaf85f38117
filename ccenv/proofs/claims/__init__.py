"""What is asked: properties, lemmas, envelopes, and their reports."""
