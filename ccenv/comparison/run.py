"""Run several senders, one after the other or in several processes, each on the same network."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ccenv.agents.files import load_sender
from ccenv.comparison.picture import ALLOWED, draw
from ccenv.comparison.table import COLUMNS, Row, Setting
from ccenv.errors import CcenvError, InputError, require_extra
from ccenv.files import write_atomic
from ccenv.metrics.measures import jain
from ccenv.network.path import DEFAULT_MSS_BYTES, MBPS_IN_BPS, make_path
from ccenv.network.plots import picture, require_picture
from ccenv.simulation import Result, simulate
from ccenv.units import MBPS, SECONDS, SECONDS_OF_MS, buffer_units, positive
from ccenv.workers import Workers

DPI = 150
LEGAL = "legal"
ATTACK_FLOW_STEPS = 4_000_000
MOST_FLOWS = 64


@dataclass(frozen=True)
class Comparison:
    """The outcome of :func:`compare`.

    Attributes:
        setting: the network.
        rows: one per sender, in their order.
        results: the runs, None for a sender that failed.
    """

    setting: Setting
    rows: tuple[Row, ...]
    results: tuple[Result | None, ...] = field(repr=False)

    def __repr__(self) -> str:
        """Return one line."""
        return f"Comparison({', '.join(row.sender for row in self.rows)} on {self.setting})"

    @cached_property
    def columns(self) -> list[tuple[str, str]]:
        """The columns that hold something: (key, heading)."""
        return [(key, title) for key, title in COLUMNS if any(getattr(row, key) is not None for row in self.rows)]

    def to_dict(self) -> dict[str, Any]:
        """Return the setting and the rows as plain data."""
        return {"setting": asdict(self.setting), "senders": [asdict(row) for row in self.rows]}

    def to_frame(self) -> Any:
        """Return the rows as a ``pandas.DataFrame`` with the senders as index. Raises MissingExtraError without pandas."""
        require_extra("pandas", "bench")
        import pandas

        kept = [key for key, _ in self.columns] + (["error"] if any(row.error for row in self.rows) else [])
        data = {key: [getattr(row, key) for row in self.rows] for key in kept}
        return pandas.DataFrame(data, index=pandas.Index([row.sender for row in self.rows], name="sender"))

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw rate, queue and loss of all senders over time into a .png, .svg or .pdf file."""
        target = require_picture(path, ALLOWED)
        write_atomic(target, picture(draw(self.setting, self.rows, self.results), target.suffix, DPI))

    def _repr_html_(self) -> str:
        """Show the table and the picture in a notebook."""
        drawn = picture(draw(self.setting, self.rows, self.results), ".svg").decode()
        head = "".join(f"<th>{html.escape(title)}</th>" for _, title in self.columns)
        body = "".join(
            f"<tr><th>{html.escape(row.sender)}</th>"
            + "".join(f"<td>{_shown(getattr(row, key))}</td>" for key, _ in self.columns)
            + "</tr>"
            for row in self.rows
        )
        table = f"<table><caption>{html.escape(str(self.setting))}</caption><tr><th></th>{head}</tr>{body}</table>"
        return f"<div>{table}{drawn[drawn.index('<svg') :]}</div>"


