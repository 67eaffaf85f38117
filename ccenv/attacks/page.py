"""The tables of recorded attacks (docs/data/attacks.json) in docs/adversaries.md."""

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
EQUAL = 5e-4  # below the table's resolution


def table(attacks: Sequence[dict[str, Any]]) -> str:
    """Return the panel's attacks as two Markdown tables; ``†`` marks an attack scenario of the sender's training.

    The first has a row per sender and scenario, with the finding of the earlier panel; the second has for each adversary how
    often it found the worst case, how often no other came within .005, and its mean cost.
    """
    panel = PANELS[SHOWN]
    panel_attacks = [attack for attack in attacks if set(attack["by_adversary"]) == set(panel)]
    earlier = {
        (attack["sender"], attack["scene"]): attack["worst_utilisation"]
        for attack in attacks
        if set(attack["by_adversary"]) == set(PANELS[BEFORE])
    }
    rows = []
    for attack in panel_attacks:
        scene, trained_scenes = attack["scene"], attack["trained_on_scenes"] or ()
        before = earlier.get((attack["sender"], scene))
        row = {
            "sender": attack["sender"],
            "scene": f"{scene}{TRAINED_MARK if scene in trained_scenes else ''}",
            "set": attack["scene_set"],
            "worst": _format_share(attack["worst_utilisation"]),
            f"panel {BEFORE}": "" if before is None else _format_share(before),
        }
        rows.append(row | {f"`{name}`": _format_share(attack["by_adversary"][name]["worst_utilisation"]) for name in panel})
    return markdown(rows) + "\n\n" + markdown([_share_row(panel_attacks, name) for name in panel])


def _share_row(attacks: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the row of one adversary: its share of the worst cases, and its cost."""
    worst = alone = 0
    for attack in attacks:
        utilisation = attack["by_adversary"][name]["worst_utilisation"]
        others = [one["worst_utilisation"] for other, one in attack["by_adversary"].items() if other != name]
        worst += utilisation <= attack["worst_utilisation"] + EQUAL
        alone += utilisation < min(others) - ALONE
    steps = [attack["by_adversary"][name]["flow_steps"] for attack in attacks]
    return {
        "adversary": f"`{name}`",
        "worst or equal": f"{worst} of {len(attacks)}",
        "alone by .005": f"{alone} of {len(attacks)}",
        "flow-steps": f"{sum(steps) / max(1, len(steps)) / 1e6:.2f} M",
    }


def write_table(file: FilePath | str, page: FilePath | str) -> None:
    """Write the tables of a record into a page. Raises InputError if the file is no list of attacks, or the page has no mark."""
    PLACE.write(FilePath(page), table(_read_attacks(file)))


PATHS_PLACE = Place("<!-- table of the record: ccenv.attacks.page.write_paths -->")


def paths_table(attacks: Sequence[dict[str, Any]]) -> str:
    """Return attacks of several senders on the same paths as a Markdown table: a row per path, a column per sender.

    The column *any sender* is 1 - D / window: the network is benign until the window, at whose end it holds every byte for D.
    """
    senders = list(dict.fromkeys(attack["sender"] for attack in attacks))
    rows_by_path: dict[str, dict[str, Any]] = {}
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
        row = rows_by_path.setdefault(name, {"set": attack["scene"] or "drawn", "most": most})
        row[attack["sender"]] = attack["worst_utilisation"]
    rows = [
        {
            "path": f"{name} ({row['set']})" if row["set"] != "drawn" else name,
            **{f"`{sender}`": _format_share(row[sender]) for sender in senders},
            "any sender": f"≤ {_format_share(row['most'])}",
        }
        for name, row in rows_by_path.items()
    ]
    drawn = [row for row in rows_by_path.values() if row["set"] == "drawn"]
    for word, reduce in (("drawn: lowest", min), ("drawn: mean", _mean)):
        values = {f"`{sender}`": _format_share(reduce([row[sender] for row in drawn])) for sender in senders}
        rows.append({"path": word, **values, "any sender": f"≤ {_format_share(reduce([row['most'] for row in drawn]))}"})
    return markdown(rows)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def write_paths(file: FilePath | str, page: FilePath | str) -> None:
    """Write the table of attacks on the same paths into a page. Raises InputError as :func:`write_table` does."""
    PATHS_PLACE.write(FilePath(page), paths_table(_read_attacks(file)))


HIDDEN_PLACE = Place("<!-- table of the record: ccenv.attacks.page.write_hidden -->")
HIDDEN_GAIN = 0.03


def hidden_table(panel: Sequence[dict[str, Any]], hidden: Sequence[dict[str, Any]]) -> str:
    """Return the gain of longer searches with other random numbers over the panel, as two Markdown tables.

    The first has a row per sender and attack scenario, the second the number of those that gain less than HIDDEN_GAIN. Raises
    InputError if the panel has not attacked one of them.
    """
    panel_runs = {
        (attack["sender"], attack["scene"]): attack for attack in panel if set(attack["by_adversary"]) == set(PANELS[SHOWN])
    }
    rows, gains = [], []
    for attack in sorted(hidden, key=lambda attack: (str(attack["scene"]), str(attack["sender"]))):
        before = panel_runs.get((attack["sender"], attack["scene"]))
        if before is None:
            raise InputError(
                f"{attack['sender']} on {attack['scene']}: the panel has not attacked it, so nothing can be compared"
            )
        gains.append(before["worst_utilisation"] - attack["worst_utilisation"])
        rows.append(
            {
                "sender": attack["sender"],
                "scene": attack["scene"],
                "panel": _format_share(before["worst_utilisation"]),
                "hidden search": _format_share(attack["worst_utilisation"]),
                "gain": _format_signed(gains[-1]),
                "found by": f"`{attack['worst_adversary']}`",
                "flow-steps": f"{before['flow_steps'] / 1e6:.0f} M, {attack['flow_steps'] / 1e6:.0f} M",
            }
        )
    below = sum(gain < HIDDEN_GAIN for gain in gains)
    share = {"rows": str(len(rows)), f"gain below {_format_share(HIDDEN_GAIN)}": f"{below} ({below / max(1, len(rows)):.0%})"}
    share["largest gain"] = _format_signed(max(gains, default=0.0))
    return markdown(rows) + "\n\n" + markdown([share])


def write_hidden(panel: FilePath | str, hidden: FilePath | str, page: FilePath | str) -> None:
    """Write the table of hidden searches into a page. Raises InputError as the functions above do."""
    HIDDEN_PLACE.write(FilePath(page), hidden_table(_read_attacks(panel), _read_attacks(hidden)))


def _read_attacks(file: FilePath | str) -> list[dict[str, Any]]:
    attacks = read_json(FilePath(file))
    if not isinstance(attacks, list) or not all(isinstance(row, dict) and "by_adversary" in row for row in attacks):
        raise InputError(f"{file}: a list of results of ccenv attack --json is needed")
    return attacks


def _format_share(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _format_signed(value: float) -> str:
    return f"{'-' if value < 0 else ''}{_format_share(abs(value))}"
