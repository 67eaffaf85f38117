"""Fairness for ever: the least RTT at which a ratio is bounded, and recorded attacks.

``python docs/tables/fairness.py`` measures the first; with the word ``attacks`` it makes those that the record lacks,
with ``policy`` it plays the policy that was trained in a shield.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

Rows = list[dict[str, str]]
DOCS = Path(__file__).parents[1]
RECORD, IMAGE = DOCS / "data" / "fairness-frontier.json", DOCS / "images" / "fairness-frontier.svg"
JITTERS, RATIOS, SHARES = (1.0, 0.25, 0.125), (1.5, 2.0, 3.0, 4.0, 6.0), (10.0, 100.0, 1000.0)
UTILISATIONS, GAIN = (0.35, 0.5, 0.65), 1e-4
ATTACKS, MOVES = DOCS / "data" / "fairness-attacks.json", DOCS / "data" / "fairness-moves"
RATES_MBPS, FLOWS = (24, 48, 96, 384), (2, 4, 8)
ATTACK = "ccenv attack {} --goal starvation --budget {}Msteps"
ON_CURVES = ATTACK.replace("{} ", "{} --model cbr_delay --flows {} ", 1)
COMMANDS = {
    f"{flows} flows, {rate} Mbit/s": ON_CURVES.format("ever_delay:rm_ms=40", flows, 20)
    + f"{' --adversary policy_cem' if flows == 8 else ''} -s rate={rate}Mbps -s buffer=20bdp"
    for flows in FLOWS
    for rate in RATES_MBPS
} | {
    "small buffer": ON_CURVES.format("ever_delay:rm_ms=40", 2, 5) + " --path shallow",
    "no unit": ON_CURVES.format("ever_delay", 2, 20),
    "packets": ATTACK.format("ever_delay:rm_ms=40", 5) + " --scenario docs/data/fairness-packets.yaml",
}
"""Setting -> attack: twelve networks of the theorem, from an empty link, and three outside. Searches that look ahead take four
open moves at most, so that 8 flows have one that does not."""
POLICY, WEIGHTS = DOCS / "data" / "fairness-policy.json", DOCS / "data" / "ever-delay-shield.json"
RULE = "ever_delay:fairness=2.5,jitter_rtts=0.125,shares=10,max_share_mbps=60,rm_ms=40"
SHARES_MBPS, JITTERS_MS, RTT_MS = (60.0, 18.0, 6.0), (0.0, 5.0), 40.0
MARKERS, LINES = ("o", "s", "^"), ("-", "--", ":")


def measure() -> list[dict[str, Any]]:
    """Find the design of least RTT at every point; tables in floats, which a proof rounds and asks."""
    from ccenv.proofs.theorems.fairness.design import Design, search_design

    points = [(jitter, ratio, shares, 0.5) for jitter in JITTERS for ratio in RATIOS for shares in SHARES]
    points += [(jitter, 3.0, 100.0, utilisation) for jitter in JITTERS for utilisation in UTILISATIONS if utilisation != 0.5]
    rows = []
    for jitter, ratio, shares, utilisation in points:
        design = Design(fairness=ratio, jitter=jitter, shares=shares, utilisation=utilisation, gain=GAIN)
        shape = search_design(design)
        rows.append({**design.model_dump(), "rtt_rtts": None if shape is None else round(shape.rtt_rtts, 3)})
    return rows


def attack(name: str) -> dict[str, Any]:
    """Run an attack and return its row of the record; moves outside the theorem are kept, so that they can be replayed."""
    from contextlib import redirect_stdout
    from io import StringIO
    from json import loads
    from shutil import copyfile
    from tempfile import TemporaryDirectory

    from ccenv.cli.main import main

    told = StringIO()
    with TemporaryDirectory() as folder, redirect_stdout(told):
        main([*COMMANDS[name].split()[1:], "--json", "--out", folder])
        found = loads(told.getvalue())
        if "moves" in found and "flows" not in name:
            MOVES.mkdir(exist_ok=True)
            copyfile(found["moves"], MOVES / f"{name.replace(' ', '-')}.moves.npz")
    return row_of(name, found)


def row_of(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return the row of an attack's JSON."""
    row = {"ratio": found["worst_value"], "utilisation": found["worst_utilisation"], "adversary": found["worst_adversary"]}
    row |= {"command": COMMANDS[name], "flow_steps": found["flow_steps"], "legal": found["legal"]}
    pattern = found["by_adversary"][found["worst_adversary"]].get("pattern")
    kept = {"broken": found.get("theorem", {}).get("broken"), "beside": found.get("beside"), "pattern": pattern}
    return row | {key: value for key, value in kept.items() if value is not None}


