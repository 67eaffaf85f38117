"""Shields: how wide the intervals of a program may become while its lemmas still hold (docs/shields.md)."""
