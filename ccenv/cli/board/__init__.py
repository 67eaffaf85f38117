"""``ccenv board``: one file for each group of its commands."""
