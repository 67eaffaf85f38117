"""The game of sender and network on integer grids, solved exactly: belief sets, optimal play, regret. See docs/games.md."""
