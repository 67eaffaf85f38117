"""Shipped link traces: data only, made by the generators of ``ccenv.engine.packet.rates``."""
