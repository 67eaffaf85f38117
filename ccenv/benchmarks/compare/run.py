"""Several senders on the same network: runs in this process or in workers, rows of results, and a plot over time."""

from __future__ import annotations

import itertools
import math
import os
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.adversaries.load import load_adversary
from ccenv.agents.load import USER_SENDERS, SenderLike, as_sender, load_sender
from ccenv.agents.python_sender import find_bridge
from ccenv.agents.sender import ClassicSender, Sender
from ccenv.base.errors import CcenvError, InputError, MissingFileError, shown
from ccenv.base.figure import SUFFIXES, finish, panels, picture, save, table, thin
from ccenv.base.registry import number
from ccenv.base.results import TableResult
from ccenv.base.units import MBPS, SECONDS, SECONDS_OF_MS, SHARE, buffer_units, positive, quantity
from ccenv.base.user.python_file import hash_files, held, is_python_file
from ccenv.base.workers import Workers
from ccenv.benchmarks.cells.cell import label_of
from ccenv.network.adversary import ScriptedAdversary
from ccenv.network.metrics.measures import jain
from ccenv.network.metrics.table import METRICS, measure_run, run_metric
from ccenv.network.metrics.user import OwnMetric, load_metric, require_metric
from ccenv.network.path import DEFAULT_MSS_BYTES, MBPS_IN_BPS, make_path
from ccenv.simulation import Result, simulate
from ccenv.simulation.scenario import PHASE_JITTER

if TYPE_CHECKING:
    from matplotlib.figure import Figure


DPI = 150
LEGAL = "legal"
ATTACK_FLOW_STEPS = 4_000_000
MOST_FLOWS = 64
MOST_RUNS = 1000
MOST_SEEDS = 2**53
_SENDERS = "A name (ccenv list agents), a Python file, a program (.json) or a policy is needed"


