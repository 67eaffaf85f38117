"""Recorded attacks (docs/data/attacks.json) as the table of docs/adversaries.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

from ccenv.attack.catalog import PANEL
from ccenv.errors import InputError
from ccenv.foreign import read_json
from ccenv.page_tables import Place, markdown

PLACE = Place("<!-- table of the record: ccenv.attack.page.write_table -->")
TRAINED_MARK = "†"


def table(attacks: Sequence[dict[str, Any]]) -> str:
    """Return the attacks by the panel as a table in Markdown; ``†`` marks a scene that the sender was trained against."""
    rows = []
    for attack in attacks:
        if set(attack["by_adversary"]) != set(PANEL):
            continue
        scene, met = attack["scene"], attack["trained_on_scenes"] or ()
        row = {
            "sender": attack["sender"],
            "scene": f"{scene}{TRAINED_MARK if scene in met else ''}",
            "set": attack["scene_set"],
            "worst": _short(attack["worst_utilisation"]),
        }
        rows.append(row | {f"`{name}`": _short(attack["by_adversary"][name]["worst_utilisation"]) for name in PANEL})
    return markdown(rows)


def write_table(file: FilePath | str, page: FilePath | str) -> None:
    """Put the table of a record in its place on a page.

    Raises:
        InputError: if the file is no list of attacks, or the page does not mark the place.
    """
    attacks = read_json(FilePath(file))
    if not isinstance(attacks, list) or not all(isinstance(row, dict) and "by_adversary" in row for row in attacks):
        raise InputError(f"{file}: a list of results of ccenv attack --json is needed")
    PLACE.write(FilePath(page), table(attacks))


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")
