"""Starting files of ``ccenv new``; each works as it is, and tests run it."""
