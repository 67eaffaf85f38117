"""Which sender for which network: senders ranked with intervals on the network classes of the suite ``networks``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import InputError, unknown_name
from ccenv.benchmarks.run.runner import run_suite
from ccenv.benchmarks.statistics import Estimate, estimate
from ccenv.benchmarks.store import load_cells
from ccenv.benchmarks.suite.base import SuiteBase
from ccenv.benchmarks.suite.curve import load_suite
from ccenv.benchmarks.suite.packet import PacketSuite

SUITE = "networks"
FOLDER = FilePath("runs") / "which"


@dataclass(frozen=True)
class Choice:
    """One sender on one network class.

    Attributes:
        values: metric -> interquartile mean over the drawn networks with its 95 % interval; None: undefined in all.
        place: 1 + the number of senders whose interval lies wholly on the better side of this one's; equal places are a tie.
    """

    sender: str
    network: str
    values: dict[str, Estimate | None]
    place: int = 1

    def texts(self) -> list[str]:
        """Return the values as ``mean [low, high]``; empty where undefined."""
        return [f"{v.iqm:.3g} [{v.low:.3g}, {v.high:.3g}]" if v else "" for v in self.values.values()]


@dataclass(frozen=True)
class Choices:
    """The result of :func:`which`: the senders of each network class, best first; ``failed`` has why the user's own failed."""

    rows: tuple[Choice, ...]
    by: str
    failed: dict[str, str]

    def __repr__(self) -> str:
        best = {network: " = ".join(self.best(network)) for network in dict.fromkeys(row.network for row in self.rows)}
        return f"Choices(best by {self.by}: " + ", ".join(f"{names} on {network}" for network, names in best.items()) + ")"

    def best(self, network: str) -> list[str]:
        """Return the senders in first place on a network class; several are a tie."""
        return [row.sender for row in self.rows if row.network == network and row.place == 1]


def networks() -> dict[str, str]:
    return {scenario.name: scenario.summary for scenario in _suite().scenarios}


def which(
    network: str = "",
    *,
    senders: Sequence[str] = (),
    by: str = "power",
    out: FilePath = FOLDER,
    jobs: int | None = None,
    fresh: bool = False,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Choices:
    """Rank the senders on a network class (empty: all), drawn by five seeds; stored runs are reused.

    ``senders`` are further ones, names or Python files; ``by`` is the metric of the ranking; ``jobs`` None: one per core;
    ``report`` gets the numbers of finished and of all runs. Raises UnknownNameError for an unknown network class, sender or
    metric.
    """
    suite, summaries = _suite(), networks()
    if network and network not in summaries:
        raise unknown_name("kind of network", network, summaries)
    if by not in suite.metrics:
        raise unknown_name("metric of this suite", by, suite.metrics)
    only = [f"{network}/*"] if network else []
    manifest = run_suite(
        suite,
        out,
        extra_agents=senders,
        only=only,
        backend="processes",
        workers=jobs,
        fresh=fresh,
        pictures=False,
        progress=report,
    )
    records = load_cells(out)
    names = [network] if network else list(summaries)
    rows = [row for name in names for row in _rank_senders(suite, name, [r for r in records if r["scenario"] == name], by)]
    return Choices(tuple(rows), by, {one["agent"]: one["error"] for one in manifest["failed"]})


def _rank_senders(suite: SuiteBase, network: str, records: list[dict[str, Any]], by: str) -> list[Choice]:
    sign = suite.measure(by).sign

    def estimated(agent: str, metric: str) -> Estimate | None:
        values = [r["metrics"][metric] for r in records if r["agent"] == agent and r["metrics"].get(metric) is not None]
        return estimate([values]) if values else None

    agents = dict.fromkeys(record["agent"] for record in records)
    rows = [Choice(agent, network, {metric: estimated(agent, metric) for metric in suite.metrics}) for agent in agents]

    def key(row: Choice) -> tuple[bool, float, str]:
        value = row.values[by]
        return (value is None, 0.0 if value is None else -sign * value.iqm, row.sender)

    def place(row: Choice) -> int:
        value, others = row.values[by], [other for one in rows if (other := one.values[by]) is not None]
        if value is None:
            return 1 + len(others)
        return 1 + sum(other.low > value.high if sign > 0 else other.high < value.low for other in others)

    return [replace(row, place=place(row)) for row in sorted(rows, key=key)]


def _suite() -> PacketSuite:
    suite = load_suite(SUITE)
    if not isinstance(suite, PacketSuite):
        raise InputError(f"suite {SUITE!r} is not of the packet engine")
    return suite
