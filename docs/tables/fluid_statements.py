"""The validation of the fluid model as one self-contained HTML page beside the paper's statements and the packet engine.

Also tables that compare parameter sets: the 18 statements for each set, and distances to the published numbers.
The statements are those of [BBR-fluid] section 4.3, each a check on the cells of a sweep.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

from ccenv.base.errors import InputError
from ccenv.base.figure import picture
from ccenv.base.foreign import read_json
from ccenv.base.provenance import VERSION
from ccenv.benchmarks.fluid_plots import metric_figure, mix_label, phase_figure, trace_figure
from ccenv.engine.fluid.analysis.equilibria import Bottleneck, equilibrium
from ccenv.engine.fluid.parameters import PARAMETER_SETS
from ccenv.engine.fluid.simulate import Run
from ccenv.engine.fluid.sweep import Sweep
from ccenv.network.metrics.table import FLUID_METRICS, METRICS
from tables.fluid_packets import RED_WEIGHT, compare

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
        self._cells = {(c["mix"], c["discipline"], float(c["buffer_bdp"])): c for c in cells}

    def values(self, metric: str, mixes: str | Iterable[str], discipline: str, buffers: Iterable[float]) -> list[float]:
        """Return one metric over mixes and buffers, mix by mix. Raises KeyError for a cell that the sweep does not have."""
        names = (mixes,) if isinstance(mixes, str) else mixes
        return [self._cells[mix, discipline, float(b)][metric] for mix in names for b in buffers]


@dataclass(frozen=True)
class Statement:
    """A paraphrased statement of a section of [BBR-fluid], and the check that returns (holds, measured values in words)."""

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
    """Check every statement on the cells of the validation sweep: source, text, criterion, holds, measured. Raises KeyError."""
    table = Table(cells)
    out = []
    for s in STATEMENTS:
        holds, measured = s.check(table)
        out.append({"source": s.source, "text": s.text, "criterion": s.criterion, "holds": holds, "measured": measured})
    return out


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 14px; }
th, td { border: 1px solid #bbb; padding: .25rem .6rem; text-align: left; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
.yes { background: #e2f2e2; } .no { background: #f8dcdc; }
img { max-width: 100%; }
@media (prefers-color-scheme: dark) {
  body { background: #1b1b1b; color: #ddd; } .yes { background: #1f3d1f; } .no { background: #4a1f1f; } img { background: #fff; }
}
"""


def report_html(
    sweep: Sweep,
    cells: Sequence[dict[str, Any]],
    packets: Sequence[dict[str, Any]] = (),
    traces: Sequence[Run] = (),
    portraits: Sequence[Any] = (),
) -> str:
    """Return the page as text; equal input makes equal bytes. ``packets`` are of packet_cells, ``traces`` runs with traces."""
    parts = [
        f"<h1>{html.escape(sweep.title or 'Fluid-model sweep')}</h1>",
        f"<p>Fluid models of [BBR-fluid] as implemented in ccenv {VERSION}. {html.escape(_setting(sweep))}.</p>",
        f"<p>{_columns(packets)}</p>",
        "<h2>Statements of the paper</h2>",
        _statements(cells, packets),
        *(["<h2>Fluid model against packet engine</h2>", _differences(cells, packets)] if packets else []),
        "<h2>Equilibria of the reduced models</h2>",
        _equilibria(sweep, cells),
        "<h2>Metrics over the buffer size</h2>",
        *(_image(metric_figure(cells, name, packets), METRICS[name].axis) for name in FLUID_METRICS),
    ]
    if traces:
        parts += ["<h2>Traces</h2>", *(_image(trace_figure([run]), run.scenario.title) for run in traces)]
    if portraits:
        parts += ["<h2>Phase portraits of the reduced models</h2>"]
        parts += [_image(phase_figure(p), f"phase portrait of {p.model}, plane {p.plane}") for p in portraits]
    parts += ["<h2>All cells</h2>", _cells(cells, packets)]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(sweep.title or 'Fluid-model sweep')}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _setting(sweep: Sweep) -> str:
    shortest, longest = (2 * (sweep.delay_ms + bound(sweep.access_delays_ms)) for bound in (min, max))
    text = (
        f"N = {len(sweep.access_delays_ms)} senders, {sweep.rate_mbps:g} Mbit/s, bottleneck delay {sweep.delay_ms:g} ms, "
        f"propagation RTT {shortest:g} to {longest:g} ms, packets of {sweep.mss_bytes} B, metrics over {sweep.measure_from_s:g} "
        f"to {sweep.duration_s:g} s, step {sweep.step_ms:g} ms, parameter set {sweep.params}"
    )
    changed = ", ".join(f"{key} = {value:g}" for key, value in sweep.overrides.items())
    return f"{text} with {changed}" if changed else text


