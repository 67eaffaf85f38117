"""Traces that ccenv ships: data only, made by its own generators (``ccenv.engine.packet.rates``)."""
