"""The delay element per packet: players, goals, game."""