def _row(*cells: Any) -> str:
    """Return a table row; numbers come formatted, as text that starts with a digit or a minus."""
    numeric = [str(cell).removeprefix("-").replace(".", "", 1).isdigit() for cell in cells]
    texts = [f"<td{' class=n' if n else ''}>{html.escape(str(cell))}</td>" for cell, n in zip(cells, numeric, strict=True)]
    return f"<tr>{''.join(texts)}</tr>"


def _columns(packets: Sequence[dict[str, Any]]) -> str:
    if not packets:
        return "Columns: the paper's statement and the fluid model. The packet engine was not run for this page."
    return (
        "Columns: the paper's statement, the fluid model, and the packet engine "
        f"(mean of {packets[0]['runs']} runs that differ in when the flows start). The packet engine has start-up, windows of "
        "whole packets and loss recovery; its RED drops by the same thresholds, but on ns-2's averaged queue "
        f"(weight {RED_WEIGHT:g})."
    )


def _statements(cells: Sequence[dict[str, Any]], packets: Sequence[dict[str, Any]]) -> str:
    try:
        engines = [("fluid model", judge(cells))] + ([("packet engine", judge(packets))] if packets else [])
    except KeyError:
        return "<p>Not shown: the statements need all mixes, both disciplines and buffers of 1 to 7 BDP.</p>"
    head = "<th>section</th><th>the paper says</th><th>criterion</th>"
    head += "".join(f"<th>{name}</th><th>holds</th>" for name, _ in engines)
    rows = []
    for results in zip(*(judgements for _, judgements in engines), strict=True):
        first = results[0]
        measured = [value for r in results for value in (r["measured"], "yes" if r["holds"] else "no")]
        rows.append(_row(first["source"], first["text"], first["criterion"], *measured))
    rows = [r.replace("<td>yes<", "<td class=yes>yes<").replace("<td>no<", "<td class=no>no<") for r in rows]
    counts = "; ".join(f"{name}: {sum(r['holds'] for r in judgements)} of {len(judgements)} hold" for name, judgements in engines)
    return _table(head, rows) + f"<p>{counts}.</p>"


def _differences(cells: Sequence[dict[str, Any]], packets: Sequence[dict[str, Any]]) -> str:
    rows = []
    for row in compare(cells, packets):
        correlation = row["rank_correlation"]
        rows.append(
            _row(
                METRICS[row["metric"]].axis,
                f"{row['mean_difference']:.3f}",
                f"{row['largest_difference']:.3f}",
                row["at"],
                "constant" if correlation is None else f"{correlation:.2f}",
            )
        )
    head = "<th>metric</th><th>mean difference</th><th>largest</th><th>at</th><th>rank correlation over the cells</th>"
    return _table(head, rows)


def _equilibria(sweep: Sweep, cells: Sequence[dict[str, Any]]) -> str:
    n = len(sweep.access_delays_ms)
    c = sweep.rate_mbps * 125_000.0
    d = 2e-3 * (sweep.delay_ms + sum(sweep.access_delays_ms) / n)
    rows = []
    for model in ("bbr1", "bbr2"):
        for cell in cells:
            if (cell["mix"], cell["discipline"]) != (model, "drop-tail"):
                continue
            link = sweep.scenario(model, "drop-tail", cell["buffer_bdp"]).links[0]
            buffer = link.buffer_bytes(sweep.mss_bytes)
            point = equilibrium(model, Bottleneck(c, (d,) * n, buffer))
            theorem = f"theorem {point.theorem}" if point.theorem else "full buffer, between theorems 3 and 1"
            numbers = (100 * point.queue_bytes / buffer, cell["occupancy_pct"], 100 * point.loss, cell["loss_pct"])
            rows.append(_row(mix_label(model), f"{cell['buffer_bdp']:g}", theorem, *(f"{v:.2f}" for v in numbers)))
    head = (
        "<th>CCA</th><th>buffer [BDP]</th><th>equilibrium by</th><th>occupancy [%], equilibrium</th><th>simulated</th>"
        "<th>loss [%], equilibrium</th><th>simulated</th>"
    )
    note = (
        f"<p>The equilibria are for equal RTTs, here the mean of {1e3 * d:.1f} ms; the simulated senders have unequal ones. "
        "For BBRv2 the equilibrium leaves out inflight_hi, whose initial value dominates the simulation of deep buffers.</p>"
    )
    return _table(head, rows) + note