@dataclass(frozen=True)
class Comparison(TableResult):
    """The outcome of :func:`compare`: a row per sender, and the runs of the first seed (None for a sender that failed)."""

    setting: Setting
    rows: tuple[Row, ...]
    results: tuple[Result | None, ...] = field(repr=False)

    def __repr__(self) -> str:
        return f"Comparison({', '.join(row.sender for row in self.rows)} on {self.setting})"

    @cached_property
    def columns(self) -> list[tuple[str, str]]:
        """The non-empty columns: (key, heading)."""
        further = {name: run_metric(name).axis for row in self.rows for name in row.metrics}
        defined = [(key, title) for key, title in COLUMNS if any(getattr(row, key) is not None for row in self.rows)]
        return [*defined, *((name, title) for name, title in further.items() if name not in dict(defined))]

    @property
    def warnings(self) -> list[str]:
        """One line for all senders whose runs with several seeds are equal, as behind an adversary that draws nothing."""
        same = [row.sender for row in self.rows if row.intervals and all(low == high for low, high in row.intervals.values())]
        text = f"{', '.join(same)}: {self.setting.seeds} seeds give one result: nothing is random, so intervals have no width"
        return [text] if same else []

    def to_dict(self) -> dict[str, Any]:
        rows = [asdict(row) for row in self.rows]
        return {"setting": self.setting.to_dict(), "senders": rows, "warnings": self.warnings}

    row_name = "sender"

    def _rows(self) -> list[dict[str, Any]]:
        failed = any(row.error for row in self.rows)
        return [
            {"sender": row.sender, **{key: row.value(key) for key, _ in self.columns}, **({"error": row.error} if failed else {})}
            for row in self.rows
        ]

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw rate, queue and loss of all senders over time into a .png, .svg or .pdf file."""
        save(draw(self.setting, self.rows, self.results), path, DPI, ALLOWED)

    def _repr_html_(self) -> str:
        """Show the table, with intervals, and the picture in a notebook."""
        drawn = picture(draw(self.setting, self.rows, self.results), ".svg").decode()
        texts = [[row.sender, *(row.text(key) for key, _ in self.columns)] for row in self.rows]
        return table(str(self.setting), ["", *(title for _, title in self.columns)], texts) + drawn[drawn.index("<svg") :]


def compare(
    senders: Sequence[SenderLike],
    *,
    rate: str | float = "48mbps",
    rtt: str | float = "40ms",
    buffer: str | float = "1bdp",
    flows: int = 1,
    against: str = "",
    loss_rate: str | float = 0.0,
    network: str = "",
    jitter: str | float = "",
    metrics: Sequence[str] = (),
    duration: str | float = "30s",
    seed: int = 0,
    seeds: int = 3,
    adversary: str = "",
    attack_flow_steps: int = ATTACK_FLOW_STEPS,
    jobs: int = 1,
    limit: str | float = "",
    report: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Run each sender on the same network, packet by packet.

    Raises InputError for a network that cannot be, no sender, or one sender twice.

    Args:
        senders: registered names, programs, policies or Python files (``ccenv.agents.load.load_sender``), senders
            (``ccenv.from_sb3``), classes of ``ccenv.PythonSender``.
        rate: of the link: ``"50mbps"``; a number is in Mbit/s.
        rtt: propagation RTT: ``"40ms"``; a number is in ms.
        buffer: ``"1bdp"``, ``"100packets"``, ``"250kB"``; a number is in bandwidth-delay products.
        flows: of each sender.
        against: one competing flow of this sender in every run.
        loss_rate: random loss as a share of packets, in [0, 1): ``"1%"``.
        network: scripted adversary, by name or Python file, that delays packets behind the link (``square:period_rtts=4``).
        jitter: D, its largest delay of a packet; a number is in ms; by default the propagation RTT.
        metrics: further columns: names (``ccenv list metrics``) or Python files.
        duration: of a run: ``"30s"``; a number is in seconds.
        seed: of all random numbers.
        seeds: runs of each sender, with ``seed`` and the numbers after it; the rows are then means with 95 % intervals.
        adversary: ``"legal"``: also attack each sender on CCAC with this path and D = Rm, and show its worst case.
        attack_flow_steps: budget of each attack.
        jobs: worker processes; senders given as objects run in this process.
        limit: time limit (``"10min"``) of a sender from a file of compiled functions, which then runs in a separate process, as
            compiled code cannot be interrupted; empty: none. Plain Python is limited call by call (``ccenv.base.user.limits``).
        report: called with the numbers of finished and of all senders.

    Returns:
        Comparison: rows and runs. The row of a sender that fails states the error; the others continue.

    Example:
        >>> ccenv.compare(["cubic", "copa"], rate="50mbps", rtt="40ms").to_frame()
    """
    by_spec = _index_senders(senders)
    flows = int(number("compare", "flows", flows, low=1, high=MOST_FLOWS, whole=True))
    seeds = int(number("compare", "seeds", seeds, low=1, high=MOST_RUNS, whole=True))
    seed = int(number("compare", "seed", seed, low=0, high=MOST_SEEDS - MOST_RUNS, whole=True))
    loss_rate = number("compare", "loss_rate", quantity("loss_rate", loss_rate, SHARE), low=0, high=0.999)
    if adversary not in ("", LEGAL):
        raise InputError(f"adversary is {shown(adversary)}; {LEGAL!r} is allowed")
    if against:
        load_sender(against)
    for spec in (spec for spec, sender in by_spec.items() if sender is None):
        _require_sender(spec)
    link_Bps, rtt_s = positive("rate", rate, MBPS) * MBPS_IN_BPS, positive("rtt", rtt, SECONDS_OF_MS)
    room_bytes = positive("buffer", buffer, buffer_units(link_Bps * rtt_s, DEFAULT_MSS_BYTES))
    setting = Setting(
        link_Bps,
        rtt_s,
        room_bytes,
        flows,
        against,
        loss_rate,
        positive("duration", duration, SECONDS),
        seed,
        network,
        _jitter_s(network, jitter, rtt_s),
        seeds,
    )
    steps = attack_flow_steps if adversary else 0
    hashes = hash_files([*by_spec, against, network, *metrics])
    first = _Task(setting, steps, _load_metrics(metrics), hashes)
    others = [replace(first, setting=replace(setting, seed=seed + n), attack_flow_steps=0) for n in range(1, seeds)]
    limit_s = positive("limit", limit, SECONDS) if limit else 0.0
    outcomes = []
    with Workers(jobs) as workers:
        waiting = [
            partial(_run_alone, task, spec, limit_s)
            if limit_s and sender is None and _is_compiled(spec)
            else workers.submit(_run, task, spec)
            if sender is None
            else partial(_run, task, spec, sender)
            for spec, sender in by_spec.items()
            for task in (first, *others)
        ]
        for done, result in enumerate(waiting, 1):
            outcomes.append(result())
            if report is not None:
                report(done, len(waiting))
    runs = [outcomes[n : n + seeds] for n in range(0, len(outcomes), seeds)]
    return Comparison(setting, tuple(merge_rows([row for row, _ in same]) for same in runs), tuple(same[0][1] for same in runs))


