"""Recorded attacks (docs/data/attacks.json) as the table of docs/adversaries.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

from ccenv.attacks.catalog import PANELS
from ccenv.base.errors import InputError
from ccenv.base.foreign import read_json
from ccenv.base.pages import Place, markdown

PLACE = Place("<!-- table of the record: ccenv.attacks.page.write_table -->")
TRAINED_MARK = "†"
SHOWN, BEFORE = "v2", "v1"
ALONE = 5e-3
EQUAL = 5e-4  # two worst cases that the table cannot tell apart


def table(attacks: Sequence[dict[str, Any]]) -> str:
    """Return the attacks by the panel as two tables in Markdown; ``†`` marks a scene that the sender was trained against.

    The first has a row per sender and scene, with what the panel before found; the second says for each adversary how often its
    was the worst case, how often nobody else came within .005, and its mean cost.
    """
    panel = PANELS[SHOWN]
    shown = [attack for attack in attacks if set(attack["by_adversary"]) == set(panel)]
    earlier = {
        (attack["sender"], attack["scene"]): attack["worst_utilisation"]
        for attack in attacks
        if set(attack["by_adversary"]) == set(PANELS[BEFORE])
    }
    rows = []
    for attack in shown:
        scene, met = attack["scene"], attack["trained_on_scenes"] or ()
        before = earlier.get((attack["sender"], scene))
        row = {
            "sender": attack["sender"],
            "scene": f"{scene}{TRAINED_MARK if scene in met else ''}",
            "set": attack["scene_set"],
            "worst": _short(attack["worst_utilisation"]),
            f"panel {BEFORE}": "" if before is None else _short(before),
        }
        rows.append(row | {f"`{name}`": _short(attack["by_adversary"][name]["worst_utilisation"]) for name in panel})
    return markdown(rows) + "\n\n" + markdown([_share(shown, name) for name in panel])


def _share(attacks: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the row of one adversary: its share of the worst cases, and what it costs."""
    worst = alone = 0
    for attack in attacks:
        own = attack["by_adversary"][name]["worst_utilisation"]
        others = [one["worst_utilisation"] for other, one in attack["by_adversary"].items() if other != name]
        worst += own <= attack["worst_utilisation"] + EQUAL
        alone += own < min(others) - ALONE
    steps = [attack["by_adversary"][name]["flow_steps"] for attack in attacks]
    return {
        "adversary": f"`{name}`",
        "worst or equal": f"{worst} of {len(attacks)}",
        "alone by .005": f"{alone} of {len(attacks)}",
        "flow-steps": f"{sum(steps) / max(1, len(steps)) / 1e6:.2f} M",
    }


def write_table(file: FilePath | str, page: FilePath | str) -> None:
    """Put the tables of a record in its place on a page.

    Raises:
        InputError: if the file is no list of attacks, or the page does not mark the place.
    """
    PLACE.write(FilePath(page), table(_attacks(file)))


PATHS_PLACE = Place("<!-- table of the record: ccenv.attacks.page.write_paths -->")


