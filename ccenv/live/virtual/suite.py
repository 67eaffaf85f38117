"""The suite kernel-v1: a real kernel in virtual time beside the packet engine with the profile ``linux``, and bands between them.

Runs are kept by case and seed with the code that made them; those of the kernel are shipped, so the suite also works where no
user-mode Linux is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from inspect import getsource
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import InputError
from ccenv.base.files import Format, hash_value
from ccenv.base.foreign import read_yaml
from ccenv.base.provenance import code_hash
from ccenv.live.comparison import COUNTERPARTS, simulate_live
from ccenv.live.result import LiveResult
from ccenv.live.scenario import KERNEL, LiveError, LiveScenario, read_live_scenario
from ccenv.live.virtual.guest import SOURCES
from ccenv.live.virtual.run import run_virtual
from ccenv.simulation.result import with_phase_jitter, with_start_phases
from ccenv.simulation.scenario import PHASE_JITTER

SUITE = "kernel-v1"
FORMAT = Format("ccenv-kernel-suite", 1, "a record of the suite kernel-v1")
EMULATOR = SOURCES.parent / "emulator"
SHIPPED = Path(__file__).parents[1] / "records" / f"{SUITE}.json"
QUANTITIES = ("utilisation", "queue", "loss", "shares")
UTILISATION, QUEUE, LOSS_FACTOR, LOSS_POINTS, SHARE = 0.03, 0.15, 1.5, 0.02, 0.05
ERRORS = 2.0  # standard errors of the difference of both means, by which a band is wider
SIDES = ("kernel", "engine")
PHASES = (with_start_phases, with_phase_jitter)


class _Run(StrictModel):
    """A run as records keep it."""

    scenario: str
    utilisation: float = Field(ge=0, le=2)
    queue: float = Field(ge=0, le=1e9)
    loss: float = Field(ge=0, le=100)
    shares: list[Annotated[float, Field(ge=0, le=1)]]
    hash: str = ""


class _Kept(StrictModel):
    code: dict[Literal["kernel", "engine"], str]
    runs: dict[Literal["kernel", "engine"], dict[str, _Run]]


def load_cases() -> dict[str, list[LiveScenario]]:
    """Return the cases by name, each with a scenario per seed."""
    data: Any = read_yaml(SOURCES / f"{SUITE}.yaml")
    cases = {}
    for family, keys in data["families"].items():
        for senders in keys["senders"]:
            name = f"{family}/{senders}"
            cases[name] = [_scenario(name, senders.split("+"), data["common"] | keys, seed) for seed in data["seeds"]]
    return cases


def _scenario(name: str, senders: Sequence[str], keys: Mapping[str, Any], seed: int) -> LiveScenario:
    """Return a case: the kernel's own delayed ACKs and bursts."""
    shared = {key: keys[key] for key in ("rtt_ms", "start_s", "jitter") if key in keys}
    flows = [
        {"sender": f"{KERNEL}{sender}", **{k: v[i] if isinstance(v, list) else v for k, v in shared.items()}}
        for i, sender in enumerate(senders)
    ]
    link = {key: keys[key] for key in ("rate_mbps", "buffer_bdp")}
    times = {key: keys[key] for key in ("duration_s", "warmup_s")}
    return read_live_scenario(
        {"name": name, "seed": seed, **times, "quick_ack": False, "packets_per_burst": 0, "links": [link], "flows": flows}, name
    )


def hash_scenario(scenario: LiveScenario) -> str:
    return hash_value(scenario.model_dump(mode="json", exclude_defaults=True))[:16]


