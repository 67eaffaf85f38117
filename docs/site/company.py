"""Write the tables of docs/company.md: python docs/site/company.py [RUN.json].

RUN.json is what ``ccenv bench run company --json`` printed; its numbers become the record first: docs/data/company.json of a
whole run, docs/data/company-beliefs.json of one with ``--only`` own and beside of senders that go by beliefs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ccenv.base.errors import InputError
from ccenv.base.files import write_atomic
from ccenv.base.foreign import read_json
from ccenv.base.pages import Place, markdown

DOCS = Path(__file__).parents[1]
RECORD, PAGE = DOCS / "data" / "company.json", DOCS / "company.md"
PLACE = Place("<!-- table of the recorded suite: python docs/site/company.py -->")
BELIEFS, BELIEFS_PLACE = (
    DOCS / "data" / "company-beliefs.json",
    Place("<!-- table of belief senders: python docs/site/company.py -->"),
)
KEPT = ("suite_sha256", "code_sha256", "n_cells", "versions", "machine", "finished_at")
BUFFERS = (("05", ".5"), ("1", "1"), ("4", "4"))


def beside(other: str, title: str) -> dict[str, str]:
    """Return the columns of the shares beside another sender, by buffer."""
    return {f"share_{other}_{key}bdp": f"{title}, {head} BDP" for key, head in BUFFERS}


# Number -> head of its column, by table.
TABLES: tuple[dict[str, str], ...] = (
    {
        "jain_2": "Jain 2",
        "jain_4": "Jain 4",
        "jain_8": "Jain 8",
        "jain_rtt_20_80": "20 / 80 ms",
        **beside("cubic", "CUBIC"),
        **beside("bbr1", "BBRv1"),
        "utilisation": "utilisation",
        "p95_queue_rtts": "p95 queue",
    },
    {
        **beside("bbr3", "BBRv3"),
        **beside("copa", "Copa"),
        "share_worst": "worst share",
        "harm": "harm",
        "loss_bbr1_1bdp": "own loss beside BBRv1, 1 BDP",
        "loss_8": "loss of 8",
    },
    {
        "p95_queue_rtts_1": "p95 queue of 1",
        "p95_queue_rtts_2": "of 2",
        "p95_queue_rtts_4": "of 4",
        "p95_queue_rtts_8": "of 8",
        "convergence_s": "convergence (s)",
        "churn_share": "churn",
        "delayed_acks_jain": "delayed ACKs: Jain",
        "delayed_acks_utilisation": "delayed ACKs: use",
        "one_delayed_jain": "one delayed: Jain",
        "aggregation_jain": "aggregation: Jain",
        "aggregation_utilisation": "aggregation: use",
        "loss_jain": "1 % loss: Jain",
        "loss_utilisation": "1 % loss: use",
    },
)


BELIEF_COLUMNS = {
    **{name: head for name, head in TABLES[0].items() if name.startswith(("jain_2", "jain_4", "jain_8", "share_"))},
    **{name: head for name, head in TABLES[1].items() if name in ("share_worst", "harm", "loss_8")},
    "harm_cubic": "harm to CUBIC",
}


def record(run: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of a run.

    Raises:
        InputError: if it is not a whole run of the suite.
    """
    if run.get("suite", {}).get("name") != "company" or not run.get("complete"):
        raise InputError("not a finished run of the suite company; print one: ccenv bench run company --json")
    return _kept(run)


def record_of_beliefs(run: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of a run of own* and beside*.

    Raises:
        InputError: if a sender lacks one of these cells.
    """
    if run.get("suite", {}).get("name") != "company" or run.get("n_cells") != 60 * len(run.get("agents", ())):
        raise InputError(
            "not a run of the suite company with 60 cells a sender: --only 'own*/SENDER/*' --only 'beside*/SENDER/*'"
        )
    kept = _kept(run)
    for sender in kept["senders"].values():
        sender["numbers"] = {name: sender["numbers"][name] for name in BELIEF_COLUMNS}
    return kept


def _kept(run: dict[str, Any]) -> dict[str, Any]:
    hashes = {player["label"]: player["sha256"] for player in run["players"]}
    senders = {name: {"sha256": hashes[name], "numbers": numbers} for name, numbers in run["agents"].items()}
    return {**{name: run[name] for name in KEPT}, "senders": senders}


def tables() -> str:
    """Return all tables of the page, from the record."""
    senders = read_json(RECORD)["senders"]
    return "\n\n".join(_table(senders, columns) for columns in TABLES)


def beliefs_table() -> str:
    """Return the table of senders that go by beliefs, from their record."""
    return _table(read_json(BELIEFS)["senders"], BELIEF_COLUMNS)


def _table(senders: dict[str, Any], columns: dict[str, str]) -> str:
    rows = []
    for name, sender in senders.items():
        numbers = sender["numbers"]
        texts = {head: "" if numbers[key] is None else f"{numbers[key]:.2f}" for key, head in columns.items()}
        rows.append({"sender": f"`{name}`", **texts})
    return markdown(rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run = read_json(Path(sys.argv[1]))
        file, kept = (RECORD, record(run)) if run.get("complete") else (BELIEFS, record_of_beliefs(run))
        write_atomic(file, (json.dumps(kept) + "\n").encode())
    PLACE.write(PAGE, tables())
    BELIEFS_PLACE.write(PAGE, beliefs_table())
    print(PAGE.name)
    sys.exit(0)