@dataclass(frozen=True)
class _Task:
    """The task of every sender, as plain data for other processes, which run the users' files only with these ``hashes``."""

    setting: Setting
    attack_flow_steps: int
    metrics: tuple[str | OwnMetric, ...]
    hashes: dict[FilePath, str]


def _index_senders(senders: Sequence[SenderLike]) -> dict[str, Sender | None]:
    """Return spec -> None, or name -> object for senders given as objects."""
    if isinstance(senders, (str, bytes)) or not isinstance(senders, Sequence):
        raise InputError(f"senders is {shown(senders)}; a list is needed, such as ['cubic', 'copa']")
    if not senders:
        raise InputError("no sender to compare; name at least one, such as cubic")
    by_spec: dict[str, Sender | None] = {}
    for sender_like in senders:
        sender = None if isinstance(sender_like, str) else as_sender(sender_like)
        spec = sender_like if isinstance(sender_like, str) else str(getattr(sender, "name", ""))
        if spec in by_spec:
            raise InputError(f"sender {spec!r} is given twice")
        by_spec[spec] = sender
    return by_spec


def _require_sender(spec: str) -> None:
    """Refuse what is no sender before anything runs; a fault in somebody's own code concerns only this sender."""
    try:
        if is_python_file(spec):
            hash_files([spec])
        elif not USER_SENDERS.is_user(spec):
            load_sender(spec)
    except MissingFileError as error:
        raise MissingFileError(f"sender {error}{'' if str(error).endswith('?') else '.'} {_SENDERS}") from None


def _jitter_s(network: str, jitter: str | float, rtt_s: float) -> float:
    if not network:
        if jitter != "":
            raise InputError(f"jitter is {shown(jitter)}; it is for an adversary: give network too")
        return 0.0
    if not isinstance(load_adversary(network), ScriptedAdversary):
        raise InputError(
            f"network {network!r} is not scripted; per packet a scripted adversary is needed (ccenv list adversaries)"
        )
    return rtt_s if jitter == "" else positive("jitter", jitter, SECONDS_OF_MS)


def _load_metrics(metrics: Sequence[str]) -> tuple[str | OwnMetric, ...]:
    if isinstance(metrics, (str, bytes)) or not isinstance(metrics, Sequence):
        raise InputError(f"metrics is {shown(metrics)}; a list is needed, such as ['power']")
    further = tuple(spec if spec in METRICS else load_metric(spec) for spec in metrics)
    for metric in further:
        run_metric(metric if isinstance(metric, str) else metric.name)
    return further


def _is_compiled(spec: str) -> bool:
    """Tell whether a spec names compiled functions of a user; a spec that cannot be loaded fails when it runs."""
    try:
        sender = load_sender(spec) if USER_SENDERS.is_user(spec) else None
    except CcenvError:
        return False
    return isinstance(sender, ClassicSender) and find_bridge(sender) is None


def _run_alone(task: _Task, spec: str, limit_s: float) -> tuple[Row, Result | None]:
    try:
        outcome: tuple[Row, Result | None] = Workers.one(_run, task, spec, limit_s=limit_s)
    except TimeoutError:
        return Row(spec, error=f"no result after {limit_s:g} s; does one of its compiled functions loop?"), None
    except CcenvError:
        return Row(spec, error="its process died"), None
    return outcome


