"""Records and pictures of everywhere-v1; ``python docs/tables/everywhere.py RUN.json [NAME=RUN.json ...]`` writes them.

RUN.json is what ``ccenv bench run everywhere-v1 --json`` printed; the others are runs of the same suite on training halves, of
variants of learned_everywhere by name.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ccenv.base.files import json_bytes, write_atomic

Rows = list[dict[str, str]]
DOCS = Path(__file__).parents[1]
RECORD, IMAGE = DOCS / "data" / "everywhere.json", DOCS / "images" / "everywhere.svg"
COLUMNS = {
    "alone": "alone", "alone_min": "lowest", "queue_ms": "queue (ms)", "varying": "varying", "jain": "Jain",
    "jain_min": "lowest Jain", "in_range": "in range", "share_cubic": "CUBIC", "share_bbr1": "BBRv1", "share_bbr3": "BBRv3",
    "share_copa": "Copa", "harm": "harm", "harm_max": "highest", "loss": "loss", "loss_max": "highest loss",
}  # fmt: skip
KEPT = ("suite_sha256", "code_sha256", "n_cells", "versions", "machine", "finished_at")


def rows(record: dict[str, Any], part: str) -> Rows:
    """Return the numbers of each sender of the suite, or of each variant of the policy."""
    return [
        {part.removesuffix("s"): f"`{name}`" if part == "senders" else name}
        | {head: "" if numbers[key] is None else f"{numbers[key]:.3g}" for key, head in COLUMNS.items()}
        for name, numbers in record[part].items()
    ]


def picture(record: dict[str, Any]) -> bytes:
    """Draw use alone over queue, and fairness to others over fairness among its own kind; what nothing surpasses is filled."""
    from matplotlib.figure import Figure

    from ccenv.base.figure import picture as render

    figure = Figure(figsize=(9, 4), layout="constrained")
    panels = (("queue_ms", "alone", -1.0), ("jain", "in_range", 1.0))
    for axes, (x, y, sign) in zip(figure.subplots(1, 2), panels, strict=True):
        points = {name: (n[x], n[y]) for name, n in record["senders"].items() if n[x] is not None and n[y] is not None}
        for name, (a, b) in points.items():
            beaten = any(sign * c >= sign * a and d >= b and (c, d) != (a, b) for c, d in points.values())
            own = name.startswith("learned_everywhere")
            axes.plot(a, b, "o", color="C3" if own else "C0", fillstyle="none" if beaten else "full")
            axes.annotate(name, (a, b), fontsize=6, xytext=(3, 2), textcoords="offset points")
        axes.set_xlabel(COLUMNS[x])
        axes.set_ylabel(COLUMNS[y])
    figure.axes[0].set_xscale("log")
    return render(figure, ".svg")


if __name__ == "__main__":
    run = json.loads(Path(sys.argv[1]).read_text())
    found = {name: run[name] for name in KEPT} | {"senders": run["agents"], "variants": {}}
    for word in sys.argv[2:]:
        variant, _, file = word.partition("=")
        found["variants"][variant] = next(iter(json.loads(Path(file).read_text())["agents"].values()))
    write_atomic(RECORD, json_bytes(found))
    write_atomic(IMAGE, picture(found))