def _cells(cells: Sequence[dict[str, Any]], packets: Sequence[dict[str, Any]]) -> str:
    digits = {"jain": 3, "loss_pct": 2, "occupancy_pct": 1, "utilisation_pct": 2, "jitter_ms": 4, "first_share_pct": 1}
    rows = []
    for c, p in zip_longest(cells, packets):
        values = [f"{c[key]:.{k}f}" + (f" | {p[key]:.{k}f}" if p else "") for key, k in digits.items()]
        rows.append(_row(mix_label(c["mix"]), c["discipline"], f"{c['buffer_bdp']:g}", *values))
    head = "<th>mix</th><th>discipline</th><th>buffer [BDP]</th>" + "".join(f"<th>{METRICS[key].axis}</th>" for key in digits)
    return ("<p>Fluid model | packet engine.</p>" if packets else "") + _table(head, rows)


def _table(head: str, rows: Iterable[str]) -> str:
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n" + "\n".join(rows) + "\n</tbody></table>"


def _image(figure: Any, alt: str) -> str:
    data = base64.b64encode(picture(figure, ".png")).decode("ascii")
    return f'<p><img alt="{html.escape(alt, quote=True)}" src="data:image/png;base64,{data}"></p>'


# What a cell may be off the published simulator's: Jain, points of loss, points of occupancy.
PUBLISHED_BANDS = {"jain": 0.12, "loss_pct": 3.0, "occupancy_pct": 12.0}
PACKETS = "packets"


def cells_of_sets(sweep: Sweep, threads: int | None = None) -> dict[str, list[dict[str, Any]]]:
    """Return the cells of a sweep under every parameter set. Raises InputError for constants that a sweep overrides."""
    if sweep.overrides:
        raise InputError("sets beside each other need a sweep without overrides of its own")
    return {name: sweep.model_copy(update={"params": name}).run(threads) for name in PARAMETER_SETS}


def statements_table(columns: Mapping[str, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Judge the statements for several lists of cells of the sweep `validation`, by the column's name.

    Returns:
        list: per statement its source, text, criterion, and for each column ``{"holds": ..., "measured": ...}``.

    Raises:
        InputError: if cells are missing.
    """
    try:
        judged = {name: judge(cells) for name, cells in columns.items()}
    except KeyError as error:
        raise InputError(f"the statements need all cells of the sweep validation; {error} is missing") from error
    rows = []
    for judgements in zip(*judged.values(), strict=True):
        row = {key: judgements[0][key] for key in ("source", "text", "criterion")}
        row |= {
            name: {key: judgement[key] for key in ("holds", "measured")}
            for name, judgement in zip(judged, judgements, strict=True)
        }
        rows.append(row)
    return rows


def read_packets(record: Path) -> list[dict[str, Any]]:
    """Return the packet cells of a record (``docs/tables/record_fluid.py``). Raises InputError for another file."""
    data = read_json(record)
    cells = data.get(PACKETS) if isinstance(data, dict) else None
    if not isinstance(cells, list) or not all(
        isinstance(cell, dict) and {"mix", "discipline", "buffer_bdp"} <= set(cell) for cell in cells
    ):
        raise InputError(f"{record} holds no packet cells under {PACKETS!r}")
    return cells


def published_distance(cells: Sequence[dict[str, Any]], published: Path, sweep_name: str) -> dict[str, Any]:
    """Compare cells with recorded numbers of the published simulator. Raises InputError for another file, or missing cells.

    Returns:
        dict: cells, within (cells in all PUBLISHED_BANDS), beyond (their names), and the largest difference of each metric.
    """
    data = read_json(published)
    try:
        rows = [row for row in data["cells"] if row["sweep"] == sweep_name]
        published_rows = {(row["mix"], row["discipline"], float(row["buffer_bdp"])): row for row in rows}
        differences = [
            {name: abs(cell[name] - float(published_rows[_key(cell)][name])) for name in (*PUBLISHED_BANDS, "utilisation_pct")}
            for cell in cells
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{published} lacks published numbers of the sweep {sweep_name!r}: {type(error).__name__} {error}"
        ) from error
    beyond = [
        "{}, {}, {:g} BDP".format(*_key(cell))
        for cell, difference in zip(cells, differences, strict=True)
        if any(difference[name] > band for name, band in PUBLISHED_BANDS.items())
    ]
    return {
        "cells": len(cells),
        "within": len(cells) - len(beyond),
        "beyond": beyond,
        "largest": {name: max(difference[name] for difference in differences) for name in differences[0]} if differences else {},
    }


def _key(cell: dict[str, Any]) -> tuple[str, str, float]:
    return cell["mix"], cell["discipline"], float(cell["buffer_bdp"])
