"""Tools that write tables of the documentation from records; ``tables.contents`` has all tables by name."""

import sys
from pathlib import Path

# Tables that tests measure again build on helpers of the tests.
sys.path[:0] = [str(Path(__file__).parents[2] / "tests" / part) for part in ("house", "leaderboard", "engine/packet/kernel")]
