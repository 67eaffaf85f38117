"""Queries about several flows of one program."""
