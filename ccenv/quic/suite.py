"""The suite quic-v1: the senders of each stack and our programs, calm, under stored moves, under a short search, and in pairs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from importlib import resources
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import CcenvError
from ccenv.base.figure import finish, panels, save
from ccenv.base.files import Format
from ccenv.live.attacks import shipped_moves
from ccenv.network.adversary import load_moves
from ccenv.network.path import MBPS_IN_BPS, make_path
from ccenv.quic.attack import COUNTERPARTS, QuicGame, search_moves
from ccenv.quic.run import STEPS_PER_RTT, QuicResult, compile_sender, run_quic
from ccenv.quic.stacks import STACKS
from ccenv.quic.stacks.stack import QuicError, Stack
from ccenv.simulation import simulate

SUITE = "quic-v1"
FORMAT = Format("ccenv-quic-suite", 1, "a record of the suite quic-v1")
OWN = ("reno", "cubic", "bbr", "bbr1")
PROGRAMS = ("cc_qdel", "cc_probe_drain", "ever_delay")
RUNS = 36  # of the search
RATE_MBPS, STEPS = 48.0, 960
PAIR_S = 4.8
LATE_S = 0.8  # by which the second flow starts
PAIRS_MS = {"own_kind": (40.0, 40.0), "rtt_20_80": (20.0, 80.0)}
COLUMNS = (
    "stack", "sender", "calm_small", "calm_large", "attacked", "searched", "curve_engine", "kernel", "own_kind", "rtt_20_80",
    "packet_engine_20_80", "legal", "twin",
)  # fmt: skip


def run_suite(only: Sequence[str] = (), told: Callable[[int, int], None] | None = None) -> dict[str, Any]:
    """Run the suite with the stacks that are here.

    Args:
        only: patterns of stack/sender, such as ``quinn/*``.
        told: receives the rows done and planned.

    Returns:
        dict: rows (utilisations; of pairs the share of the first flow, in rtt_20_80 that of the short RTT), and what is missing.
    """
    missing = {name: reason for name, stack in STACKS.items() if (reason := stack.missing()) is not None}
    wanted = [
        (stack, name)
        for stack in STACKS.values()
        if stack.name not in missing
        for name in (*(one for one in OWN if one in stack.controls), *PROGRAMS)
        if not only or any(fnmatch(f"{stack.name}/{name}", pattern) for pattern in only)
    ]
    if not wanted:
        raise QuicError(f"{SUITE}: nothing to run; {'; '.join(missing.values()) or 'patterns are of stack/sender'}")
    rows, refused = [], {}
    for number, (stack, name) in enumerate(wanted):
        try:
            rows.append(_row(stack, name))
        except CcenvError as error:
            refused[f"{stack.name}:{name}"] = str(error)
        if told is not None:
            told(number + 1, len(wanted))
    return {**FORMAT.head, "suite": SUITE, "missing": missing, "refused": refused, "search_runs": RUNS, "rows": rows}


def _row(stack: Stack, name: str) -> dict[str, Any]:
    engine_name = COUNTERPARTS.get(name, name)
    stored = load_moves(shipped_moves()[engine_name] if engine_name in shipped_moves() else shipped_moves()["cc_qdel"])
    head = stored.header
    results = []
    for buffer_bdp in (0.5, 6.0):
        path = head.path.model_copy(update={"buffer_bytes": buffer_bdp * head.path.bdp_bytes})
        results.append(
            run_quic(stack, [compile_sender(stack, name, path, head.dt_s)], path, steps=STEPS, steps_per_rtt=head.steps_per_rtt)
        )
    game = QuicGame(stack, compile_sender(stack, name, head.path, head.dt_s), stored)
    results.append(game.run(stored.moves, stored.adversary.name))
    search_moves(game, RUNS, 0)
    pairs = {pair: _pair(stack, name, rtts_ms) for pair, rtts_ms in PAIRS_MS.items()}
    results += pairs.values()
    program = results[0].programs[0] is not None
    return {
        "stack": stack.name,
        "sender": name,
        "calm_small": results[0].utilisation,
        "calm_large": results[1].utilisation,
        "attacked": results[2].utilisation,
        "searched": game.worst.utilisation,
        "curve_engine": head.utilisation if head.sender == engine_name else None,
        "kernel": _kernel(engine_name),
        **{pair: result.shares[0] for pair, result in pairs.items()},
        "packet_engine_20_80": _packet_share(engine_name),
        "losses": results[1].losses,
        "legal": not game.illegal and not any(result.violations for result in results),
        "twin": all(result.difference() is None for result in results) if program else None,
        "beliefs_hold": all(one["hold"] for one in results[1].beliefs() + results[2].beliefs() if one) if program else None,
    }


def _pair(stack: Stack, name: str, rtts_ms: tuple[float, float]) -> QuicResult:
    path = make_path(link_rate_mbps=RATE_MBPS, rtt_ms=list(rtts_ms), jitter_ms=[rtts_ms[0]] * 2, buffer_bdp=80.0 / rtts_ms[0])
    late = path.flows[1].model_copy(update={"start_s": LATE_S})
    path = path.model_copy(update={"flows": (path.flows[0], late)})
    step_s = 1e-3 * rtts_ms[0] / STEPS_PER_RTT
    sender = compile_sender(stack, name, path, step_s)
    return run_quic(stack, [sender, sender], path, steps=round(PAIR_S / step_s))


def _packet_share(name: str) -> float | None:
    """Return the share of the short RTT among two flows in the packet engine; None for a sender that it does not have."""
    flows = [{"sender": name, "rtt_s": 1e-3 * rtt_ms} for rtt_ms in PAIRS_MS["rtt_20_80"]]
    link = {"rate_Bps": RATE_MBPS * MBPS_IN_BPS, "buffer_bytes": 2 * 0.04 * RATE_MBPS * MBPS_IN_BPS}
    try:
        rates = [
            flow["throughput_mbps"] for flow in simulate({"duration_s": 9.6, "links": [link], "flows": flows}).summary()["flows"]
        ]
    except CcenvError:
        return None
    return float(rates[0] / max(1e-9, sum(rates)))


def _kernel(name: str) -> float | None:
    """Return the utilisation of Linux under the same moves, from the shipped record of the suite live-worst-case."""
    text = resources.files("ccenv.live").joinpath("records", "live-worst-case.json").read_text(encoding="utf-8")
    rows = {
        COUNTERPARTS.get(label := row["sender"].removeprefix("kernel:"), label): row["live"] for row in json.loads(text)["rows"]
    }
    return rows.get(name)


def plot(record: dict[str, Any], file: FilePath) -> None:
    """Draw calm, attacked and searched utilisation of each sender."""
    rows = record["rows"]
    figure, (axes,) = panels(1, 1, (8, 0.4 * len(rows) + 1.5))
    places = range(len(rows))
    for name, marker in (("calm_large", "o"), ("attacked", "x"), ("searched", "v"), ("curve_engine", "|"), ("kernel", "s")):
        points = [(row[name], place) for place, row in zip(places, rows, strict=True) if row[name] is not None]
        axes.plot([x for x, _ in points], [y for _, y in points], marker, label=name.replace("_", " "))
    axes.set_yticks(list(places), [f"{row['stack']} {row['sender']}" for row in rows])
    axes.set_xlim(0, 1.05)
    finish(axes, "share of the link", loc="lower left")
    save(figure, file)
