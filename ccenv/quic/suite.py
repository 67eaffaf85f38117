"""The suite quic-v1: senders of each stack and our programs, beside the curve engine, the packet engine and Linux."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from importlib import resources
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import numpy as np

from ccenv.agents import make_sender
from ccenv.base.errors import CcenvError
from ccenv.base.figure import finish, panels, save
from ccenv.base.files import Format
from ccenv.base.provenance import code_hash, machine
from ccenv.engine.curve.engine import CurveEngine
from ccenv.live.attacks import shipped_moves
from ccenv.network.adversary import RecordedAdversary, StoredMoves, load_moves
from ccenv.network.path import Path, make_path
from ccenv.quic.attack import COUNTERPARTS, QuicGame, search_moves
from ccenv.quic.link import calm_moves
from ccenv.quic.run import STEPS_PER_RTT, QuicResult, compile_sender, run_quic
from ccenv.quic.stacks import STACKS
from ccenv.quic.stacks.stack import QuicError, Stack
from ccenv.simulation import simulate

SUITE = "quic-v1"
FORMAT = Format("ccenv-quic-suite", 1, "a record of the suite quic-v1")
OWN = ("reno", "cubic", "bbr", "bbr1")
PROGRAMS = ("cc_qdel", "cc_probe_drain", "learned_shield_u80", "ever_delay")
ENGINES = ("curve engine", "packet engine", "Linux")
RIVALS = {"cubic": "reno"}  # of a sender in the case against; of the others: cubic
RATE_MBPS = 48.0
DURATION_S, LATE_S = 4.8, 0.8
CALM_BDP = {"calm_small": 0.5, "calm_large": 6.0}
PAIRS_MS = {"own_kind": (40.0, 40.0), "against": (40.0, 40.0), "late": (40.0, 40.0), "rtt_20_80": (20.0, 80.0)}
CASES = (*CALM_BDP, "attacked", *PAIRS_MS)
COLUMNS = ("stack", "sender", "calm_small", "calm_large", "attacked", "searched", *PAIRS_MS, "legal", "twin")


class Case(NamedTuple):
    """One run of the suite."""

    senders: list[str]  # one per flow of the path
    path: Path
    moves: np.ndarray | None = None  # None: calm

    @property
    def step_s(self) -> float:
        return min(flow.rtt_s for flow in self.path.flows) / STEPS_PER_RTT

    @property
    def steps(self) -> int:
        """Length of the run; its second half is measured."""
        return round(DURATION_S / self.step_s)

    def value(self, rates: Sequence[float]) -> float:
        """Return the share of the first of two flows, or of the link that one flow used."""
        return float(rates[0] / max(1.0, sum(rates) if len(rates) > 1 else self.path.link_rate_Bps))


def stored_moves(sender: str) -> StoredMoves:
    """Return the moves that are played against a sender: of its counterpart in the engine, or those found against cc_qdel."""
    files = shipped_moves()
    return load_moves(files.get(COUNTERPARTS.get(sender, sender), files["cc_qdel"]))


def cases_of(sender: str) -> Iterator[tuple[str, Case]]:
    stored = stored_moves(sender)
    path = stored.header.path
    for name, buffer_bdp in CALM_BDP.items():
        yield name, Case([sender], path.model_copy(update={"buffer_bytes": buffer_bdp * path.bdp_bytes}))
    yield "attacked", Case([sender], path, stored.moves)
    for name, rtts_ms in PAIRS_MS.items():
        shortest_ms = rtts_ms[0]
        path = make_path(
            link_rate_mbps=RATE_MBPS, rtt_ms=list(rtts_ms), jitter_ms=[shortest_ms] * 2, buffer_bdp=80.0 / shortest_ms
        )
        second = path.flows[1].model_copy(update={"start_s": LATE_S if name == "late" else 0.0})
        rival = RIVALS.get(sender, "cubic") if name == "against" else sender
        yield name, Case([sender, rival], path.model_copy(update={"flows": (path.flows[0], second)}))


def run_suite(
    file: FilePath, only: Sequence[str] = (), told: Callable[[int, int], None] | None = None, *, fresh: bool = False
) -> dict[str, Any]:
    """Run the suite with the stacks that are here, about a minute of CPU time for each of their senders.

    Args:
        file: the record, written after each row; rows of the same code are taken from it.
        only: patterns of stack/sender, such as ``quinn/*``.
        told: receives the rows done and planned.
        fresh: run every row again.

    Returns:
        dict: rows (utilisations; of pairs the share of the first flow, in rtt_20_80 that of the short RTT), and what is missing.
    """
    missing = {name: reason for name, stack in STACKS.items() if (reason := stack.missing()) is not None}
    senders = {
        stack.name: [one for one in OWN if one in stack.controls] for stack in STACKS.values() if stack.name not in missing
    }
    senders |= {engine: [one for one in OWN if one not in COUNTERPARTS] for engine in ENGINES}
    wanted = [(where, name) for where, own in senders.items() for name in (*own, *PROGRAMS)]
    wanted = [(where, name) for where, name in wanted if not only or any(fnmatch(f"{where}/{name}", one) for one in only)]
    if not wanted:
        raise QuicError(f"{SUITE}: nothing to run; {'; '.join(missing.values()) or 'patterns are of stack/sender'}")
    code = code_hash(run_suite)
    old = FORMAT.read(file) if file.exists() and not fresh else {}
    rows = {(row["stack"], row["sender"]): row for row in old.get("rows", ()) if old["code_sha256"] == code}
    record, refused = {}, dict(old.get("refused", {}))
    for number, (where, name) in enumerate(wanted):
        try:
            if (where, name) not in rows:
                rows[where, name] = _stack_row(STACKS[where], name) if where in STACKS else _engine_row(where, name)
        except CcenvError as error:
            refused[f"{where}/{name}"] = str(error)
        kept = [rows[one, sender] for one, own in senders.items() for sender in (*own, *PROGRAMS) if (one, sender) in rows]
        head = {"suite": SUITE, "machine": machine(), "code_sha256": code, "missing": missing, "refused": refused}
        record = {**FORMAT.head, **head, "rows": kept}
        FORMAT.write(file, record)
        if told is not None:
            told(number + 1, len(wanted))
    return record


def _stack_row(stack: Stack, name: str) -> dict[str, Any]:
    results: dict[str, QuicResult] = {}
    row: dict[str, Any] = {"stack": stack.name, "sender": name}
    for case, one in cases_of(name):
        compiled = [compile_sender(stack, sender, one.path, one.step_s) for sender in one.senders]
        results[case] = run_quic(stack, compiled, one.path, steps=one.steps, moves=one.moves)
        row[case] = results[case].shares[0] if case in PAIRS_MS else results[case].utilisation
    stored = stored_moves(name)
    game = QuicGame(stack, compile_sender(stack, name, stored.header.path, stored.header.dt_s), stored)
    search_moves(game, stack.search_runs, 0)
    beliefs = [one["hold"] for result in results.values() for one in result.beliefs() if one.get("hold") is not None]
    return row | {
        "searched": min(row["attacked"], game.worst.utilisation),
        "searched_runs": game.runs,
        "losses": results["calm_large"].losses,
        "legal": not game.illegal and not any(result.violations for result in results.values()),
        "twin": all(result.difference() is None for result in results.values()) if beliefs else None,
        "beliefs_hold": all(beliefs) if beliefs else None,
    }


def _engine_row(where: str, name: str) -> dict[str, Any]:
    run = {"curve engine": _on_curves, "packet engine": _on_packets, "Linux": _on_linux}[where]
    row = {case: run(name, case, one) for case, one in cases_of(name)}
    if not any(value is not None for value in row.values()):
        raise QuicError(f"{where} has no stored run of {name}")
    return {"stack": where, "sender": name, **row, "searched": None, "legal": None, "twin": None}


def _on_curves(_name: str, _case: str, case: Case) -> float:
    moves = calm_moves(len(case.senders)) if case.moves is None else case.moves
    engine = CurveEngine(
        [case.path], model="ccac", senders=[make_sender(name) for name in case.senders],
        adversary=RecordedAdversary("quic", moves), steps_per_rtt=STEPS_PER_RTT,
    )  # fmt: skip
    engine.advance(case.steps // 2)
    before = engine.totals()
    engine.advance(case.steps - case.steps // 2)
    after = engine.totals()
    return case.value((after["S"] - before["S"])[0] / (after["time_s"] - before["time_s"])[0])


def _on_packets(_name: str, _case: str, case: Case) -> float | None:
    if case.moves is not None:
        return None
    link = {"rate_Bps": case.path.link_rate_Bps, "buffer_bytes": case.path.buffer_bytes}
    flows = [
        {"sender": sender, "rtt_s": flow.rtt_s, "start_s": flow.start_s, "recovery": "flight"}  # as the record was made
        for sender, flow in zip(case.senders, case.path.flows, strict=True)
    ]
    run = simulate({"duration_s": DURATION_S, "warmup_s": DURATION_S / 2, "phase_jitter": 0.0, "links": [link], "flows": flows})
    return case.value([flow["throughput_mbps"] * 125_000 for flow in run.summary()["flows"]])


def _on_linux(name: str, case: str, one: Case) -> float | None:
    """Return what the shipped record of the suite live-worst-case measured on that path; None without one."""
    text = resources.files("ccenv.live").joinpath("records", "live-worst-case.json").read_text(encoding="utf-8")
    for row in json.loads(text)["rows"]:
        sender = row["sender"].removeprefix("kernel:")
        if COUNTERPARTS.get(sender, sender) == name and len(one.senders) == 1:
            if case == "attacked":
                return float(row["live"])
            if row["buffer_bdp"] == CALM_BDP[case]:
                return float(row["calm"])
    return None


def plot(record: dict[str, Any], file: FilePath) -> None:
    """Draw what each sender got alone, under stored moves, and under the worst that a search found."""
    rows = record["rows"]
    figure, (axes,) = panels(1, 1, (8, 0.25 * len(rows) + 1.5))
    for name, marker in (("calm_large", "o"), ("attacked", "x"), ("searched", "v")):
        points = [(row[name], place) for place, row in enumerate(rows) if row[name] is not None]
        axes.plot([x for x, _ in points], [y for _, y in points], marker, label=name.replace("_", " "))
    axes.set_yticks(range(len(rows)), [f"{row['stack']} {row['sender']}" for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.05)
    finish(axes, "share of the link", loc="lower left")
    save(figure, file)
