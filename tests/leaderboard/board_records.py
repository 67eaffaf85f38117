"""Records of suites and of a verification, and the board that is built of their folders."""

import json
from pathlib import Path
from typing import Any

from ccenv.leaderboard.site.build import build_site
from ccenv.leaderboard.site.sources import from_folders


def build_folders(places: list[Path], out: Path) -> dict[str, Any]:
    return build_site(from_folders(places), out)


def report(**changes: Any) -> dict[str, Any]:
    """What ``ccenv verify property cc_qdel --json`` prints, as far as the board reads it."""
    query = {"name": "q", "claim": "objectives <or> progress", "verdict": "verified", "evidence": {"sha256": "a" * 64}}
    data = {
        "promises": 2,
        "sender": "cc_qdel",
        "model": "ccac",
        "buffer": "infinite",
        "property": "invariant",
        "T": 7,
        "setting_name": "history",
    }
    return {
        **data,
        "verdict": "verified",
        "queries": [query],
        "seconds": 0.5,
        "solver": "z3-solver 1.2.3",
        "trace": None,
        **changes,
    }


def edit(file: Path, change: Any) -> None:
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))
