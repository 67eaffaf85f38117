"""Submissions: folders of data that are read strictly and never executed (docs/board.md)."""
