"""Tables of recorded attacks: results of ``ccenv attack --json``, lists of them, and of ``ccenv gap -o FILE``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ccenv.attacks.catalog import PANELS
from ccenv.base.errors import InputError

Rows = list[dict[str, str]]
TRAINED_MARK = "†"
SHOWN, BEFORE = "v2", "v1"
ALONE = 5e-3
EQUAL = 5e-4  # below the table's resolution


def panel_attacks(attacks: Sequence[dict[str, Any]], panel: str = SHOWN) -> list[dict[str, Any]]:
    """Return the attacks of one panel of adversaries. Raises InputError for what is no list of attacks."""
    if not isinstance(attacks, list) or not all(isinstance(row, dict) and "by_adversary" in row for row in attacks):
        raise InputError("a list of results of ccenv attack --json is needed")
    return [attack for attack in attacks if set(attack["by_adversary"]) == set(PANELS[panel])]


def panel(attacks: Sequence[dict[str, Any]]) -> Rows:
    """Return a row per sender and scenario with the finding of the earlier panel; ``†``: a scenario of the sender's training."""
    earlier = {(attack["sender"], attack["scene"]): attack["worst_utilisation"] for attack in panel_attacks(attacks, BEFORE)}
    rows = []
    for attack in panel_attacks(attacks):
        scene = attack["scene"]
        before = earlier.get((attack["sender"], scene))
        row = {
            "sender": attack["sender"],
            "scenario": f"{scene}{TRAINED_MARK if scene in (attack['trained_on_scenes'] or ()) else ''}",
            "set": attack["scene_set"],
            "worst": _format_share(attack["worst_utilisation"]),
            f"panel {BEFORE}": "" if before is None else _format_share(before),
        }
        found = attack["by_adversary"]
        rows.append(row | {f"`{name}`": _format_share(found[name]["worst_utilisation"]) for name in PANELS[SHOWN]})
    return rows


def adversaries(attacks: Sequence[dict[str, Any]]) -> Rows:
    """Return for each adversary how often it found the worst case, how often no other came within .005, and its mean cost."""
    return [_share_row(panel_attacks(attacks), name) for name in PANELS[SHOWN]]


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


def unseen(attacks: Sequence[dict[str, Any]]) -> Rows:
    """Return attacks of several senders on the same paths: a row per path, a column per sender.

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
    return rows


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


HIDDEN_GAIN = 0.03


def hidden(attacks: Sequence[dict[str, Any]], longer: Sequence[dict[str, Any]]) -> Rows:
    """Return the gain of longer searches with other random numbers over the panel: a row per sender and scenario.

    Raises:
        InputError: if the panel has not attacked one of them.
    """
    return [row for row, _ in _gains(attacks, longer)]


def hidden_gain(attacks: Sequence[dict[str, Any]], longer: Sequence[dict[str, Any]]) -> Rows:
    """Return how many of the longer searches gain less than HIDDEN_GAIN, and the largest gain."""
    gains = [gain for _, gain in _gains(attacks, longer)]
    below = sum(gain < HIDDEN_GAIN for gain in gains)
    share = {"rows": str(len(gains)), f"gain below {_format_share(HIDDEN_GAIN)}": f"{below} ({below / max(1, len(gains)):.0%})"}
    return [share | {"largest gain": _format_signed(max(gains, default=0.0))}]


def _gains(attacks: Sequence[dict[str, Any]], longer: Sequence[dict[str, Any]]) -> list[tuple[dict[str, str], float]]:
    panel_runs = {(attack["sender"], attack["scene"]): attack for attack in panel_attacks(attacks)}
    rows = []
    for attack in sorted(longer, key=lambda attack: (str(attack["scene"]), str(attack["sender"]))):
        before = panel_runs.get((attack["sender"], attack["scene"]))
        if before is None:
            raise InputError(
                f"{attack['sender']} on {attack['scene']}: the panel has not attacked it, so nothing can be compared"
            )
        gain = before["worst_utilisation"] - attack["worst_utilisation"]
        row = {
            "sender": attack["sender"],
            "scenario": attack["scene"],
            "panel": _format_share(before["worst_utilisation"]),
            "hidden search": _format_share(attack["worst_utilisation"]),
            "gain": _format_signed(gain),
            "found by": f"`{attack['worst_adversary']}`",
            "flow-steps": f"{before['flow_steps'] / 1e6:.0f} M, {attack['flow_steps'] / 1e6:.0f} M",
        }
        rows.append((row, gain))
    return rows


def gap(record: dict[str, Any]) -> Rows:
    """Return what attacks found beside what the solver proved, a row per sender and kind of window."""
    rows = []
    for row in record["rows"]:
        method = row["method"] if row["method"].startswith("solver") else f"`{row['method']}`"
        rows.append(
            {"sender": row["sender"], "model": row["model"], "windows": row["windows"]}
            | {
                "bound": _three(row["bound"]),
                "found": _three(row["found"]),
                "ratio": _three(row["ratio"]),
                "method": method,
                "cold: searched": _three(row["searched"]),
                "cold: solver": _three(row["cold_start"]),
                "cold ratio": _three(row["cold_ratio"]),
                "cold bound": _three(row["cold_bound"]),
                "over cold bound": _three(row["cold_bound_ratio"]),
                "any window": _three(row["found_in_any_window"]),
            }
        )
    return rows


def _three(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value == 0 or value > 5e-4 else f"{value:.0e}"


def _format_share(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _format_signed(value: float) -> str:
    return f"{'-' if value < 0 else ''}{_format_share(abs(value))}"
