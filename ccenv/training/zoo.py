"""What the shipped policies come to with today's code: their weights are older than the record's runs of the same configs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Any

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.identity import sender_hash
from ccenv.base.provenance import code_hash, machine, versions
from ccenv.training.config import load_config
from ccenv.training.evaluation import evaluate_sender
from ccenv.training.records import FORMAT, read_data, worst_cases


def record_zoo(file: FilePath | str) -> None:
    """Measure the policies of the zoo and write them into a record; its runs stay.

    Raises:
        InputError: if the file is no record.
    """
    data = read_data(FilePath(file))
    data["zoo"] = {name: zoo_entry(name) for name in AGENTS.names("learned")}
    FORMAT.write(FilePath(file), data | {"versions": versions(), "machine": machine()})


def zoo_entry(name: str) -> dict[str, Any]:
    """Return the hash of a shipped policy, its score in the common world and its worst case on each scene."""
    sender = make_sender(name)
    return {
        "sender_sha256": sender_hash(sender),
        "code": code_hash(zoo_entry),
        "common": asdict(evaluate_sender(sender)),
        "worst": worst_cases(name, load_config(name, [])),
    }