def _run(task: _Task, spec: str, instance: Sender | None = None) -> tuple[Row, Result | None]:
    setting, name = task.setting, spec
    try:
        with held(task.hashes):
            sender = load_sender(spec) if instance is None else instance
            name = label_of(spec) or sender.name
            for metric in task.metrics:
                if isinstance(metric, OwnMetric):
                    require_metric(metric)
            result = simulate(setting.scenario(spec), senders={spec: sender})
            worst = _worst(sender, setting, task.attack_flow_steps) if task.attack_flow_steps else None
    except CcenvError as error:
        return Row(name, error=str(error)), None
    return _row(name, task, result, worst), result


def _row(name: str, task: _Task, result: Result, worst: float | None) -> Row:
    setting, summary = task.setting, result.summary()
    flows = summary["flows"][: setting.flows]
    rates = np.array([flow["throughput_mbps"] for flow in flows])
    sent = [flow for flow in flows if flow["loss"] is not None]
    first = int(np.searchsorted(result.time_s, result.scenario.warmup_s))
    waits_ms = 1e3 * result.link_log["queue_bytes"][first:, 0] / setting.rate_Bps
    fair_mbps = setting.rate_Bps / MBPS_IN_BPS / (setting.flows + 1)
    ends = result.flow_log[-1, : setting.flows]
    sent_bytes = float(ends["sent_bytes"].sum())
    rtts_s = [flow["rtt"] for flow in flows if flow["rtt"] is not None]
    return Row(
        name,
        throughput_mbps=float(rates.sum()),
        utilisation=summary["links"][0]["utilisation"],
        rtt_ms=1e3 * float(np.mean(rtts_s)) if rtts_s else None,
        queue_p95_ms=float(np.percentile(waits_ms, 95)) if waits_ms.size else None,
        loss=float(np.mean([flow["loss"] for flow in sent])) if sent else None,
        jain=jain(rates) if setting.flows > 1 and rates.any() else None,
        share=float(rates.mean() / fair_mbps) if setting.against else None,
        worst_utilisation=worst,
        total_mb=float(result.throughput_Bps()[:, : setting.flows].sum()) * result.scenario.log_s / 1e6,
        total_loss=float((ends["dropped_bytes"] + ends["random_lost_bytes"]).sum() / sent_bytes) if sent_bytes else None,
        metrics=_metrics(task, result),
    )


def _metrics(task: _Task, result: Result) -> dict[str, float | None]:
    """Return the further metrics of the sender's own flows, after the warm-up; None where one is undefined."""
    values: dict[str, float | None] = {}
    span = (result.scenario.warmup_s, result.scenario.duration_s)
    for metric in task.metrics:
        name = metric if isinstance(metric, str) else metric.name
        value = measure_run(result.measured(), name, [span], result.scenario.flows[0].sender)
        values[name] = None if math.isnan(value) else value
    return values


def _worst(sender: Sender, setting: Setting, flow_steps: int) -> float:
    from ccenv.attacks.run import attack

    path = make_path(
        link_rate_mbps=setting.rate_Bps / MBPS_IN_BPS,
        rtt_ms=1e3 * setting.rtt_s,
        jitter_ms=1e3 * setting.rtt_s,
        buffer_bdp=setting.buffer_bytes / (setting.rate_Bps * setting.rtt_s),
    )
    return attack(sender, path=path, model="ccac", budget_flow_steps=flow_steps, seed=setting.seed).worst_utilisation


WARMUP_SHARE = 0.25  # of the run, left out of the averages
# Columns of the table: key, heading.
COLUMNS = (
    ("throughput_mbps", "throughput (Mbit/s)"),
    ("utilisation", "utilisation"),
    ("rtt_ms", "mean RTT (ms)"),
    ("queue_p95_ms", "queue, 95 % (ms)"),
    ("loss", "loss"),
    ("jain", "Jain"),
    ("share", "share of fair"),
    ("worst_utilisation", "worst case"),
    ("total_mb", "whole run: MB"),
    ("total_loss", "whole run: loss"),
)