def paths_table(attacks: Sequence[dict[str, Any]]) -> str:
    """Return attacks of several senders on the same paths as a table in Markdown: a row per path, a column per sender.

    The column *any sender* is 1 - D / window: the network is kind until the window begins and holds every byte for D at its end.
    """
    senders = list(dict.fromkeys(attack["sender"] for attack in attacks))
    found: dict[str, dict[str, Any]] = {}
    for attack in attacks:
        path, flow = attack["path"], attack["path"]["flows"][0]
        bdp_bytes = path["link_rate_Bps"] * flow["rtt_s"]
        name = ", ".join(
            (
                f"{path['link_rate_Bps'] * 8e-6:.4g} Mbit/s",
                f"{flow['rtt_s'] * 1e3:.4g} ms",
                f"D = {flow['jitter_s'] / flow['rtt_s']:.3g} Rm",
                f"{path['buffer_bytes'] / bdp_bytes:.3g} BDP",
            )
        )
        most = 1 - flow["jitter_s"] / (attack["window_rtts"] * flow["rtt_s"])
        row = found.setdefault(name, {"set": attack["scene"] or "drawn", "most": most})
        row[attack["sender"]] = attack["worst_utilisation"]
    rows = [
        {
            "path": f"{name} ({row['set']})" if row["set"] != "drawn" else name,
            **{f"`{sender}`": _short(row[sender]) for sender in senders},
            "any sender": f"≤ {_short(row['most'])}",
        }
        for name, row in found.items()
    ]
    drawn = [row for row in found.values() if row["set"] == "drawn"]
    for word, of in (("drawn: lowest", min), ("drawn: mean", _mean)):
        values = {f"`{sender}`": _short(of([row[sender] for row in drawn])) for sender in senders}
        rows.append({"path": word, **values, "any sender": f"≤ {_short(of([row['most'] for row in drawn]))}"})
    return markdown(rows)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def write_paths(file: FilePath | str, page: FilePath | str) -> None:
    """Put the table of attacks on the same paths in its place on a page.

    Raises:
        InputError: if the file is no list of attacks, or the page does not mark the place.
    """
    PATHS_PLACE.write(FilePath(page), paths_table(_attacks(file)))


HIDDEN_PLACE = Place("<!-- table of the record: ccenv.attacks.page.write_hidden -->")
HIDDEN_GAIN = 0.03


def hidden_table(panel: Sequence[dict[str, Any]], hidden: Sequence[dict[str, Any]]) -> str:
    """Return what longer searches with other random numbers gain over the panel, as two tables in Markdown.

    The first has a row per sender and scene, the second says how many of them gain less than HIDDEN_GAIN.

    Raises:
        InputError: if the panel has not attacked one of them.
    """
    known = {(one["sender"], one["scene"]): one for one in panel if set(one["by_adversary"]) == set(PANELS[SHOWN])}
    rows, gains = [], []
    for one in sorted(hidden, key=lambda one: (str(one["scene"]), str(one["sender"]))):
        before = known.get((one["sender"], one["scene"]))
        if before is None:
            raise InputError(f"{one['sender']} on {one['scene']}: the panel has not attacked it, so nothing can be compared")
        gains.append(before["worst_utilisation"] - one["worst_utilisation"])
        rows.append(
            {
                "sender": one["sender"],
                "scene": one["scene"],
                "panel": _short(before["worst_utilisation"]),
                "hidden search": _short(one["worst_utilisation"]),
                "gain": _signed(gains[-1]),
                "found by": f"`{one['worst_adversary']}`",
                "flow-steps": f"{before['flow_steps'] / 1e6:.0f} M, {one['flow_steps'] / 1e6:.0f} M",
            }
        )
    below = sum(gain < HIDDEN_GAIN for gain in gains)
    share = {"rows": str(len(rows)), f"gain below {_short(HIDDEN_GAIN)}": f"{below} ({below / max(1, len(rows)):.0%})"}
    share["largest gain"] = _signed(max(gains, default=0.0))
    return markdown(rows) + "\n\n" + markdown([share])


def write_hidden(panel: FilePath | str, hidden: FilePath | str, page: FilePath | str) -> None:
    """Put the table of hidden searches in its place on a page.

    Raises:
        InputError: if a file is no list of attacks, what is compared was not attacked by the panel, or the page does not mark the
            place.
    """
    HIDDEN_PLACE.write(FilePath(page), hidden_table(_attacks(panel), _attacks(hidden)))


def _attacks(file: FilePath | str) -> list[dict[str, Any]]:
    attacks = read_json(FilePath(file))
    if not isinstance(attacks, list) or not all(isinstance(row, dict) and "by_adversary" in row for row in attacks):
        raise InputError(f"{file}: a list of results of ccenv attack --json is needed")
    return attacks


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else ''}{_short(abs(value))}"
