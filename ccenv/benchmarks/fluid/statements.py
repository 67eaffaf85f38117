"""The statements of [BBR-fluid] section 4.3 about the validation, each as a check on the cells of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Cells = Sequence[dict[str, Any]]
Check = Callable[["Table"], tuple[bool, str]]

DT, RED = "drop-tail", "red"
ALL = (1, 2, 3, 4, 5, 6, 7)
SHALLOW = (1, 2, 3, 4)
DEEP = (5, 6, 7)
LOSS_SENSITIVE = ("bbr2", "bbr2/reno", "bbr2/cubic", "reno", "cubic")
WITH_BBR1 = ("bbr1", "bbr1/reno", "bbr1/cubic", "bbr1/bbr2")


class Table:
    """Cells of the validation sweep, looked up by mix, discipline and buffer."""

    def __init__(self, cells: Cells) -> None:
        """Index the cells."""
        self._cells = {(c["mix"], c["discipline"], float(c["buffer_bdp"])): c for c in cells}

    def values(self, metric: str, mixes: str | Iterable[str], discipline: str, buffers: Iterable[float]) -> list[float]:
        """Return one metric over mixes and buffers, mix by mix.

        Raises:
            KeyError: for a cell that the sweep does not have.
        """
        names = (mixes,) if isinstance(mixes, str) else mixes
        return [self._cells[mix, discipline, float(b)][metric] for mix in names for b in buffers]


@dataclass(frozen=True)
class Statement:
    """A statement of the paper with its check.

    Attributes:
        source: section or insight of [BBR-fluid].
        text: the statement, paraphrased.
        criterion: when it holds, in numbers.
        check: returns (holds, text of the measured values).
    """

    source: str
    text: str
    criterion: str
    check: Check


def _format_range(values: Sequence[float], unit: str = "") -> str:
    return f"{min(values):.2f} to {max(values):.2f}{unit}"


def _require_range(metric: str, mixes: str | Iterable[str], cells: tuple[str, tuple[int, ...]], low: float, high: float) -> Check:
    def check(table: Table) -> tuple[bool, str]:
        values = table.values(metric, mixes, *cells)
        return all(low <= v <= high for v in values), _format_range(values)

    return check


def _require_flat(metric: str, mixes: Iterable[str], points: float) -> Check:
    def check(table: Table) -> tuple[bool, str]:
        ranges = {m: max(v := table.values(metric, m, "red", ALL)) - min(v) for m in mixes}
        worst = max(ranges, key=lambda m: ranges[m])
        return ranges[worst] <= points, f"largest range over the buffers {ranges[worst]:.2f} ({worst})"

    return check


def _loss_falls(table: Table) -> tuple[bool, str]:
    loss = table.values("loss_pct", "bbr1", "drop-tail", ALL)
    return all(b <= a + 0.1 for a, b in pairwise(loss)), ", ".join(f"{v:.1f}" for v in loss)


def _bbr2_minimum(table: Table) -> tuple[bool, str]:
    occupancies = table.values("occupancy_pct", "bbr2", "drop-tail", ALL)
    lowest_bdp = occupancies.index(min(occupancies)) + 1
    return lowest_bdp in {3, 4, 5} and occupancies[6] >= 1.5 * min(occupancies), "minimum at {} BDP; {}".format(
        lowest_bdp, ", ".join(f"{v:.0f}" for v in occupancies)
    )


def _bbr2_constant(table: Table) -> tuple[bool, str]:
    volumes_bdp = [b * v / 100 for b, v in zip(SHALLOW, table.values("occupancy_pct", "bbr2", "drop-tail", SHALLOW), strict=True)]
    return max(volumes_bdp[1:]) <= 1.2 * min(volumes_bdp[1:]), ", ".join(f"{v:.2f}" for v in volumes_bdp) + " BDP at 1 to 4 BDP"


def _bbr2_fairer(table: Table) -> tuple[bool, str]:
    gains = [
        table.values("jain", f"bbr2/{other}", "drop-tail", (b,))[0] - table.values("jain", f"bbr1/{other}", "drop-tail", (b,))[0]
        for other in ("reno", "cubic")
        for b in SHALLOW
    ]
    return min(gains) > 0.2, f"Jain higher by {_format_range(gains)}"


def _bbr2_least_used(table: Table) -> tuple[bool, str]:
    pure = ("bbr1", "bbr2", "reno", "cubic")
    mean = {m: sum(table.values("utilisation_pct", m, "drop-tail", ALL)) / len(ALL) for m in pure}
    worst = min(mean, key=lambda m: mean[m])
    return worst == "bbr2" and 97.0 <= mean["bbr2"] <= 99.5, "; ".join(f"{m} {v:.1f}" for m, v in mean.items())


def _bbr1_full(table: Table) -> tuple[bool, str]:
    utilisations = [v for discipline in (DT, RED) for v in table.values("utilisation_pct", WITH_BBR1, discipline, ALL)]
    return min(utilisations) >= 99.0, _format_range(utilisations, " %")


def _rtt_unfairness(table: Table) -> tuple[bool, str]:
    jain = table.values("jain", "bbr1", "drop-tail", ALL)
    return jain[6] < jain[0] - 0.1, ", ".join(f"{v:.2f}" for v in jain)


STATEMENTS: tuple[Statement, ...] = (
    Statement("4.3.2", "BBRv1 loses about 20 % in shallow drop-tail buffers", "loss 17 to 22 % at 1 and 2 BDP",
              _require_range("loss_pct", "bbr1", (DT, (1, 2)), 17, 22)),
    Statement("4.3.2", "BBRv1's loss falls with the drop-tail buffer", "never rises by more than 0.1 points", _loss_falls),
    Statement("4.3.2", "BBRv1's loss is gone in deep drop-tail buffers", "loss below 0.1 % from 5 BDP on",
              _require_range("loss_pct", "bbr1", (DT, DEEP), 0, 0.1)),
    Statement("4.3.2", "Loss-sensitive CCAs and their mixes lose less than 1 % under drop-tail", "loss below 1 %",
              _require_range("loss_pct", LOSS_SENSITIVE, (DT, ALL), 0, 1)),
    Statement("4.3.2", "Reno and CUBIC alone lose very little under drop-tail", "loss below 0.3 %",
              _require_range("loss_pct", ("reno", "cubic"), (DT, ALL), 0, 0.3)),
    Statement("4.3.2", "RED keeps loss nearly the same for every buffer", "range of at most 1.5 points for every mix",
              _require_flat("loss_pct", WITH_BBR1 + LOSS_SENSITIVE, 1.5)),
    Statement("4.3.2", "BBRv1 keeps losing about 20 % under RED", "loss 17 to 22 % for every buffer",
              _require_range("loss_pct", "bbr1", (RED, ALL), 17, 22)),
    Statement("4.3.1, insight 2", "BBRv1 starves Reno and CUBIC in drop-tail buffers up to 4 BDP", "Jain at most 0.6",
              _require_range("jain", ("bbr1/reno", "bbr1/cubic"), (DT, SHALLOW), 0, 0.6)),
    Statement("4.3.1, insight 2", "... and relents in deeper ones", "Jain above 0.7 from 5 BDP on",
              _require_range("jain", ("bbr1/reno", "bbr1/cubic"), (DT, DEEP), 0.7, 1)),
    Statement("4.3.1, insight 2", "Under RED BBRv1 starves Reno and CUBIC at any buffer", "Jain at most 0.6",
              _require_range("jain", ("bbr1/reno", "bbr1/cubic"), (RED, ALL), 0, 0.6)),
    Statement("4.3.1", "BBRv1 flows become unfair to each other in deep drop-tail buffers (model only)",
              "Jain at 7 BDP at least 0.1 below that at 1 BDP", _rtt_unfairness),
    Statement("4.3.1, insight 4", "BBRv2 is fairer to Reno and CUBIC than BBRv1 up to 4 BDP of drop-tail buffer",
              "Jain higher by more than 0.2", _bbr2_fairer),
    Statement("4.3.1, insight 6", "Under RED BBRv2 takes more than its share from Reno and CUBIC",
              "BBRv2's half above 50 % of the rate",
              _require_range("first_share_pct", ("bbr2/reno", "bbr2/cubic"), (RED, ALL), 50, 100)),
    Statement("4.3.3, insight 3", "BBRv1 fills most of a drop-tail buffer of any size", "occupancy at least 50 %",
              _require_range("occupancy_pct", "bbr1", (DT, ALL), 50, 100)),
    Statement("4.3.3", "BBRv2 uses a constant volume of drop-tail buffer up to 4 BDP", "2 to 4 BDP within 20 %", _bbr2_constant),
    Statement("4.3.3, insight 5", "BBRv2's occupancy falls to about 4 BDP and rises beyond",
              "minimum at 3 to 5 BDP, at 7 BDP at least 1.5 times it", _bbr2_minimum),
    Statement("4.3.4, insight 3", "BBRv1 and its mixes use the whole link", "utilisation at least 99 %",
              _bbr1_full),
    Statement("4.3.4", "BBRv2 uses the link least of all under drop-tail, for its ProbeRTT, but wastes 3 % at most",
              "lowest mean of the four CCAs, 97 to 99.5 %", _bbr2_least_used),
)  # fmt: skip


def judge(cells: Cells) -> list[dict[str, Any]]:
    """Check every statement on the cells of the validation sweep.

    Returns:
        One dictionary for each statement: source, text, criterion, holds, measured.

    Raises:
        KeyError: if a cell is missing.
    """
    table = Table(cells)
    out = []
    for s in STATEMENTS:
        holds, measured = s.check(table)
        out.append({"source": s.source, "text": s.text, "criterion": s.criterion, "holds": holds, "measured": measured})
    return out