@dataclass(frozen=True)
class Setting:
    """The network on which senders are compared."""

    rate_Bps: float
    rtt_s: float  # propagation RTT of all flows
    buffer_bytes: float  # of the link, drop-tail; infinite: nothing is dropped
    flows: int = 1  # of the sender that is measured
    against: str = ""  # one more flow of this sender; empty: none
    loss_rate: float = 0.0  # share of packets lost at random
    duration_s: float = 30.0  # length of a run; its first quarter is left out of the averages
    seed: int = 0  # of all random numbers; of the first run where there are several
    network: str = ""  # adversary that holds packets behind the link, for at most jitter_s; empty: none
    jitter_s: float = 0.0  # D of its jitter box
    seeds: int = 1  # runs of each sender, with this seed and the following ones

    @property
    def warmup_s(self) -> float:
        """Start of the run that averages leave out."""
        return WARMUP_SHARE * self.duration_s

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"warmup_s": self.warmup_s, "phase_jitter": self.phase_jitter}

    @property
    def phase_jitter(self) -> float:
        """By how many service times a packet is late at most, of one flow too (``Scenario.phase_jitter``): 0 with a network."""
        return 0.0 if self.network else PHASE_JITTER

    def scenario(self, spec: str) -> dict[str, Any]:
        """Return the scenario (``ccenv.simulation.read_scenario``) in which a sender runs."""
        flow: dict[str, Any] = {"rtt_s": self.rtt_s, "loss_rate": self.loss_rate}
        flow["jitter"] = {"kind": "uniform", "max_s": self.phase_jitter * DEFAULT_MSS_BYTES / self.rate_Bps}
        if self.network:
            flow["jitter"] = {"kind": "adversary", "adversary": self.network, "max_s": self.jitter_s}
        flows = [{**flow, "sender": spec} for _ in range(self.flows)]
        flows += [{**flow, "sender": self.against, "name": f"against {self.against}"}] if self.against else []
        link = {"rate_Bps": self.rate_Bps, "buffer_bytes": self.buffer_bytes}
        run = {"duration_s": self.duration_s, "warmup_s": self.warmup_s, "seed": self.seed}
        return {"name": spec, "links": [link], "flows": flows, **run}

    def __str__(self) -> str:
        bdp = self.buffer_bytes / (self.rate_Bps * self.rtt_s)
        parts = [f"{self.rate_Bps / MBPS_IN_BPS:g} Mbit/s", f"{1e3 * self.rtt_s:g} ms", f"buffer {bdp:.3g} BDP"]
        parts += [f"{self.flows} flows each"] if self.flows > 1 else []
        parts += [f"against {self.against}"] if self.against else []
        parts += [f"{100 * self.loss_rate:g} % loss"] if self.loss_rate else []
        parts += [f"packets up to {self.phase_jitter:g} service times late"] if self.phase_jitter else []
        parts += [f"network {self.network}, D {1e3 * self.jitter_s:g} ms"] if self.network else []
        parts += [f"{self.duration_s:g} s (averages without the first {self.warmup_s:g} s)"]
        return ", ".join([*parts, *([f"{self.seeds} seeds"] if self.seeds > 1 else [])])


