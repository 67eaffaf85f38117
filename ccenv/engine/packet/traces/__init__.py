"""Links of varying rate in the packet engine: what they carry, generators that make traces from the seed."""