def measure(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the quantities of a run: utilisation, packets waiting, per cent lost, and of several flows their shares."""
    (link,) = summary["links"]
    rates = np.array([flow["throughput_mbps"] for flow in summary["flows"]])
    shares = (rates / max(rates.sum(), 1e-9)).round(5).tolist() if len(rates) > 1 else []
    values = {"utilisation": link["utilisation"], "queue": link["queue_packets"], "loss": 100 * (link["loss"] or 0.0)}
    return {**{name: float(f"{value:.5g}") for name, value in values.items()}, "shares": shares}


def play_kernel(scenario: LiveScenario) -> dict[str, Any]:
    """Return the quantities of a run of the kernel and its hash. Raises LiveError for one that is not valid."""
    result: LiveResult = run_virtual(scenario)
    if not result.valid:
        raise LiveError(f"{scenario.name}, seed {scenario.seed}: {result.why_not_valid[0]}")
    summary = result.summary()
    return measure(summary) | {"hash": summary["hash"][:16]}


def play_engine(scenario: LiveScenario) -> dict[str, Any]:
    """Return the quantities of the packet engine with the hosts' profile."""
    return measure(simulate_live(scenario).summary)


PLAYS: dict[str, Callable[[LiveScenario], dict[str, Any]]] = {"kernel": play_kernel, "engine": play_engine}


def codes() -> dict[str, str]:
    """Return the hash of what decides the runs of a side: of the kernel the guest's two sources, the emulator's three, phases."""
    files = [*(SOURCES / name for name in ("clock.c", "agent.c")), *(EMULATOR / f"{name}.py" for name in ("box", "link", "loop"))]
    return {
        "kernel": hash_value(
            [*(file.read_text(encoding="utf-8") for file in files), *(getsource(one) for one in PHASES), PHASE_JITTER]
        )[:16],
        "engine": code_hash(simulate_live)[:16],
    }


def run_suite(
    file: Path,
    only: Sequence[str] = (),
    progress: Callable[[int, int], None] = lambda done, planned: None,
    *,
    fresh: bool = False,
    shipped: Path = SHIPPED,
) -> dict[str, Any]:
    """Play what is missing of the suite and judge all of it.

    Args:
        file: the record, written as runs end; runs of the same code and scenario are taken from it and from ``shipped``.
        only: patterns of ``family/senders/seed`` with ``*``; empty: all.
        progress: receives the runs done and planned.
        fresh: play all again.
        shipped: a record to begin with.

    Raises:
        InputError: for a record that is damaged.
        LiveError: if no run matches, a run is not valid, or a run of the kernel is missing and cannot be made here.
    """
    planned = [
        (side, case, scenario)
        for case, scenarios in load_cases().items()
        for scenario in scenarios
        if not only or any(fnmatch(f"{case}/{scenario.seed}", one) for one in only)
        for side in SIDES
        if side == "kernel" or all(flow.sender.removeprefix(KERNEL) in COUNTERPARTS for flow in scenario.flows)
    ]
    if not planned:
        raise LiveError(f"{SUITE}: no run matches {list(only)}; runs are called like 'two/reno+cubic/0'")
    code, runs = codes(), {side: {} for side in SIDES}  # type: dict[str, str], dict[str, dict[str, Any]]
    for old in (_read(one) for one in (shipped, file) if one.exists() and not fresh):
        for side in SIDES:
            runs[side] |= old["runs"][side] if old["code"][side] == code[side] else {}
    for number, (side, case, scenario) in enumerate(planned):
        name, sha256 = f"{case}/{scenario.seed}", hash_scenario(scenario)
        if runs[side].get(name, {}).get("scenario") != sha256:
            runs[side][name] = {"scenario": sha256, **PLAYS[side](scenario)}
            FORMAT.write(file, {**FORMAT.head, "suite": SUITE, "code": code, "runs": runs})
        progress(number + 1, len(planned))
    record = {**FORMAT.head, "suite": SUITE, "code": code, **judge(runs, {case for _, case, _ in planned}), "runs": runs}
    FORMAT.write(file, record)
    return record


def _read(file: Path) -> dict[str, Any]:
    """Return code and runs of a record. Raises InputError for what is no run of a case."""
    old = FORMAT.read(file)
    stored = validate(_Kept, {key: old.get(key) for key in ("code", "runs")}, str(file))
    flows = {f"{case}/{one.seed}": len(one.flows) for case, scenarios in load_cases().items() for one in scenarios}
    for name, run in (pair for runs in stored.runs.values() for pair in runs.items()):
        if name in flows and len(run.shares) != (flows[name] if flows[name] > 1 else 0):
            raise InputError(f"{file}: the run {name!r} has {len(run.shares)} shares; its flows are {flows[name]}")
    return old


def judge(runs: Mapping[str, Mapping[str, Any]], names: set[str]) -> dict[str, Any]:
    """Return the cases of these names with means, standard errors and what lies beyond the bands; the numbers of cases inside."""
    rows = []
    for case, scenarios in load_cases().items():
        played = {side: [one for s in scenarios if (one := runs[side].get(f"{case}/{s.seed}"))] for side in SIDES}
        if case not in names or not played["kernel"]:
            continue
        flows = [
            {"sender": f.sender.removeprefix(KERNEL), "rtt_ms": 1e3 * f.rtt_s, "start_s": f.start_s} for f in scenarios[0].flows
        ]
        sides = {side: spread(played[side]) for side in SIDES if played[side]}
        rows.append({"case": case, "flows": flows, **sides, **({"beyond": beyond(sides)} if "engine" in sides else {})})
    judged = [row for row in rows if "beyond" in row]
    return {
        "inside": sum(not row["beyond"] for row in judged),
        "of": len(judged),
        "inside_per_quantity": {name: sum(name not in row["beyond"] for row in judged) for name in QUANTITIES},
        "cases": rows,
    }


def spread(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return mean and standard error of each quantity, and the number of seeds."""
    out: dict[str, Any] = {"seeds": len(runs)}
    for name in QUANTITIES:
        values = np.array([run[name] for run in runs])
        error = values.std(axis=0, ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else 0.0 * values[0]
        out[name], out[f"{name}_error"] = (np.round(one, 6).tolist() for one in (values.mean(axis=0), error))
    return out


def beyond(sides: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the quantities of the engine that lie beyond the band around the kernel's mean.

    A band is wider by two standard errors of the difference of the means.
    """
    return [name for name in QUANTITIES if not all(inside for inside in _inside(name, sides))]


def _inside(name: str, sides: Mapping[str, Mapping[str, Any]]) -> Iterator[bool]:
    kernel, engine = (np.atleast_1d(sides[side][name]) for side in SIDES)
    margin = ERRORS * np.hypot(*(np.atleast_1d(sides[side][f"{name}_error"]) for side in SIDES))
    for theirs, ours, wider in zip(kernel, engine, margin, strict=True):
        low, high = {
            "utilisation": (theirs - UTILISATION, theirs + UTILISATION),
            "queue": (theirs * (1 - QUEUE), theirs * (1 + QUEUE)),
            "loss": (min(theirs / LOSS_FACTOR, theirs - LOSS_POINTS), max(theirs * LOSS_FACTOR, theirs + LOSS_POINTS)),
            "shares": (theirs - SHARE, theirs + SHARE),
        }[name]
        yield bool(low - wider <= ours <= high + wider)