def attacks(record: dict[str, Any]) -> Rows:
    """Return the worst ratio that was found in twelve settings, a row per number of flows."""
    return [
        {"worst ratio": f"{flows} flows"}
        | {f"{rate} Mbit/s": f"{record[f'{flows} flows, {rate} Mbit/s']['ratio']:.2f}" for rate in RATES_MBPS}
        for flows in FLOWS
    ]


def outside(record: dict[str, Any]) -> Rows:
    """Return what was found where more than the start is outside the theorem: the bound, the ratio, the verdict."""
    from ccenv.proofs.certificates.fairness.reading import read_fair, shipped_fair

    bound = float(read_fair(shipped_fair()["ever_delay"]).bounds.ratio)
    return [
        {
            "setting": name,
            "what fails there, beside steps and start": "; ".join(row.get("broken", ["", "(1) bytes are continuous", ""])[1:-1]),
            "worst ratio": f"{row['ratio']:.2f}",
            f"{bound:.3f} there": "refuted" if row["ratio"] > bound else "not refuted",
        }
        for name, row in record.items()
        if "flows" not in name
    ]


def play_shield(spec: str, share_mbps: float, n_flows: int, jitter_ms: float) -> tuple[float, float, float]:
    """Return mean queue (BDP) and utilisation in Rm 100 to 200 from an empty link, and the Rm until half of C is used."""
    import numpy as np

    from ccenv.agents.load import load_sender
    from ccenv.engine.curve.engine import CurveEngine
    from ccenv.network.path import make_path

    path = make_path(link_rate_mbps=n_flows * share_mbps, rtt_ms=RTT_MS, jitter_ms=jitter_ms, n_flows=n_flows, buffer_bdp=20)
    engine = CurveEngine([path], model="cbr_delay", senders=[load_sender(spec)] * n_flows, steps_per_rtt=8, seed=0)
    served, queues = [0.0], []
    for _ in range(200):
        engine.advance(8)
        totals = engine.totals()
        served.append(float(totals["S"].sum()) / path.bdp_bytes)
        queues.append(float((totals["A"] - totals["L"] - totals["S"]).sum()) / path.bdp_bytes)
    half = next((rtts for rtts, gain in enumerate(np.diff(served), 1) if gain >= 0.5), len(queues))
    return float(np.mean(queues[100:])), (served[200] - served[100]) / 100, float(half)


def measure_policy() -> list[dict[str, Any]]:
    """Return what the bare rule and the policy in its shield do, on the mean of one flow and two, D of 0 and Rm/8."""
    rows = []
    for share in SHARES_MBPS:
        row: dict[str, Any] = {"share_mbps": share}
        for name, spec in (("rule", RULE), ("policy", str(WEIGHTS))):
            runs = [play_shield(spec, share, n_flows, jitter_ms) for n_flows in (1, 2) for jitter_ms in JITTERS_MS]
            means = (round(sum(values) / len(runs), 4) for values in zip(*runs, strict=True))
            row[name] = dict(zip(("queue_bdp", "utilisation", "half_rtts"), means, strict=True))
        rows.append(row)
    return rows


def policies(record: list[dict[str, Any]]) -> Rows:
    """Return the rule beside the policy, a row per share."""
    heads = {"queue_bdp": "queue, BDP", "utilisation": "utilisation", "half_rtts": "half of C, Rm"}
    return [
        {"share, Mbit/s": f"{row['share_mbps']:g}"}
        | {f"{head}: {name}": f"{row[name][key]:.3g}" for key, head in heads.items() for name in ("rule", "policy")}
        for row in record
    ]


