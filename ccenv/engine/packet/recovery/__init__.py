"""How a sender finds its losses by time instead of by counting: RACK-TLP (RFC 8985)."""
