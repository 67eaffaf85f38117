"""Batches of the packet engine: networks of one form, from specs to arrays, with memory of their own."""