def frontier(record: list[dict[str, Any]]) -> Rows:
    """Return the least RTT for each D and ratio, a column per range of shares."""
    return [
        {"D, Rm": f"{jitter:g}", "ratio": f"{ratio:g}"}
        | {f"shares {shares:g}": _format(_rtt(record, jitter, ratio, shares, 0.5)) for shares in SHARES}
        for jitter in JITTERS
        for ratio in RATIOS
    ]


def utilisations(record: list[dict[str, Any]]) -> Rows:
    """Return the least RTT at ratio 3 and a range of 100, a column per utilisation."""
    return [
        {"D, Rm": f"{jitter:g}"}
        | {f"kappa {kappa:g}": _format(_rtt(record, jitter, 3.0, 100.0, kappa)) for kappa in UTILISATIONS}
        for jitter in JITTERS
    ]


def merit(record: list[dict[str, Any]]) -> Rows:
    """Return mu+/mu- of [Starvation] s.6.3 at the RTT that ever_delay needs for a range of 100: eq. 1 and 2 beside the proof."""
    rows = []
    for jitter in JITTERS:
        for ratio in RATIOS[1:4]:
            rtt = _rtt(record, jitter, ratio, 100.0, 0.5)
            if rtt is None:
                continue
            rows.append(
                {
                    "D, Rm": f"{jitter:g}",
                    "s": f"{ratio:g}",
                    "Rmax, Rm": _format(rtt),
                    "ever_delay, proved for any number of flows": "100",
                    "Vegas, FAST, Copa: (Rmax - Rm)(1 - 1/s)/D (eq. 1)": f"{(rtt - 1) * (1 - 1 / ratio) / jitter:.3g}",
                    "exponential map: s^((Rmax - Rm - D)/D) (eq. 2)": f"{ratio ** ((rtt - 1 - jitter) / jitter):.2g}",
                }
            )
    return rows


def picture(record: list[dict[str, Any]]) -> bytes:
    """Draw the least RTT over the ratio: a line per D and range."""
    from matplotlib.figure import Figure

    from ccenv.network.figure import picture as render

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for jitter, marker in zip(JITTERS, MARKERS, strict=True):
        for shares, line in zip(SHARES, LINES, strict=True):
            points = [(ratio, rtt) for ratio in RATIOS if (rtt := _rtt(record, jitter, ratio, shares, 0.5)) is not None]
            label = f"D = {jitter:g} Rm, shares {shares:g}"
            axes.plot(*zip(*points, strict=True), line, marker=marker, color=f"C{JITTERS.index(jitter)}", label=label)
    axes.set_yscale("log")
    axes.set_xlabel("largest ratio of two rates, for ever")
    axes.set_ylabel("largest RTT, Rm")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    return render(figure, ".svg")


def _rtt(record: list[dict[str, Any]], jitter: float, ratio: float, shares: float, utilisation: float) -> float | None:
    point = {"jitter": jitter, "fairness": ratio, "shares": shares, "utilisation": utilisation}
    return next(row["rtt_rtts"] for row in record if row.items() >= point.items())


def _format(rtt: float | None) -> str:
    return "none" if rtt is None else f"{rtt:.2f}"


if __name__ == "__main__":
    import sys

    from ccenv.base.files import json_bytes, read_json, write_atomic

    if sys.argv[1:] == ["attacks"]:
        found = read_json(ATTACKS) if ATTACKS.exists() else {}
        for name in COMMANDS:
            if found.get(name, {}).get("command") != COMMANDS[name]:
                found[name] = attack(name)
                write_atomic(ATTACKS, json_bytes({key: found[key] for key in COMMANDS if key in found}))
    elif sys.argv[1:] == ["policy"]:
        write_atomic(POLICY, json_bytes(measure_policy()))
    else:
        record = measure()
        write_atomic(RECORD, json_bytes(record))
        write_atomic(IMAGE, picture(record))
