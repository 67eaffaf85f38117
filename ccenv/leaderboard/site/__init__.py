"""The board's pages."""