@dataclass(frozen=True)
class Row:
    """Results of one sender, after the warm-up unless stated otherwise.

    With several seeds the values are interquartile means over the runs (:mod:`ccenv.benchmarks.statistics`).
    """

    sender: str
    throughput_mbps: float | None = None  # of all its flows together
    utilisation: float | None = None  # of the link, by all flows
    rtt_ms: float | None = None  # mean over its ACKs
    queue_p95_ms: float | None = None  # 95th percentile over time of the time that a new packet waits
    loss: float | None = None  # share of its packets that were lost
    jain: float | None = None  # Jain's index of its flows; None for one flow
    share: float | None = None  # its throughput per flow over the fair share of a flow; None without `against`
    # lowest utilisation found by an attack on the legal networks of CCAC; None: not requested
    worst_utilisation: float | None = None
    total_mb: float | None = None  # bytes of its flows that arrived in the whole run, in MB
    total_loss: float | None = None  # share of its packets that were lost in the whole run
    metrics: dict[str, float | None] = field(default_factory=dict)  # further metrics by name; None: undefined
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)  # with several seeds, the 95 % interval of each value
    error: str = ""  # why the sender failed; the other fields are then None

    def value(self, key: str) -> float | None:
        """Return the value of a column: a field or a further metric."""
        value: float | None = self.metrics[key] if key in self.metrics else getattr(self, key, None)
        return value

    def text(self, key: str) -> str:
        """Return a value with its interval; empty where it is undefined."""
        value, interval = self.value(key), self.intervals.get(key)
        return "" if value is None else f"{value:.4g}" + (" [{:.4g}, {:.4g}]".format(*interval) if interval else "")


def merge_rows(rows: Sequence[Row]) -> Row:
    """Merge the rows of a sender's runs: the first failed one, or estimates over all."""
    failed = [row for row in rows if row.error]
    if failed or len(rows) == 1:
        return (failed or rows)[0]
    from ccenv.benchmarks.statistics import estimate

    values: dict[str, Any] = {}
    intervals: dict[str, tuple[float, float]] = {}
    for key in [*(key for key, _ in COLUMNS), *rows[0].metrics]:
        runs = [value for row in rows if (value := row.value(key)) is not None]
        values[key] = None
        if runs:
            estimated = estimate([runs])
            values[key] = estimated.iqm
            if len(runs) > 1:
                intervals[key] = (estimated.low, estimated.high)
    metrics = {name: values.pop(name) for name in rows[0].metrics}
    return replace(rows[0], **values, metrics=metrics, intervals=intervals)


SIZE_IN = (4.6, 6.2)  # letters of 8 points are then readable on a phone
DASHES = ("-", "--", ":", "-.")
RATE_POINTS = 120
ALLOWED = (*SUFFIXES, ".pdf")


def draw(setting: Setting, rows: Sequence[Row], results: Sequence[Result | None]) -> Figure:
    from matplotlib import rc_context

    with rc_context({"font.size": 8, "pdf.fonttype": 42}):
        figure, (rate, queue, lost) = panels(3, 1, SIZE_IN, sharex=True)
        for row, result, dashes in zip(rows, results, itertools.cycle(DASHES), strict=False):
            if result is None:
                continue
            flows = slice(0, setting.flows)
            time_s, log = result.time_s, result.flow_log
            rates_mbps = result.throughput_Bps()[:, flows].sum(axis=1) / MBPS_IN_BPS
            rate.plot(*thin(time_s[1:], rates_mbps, RATE_POINTS), linestyle=dashes, label=row.sender, linewidth=1.1)
            queue.plot(
                *thin(time_s, 1e3 * result.link_log["queue_bytes"][:, 0] / setting.rate_Bps), linestyle=dashes, linewidth=1.1
            )
            dropped = (log["dropped_bytes"] + log["random_lost_bytes"])[:, flows].sum(axis=1)
            lost.plot(*thin(time_s, dropped / result.scenario.mss_bytes), linestyle=dashes, linewidth=1.1)
        rate.axhline(setting.rate_Bps / MBPS_IN_BPS, color="black", linewidth=0.6, linestyle=":")
        labels = ("throughput (Mbit/s)", "queue (ms)", "lost so far (packets)")
        for axis, label in zip((rate, queue, lost), labels, strict=True):
            finish(axis, y=label, zero=True)
            axis.axvspan(0, setting.warmup_s, color="black", alpha=0.06)  # left out of the averages
        lost.set_xlim(0, setting.duration_s if np.isfinite(setting.duration_s) else None)
        lost.set_xlabel("time (s)")
        rate.set_title(textwrap.fill(str(setting), 64), fontsize=8)
        if any(result is not None for result in results):
            figure.legend(*rate.get_legend_handles_labels(), loc="outside upper center", ncols=min(3, len(rows)), frameon=False)
    return figure