def compare(
    senders: Sequence[str],
    *,
    rate: str | float = "48mbps",
    rtt: str | float = "40ms",
    buffer: str | float = "1bdp",
    flows: int = 1,
    against: str = "",
    loss_rate: float = 0.0,
    duration: str | float = "30s",
    seed: int = 0,
    adversary: str = "",
    attack_flow_steps: int = ATTACK_FLOW_STEPS,
    jobs: int = 1,
    report: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Run each sender on the same network, packet by packet.

    Args:
        senders: registered names, programs, policies or Python files (``ccenv.agents.files.load_sender``).
        rate: of the link: ``"50mbps"``; a number is in Mbit/s.
        rtt: propagation RTT: ``"40ms"``; a number is in ms.
        buffer: ``"1bdp"``, ``"100packets"``, ``"250kB"``; a number is in bandwidth-delay products.
        flows: of each sender.
        against: add one flow of this sender to every run.
        loss_rate: share of packets lost at random, in [0, 1).
        duration: of a run: ``"30s"``; a number is in seconds.
        seed: of all random numbers.
        adversary: ``"legal"``: also attack each sender on CCAC with this path and D = Rm, and show its worst case.
        attack_flow_steps: budget of each attack.
        jobs: senders at a time, each in a process of its own.
        report: called with the numbers of finished and of all senders.

    Returns:
        Comparison: rows and runs. A sender that fails has a row that says why; the others run on.

    Raises:
        InputError: for a network that cannot be, no sender, or one sender twice.
    """
    if not senders:
        raise InputError("no sender to compare; name at least one, such as cubic")
    twice = [spec for spec in senders if list(senders).count(spec) > 1]
    if twice:
        raise InputError(f"sender {twice[0]!r} is given twice")
    if not 1 <= flows <= MOST_FLOWS:
        raise InputError(f"flows is {flows}; it must be 1 to {MOST_FLOWS}")
    if not 0 <= loss_rate < 1:
        raise InputError(f"loss_rate is {loss_rate:g}; it must be at least 0 and below 1")
    if adversary not in ("", LEGAL):
        raise InputError(f"adversary is {adversary!r}; {LEGAL!r} is allowed")
    if against:
        load_sender(against)
    link_Bps, rtt_s = positive("rate", rate, MBPS) * MBPS_IN_BPS, positive("rtt", rtt, SECONDS_OF_MS)
    room_bytes = positive("buffer", buffer, buffer_units(link_Bps * rtt_s, DEFAULT_MSS_BYTES))
    setting = Setting(link_Bps, rtt_s, room_bytes, flows, against, loss_rate, positive("duration", duration, SECONDS), seed)
    steps = attack_flow_steps if adversary else 0
    with Workers(jobs) as workers:
        waiting = [workers.submit(_run, spec, setting, steps) for spec in senders]
        found = []
        for done, result in enumerate(waiting, 1):
            found.append(result())
            if report is not None:
                report(done, len(senders))
    return Comparison(setting, tuple(row for row, _ in found), tuple(run for _, run in found))


def _run(spec: str, setting: Setting, attack_flow_steps: int) -> tuple[Row, Result | None]:
    try:
        name = load_sender(spec).name
    except CcenvError as error:
        return Row(spec, error=str(error)), None
    try:
        result = simulate(setting.scenario(spec))
        worst = _worst(spec, setting, attack_flow_steps) if attack_flow_steps else None
    except CcenvError as error:
        return Row(name, error=str(error)), None
    return _row(name, setting, result, worst), result


def _row(name: str, setting: Setting, result: Result, worst: float | None) -> Row:
    summary = result.summary()
    own = summary["flows"][: setting.flows]
    rates = np.array([flow["throughput_mbps"] for flow in own])
    sent = [flow for flow in own if flow["loss"] is not None]
    first = int(np.searchsorted(result.time_s, result.scenario.warmup_s))
    waits_ms = 1e3 * result.link_log["queue_bytes"][first:, 0] / setting.rate_Bps
    fair_mbps = setting.rate_Bps / MBPS_IN_BPS / (setting.flows + 1)
    heard = [flow["rtt"] for flow in own if flow["rtt"] is not None]
    return Row(
        name,
        throughput_mbps=float(rates.sum()),
        utilisation=summary["links"][0]["utilisation"],
        rtt_ms=1e3 * float(np.mean(heard)) if heard else None,
        queue_p95_ms=float(np.percentile(waits_ms, 95)),
        loss=float(np.mean([flow["loss"] for flow in sent])) if sent else None,
        jain=jain(rates) if setting.flows > 1 and rates.any() else None,
        share=float(rates.mean() / fair_mbps) if setting.against else None,
        worst_utilisation=worst,
    )


def _worst(spec: str, setting: Setting, flow_steps: int) -> float:
    from ccenv.attack import attack

    path = make_path(
        link_rate_mbps=setting.rate_Bps / MBPS_IN_BPS,
        rtt_ms=1e3 * setting.rtt_s,
        jitter_ms=1e3 * setting.rtt_s,
        buffer_bdp=setting.buffer_bytes / (setting.rate_Bps * setting.rtt_s),
    )
    return attack(spec, path=path, model="ccac", budget_flow_steps=flow_steps, seed=setting.seed).worst_utilisation


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
