"""Lemma suites: ccenv verify lemmas NAME."""
