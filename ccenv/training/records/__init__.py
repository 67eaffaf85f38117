"""Records of the shipped configs' runs, and their page."""
