"""Data sets of transitions of many senders, and learning from them without an environment."""
