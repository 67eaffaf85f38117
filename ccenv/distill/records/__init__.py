"""Records of distilled programs, their scores and their page."""
