"""The leaderboard: records of benchmarks and verifications in, a static page out (docs/board.md)."""
