"""The formatted data of the templates, including coexistence: a sender alone, with its own kind and with other CCAs.

A worst case is shown as panels over one time axis, with one sentence about what happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

import numpy as np

from ccenv.benchmarks.results import mean_defined
from ccenv.benchmarks.suite.base import Quantity, SuiteBase
from ccenv.benchmarks.suite.packet import parse_metric
from ccenv.benchmarks.suite.references import compute_quantity
from ccenv.leaderboard.evaluate.damage import WORST_VIEW
from ccenv.leaderboard.evaluate.stages import VIEW
from ccenv.leaderboard.evaluate.trace_view import make_view, read_view
from ccenv.leaderboard.site import drawing
from ccenv.leaderboard.site.board import CLASSIC, SHIELD, Board, Entry, Finding, Standing, Table, worst_by_adversary
from ccenv.leaderboard.site.drawing import line, ticks
from ccenv.leaderboard.site.sections import NO_QUIC, Quic
from ccenv.leaderboard.store.records import CellRecord, VerificationRecord
from ccenv.network.metrics.table import METRICS, Metric
from ccenv.network.trace import parse_trace

_LEFT, _WIDTH = 56.0, 560.0
_MOVES = {"held_ms": "held", "wasted_mbps": "wasted"}


def trace_view(view: dict[str, Any]) -> dict[str, Any]:
    """Place a trace's view in a picture 640 wide: rates, queue and RTT, the network's moves; all share the time axis.

    A ``view`` (``ccenv.leaderboard.evaluate.trace_view``) of an older version has neither RTT nor moves.
    """
    times = np.array(view["time_s"])
    end = float(times[-1])
    xs = _LEFT + _WIDTH * times / end
    sent = np.sum([flow["sent_mbps"] for flow in view["flows"]], axis=0)
    flows = view["flows"]
    rates = [("link", "link rate", view["link_mbps"]), ("sent", "sent by all flows", sent)]
    rates += [(f"flow{i % 4}", f"delivered, {flow['sender']}", flow["delivered_mbps"]) for i, flow in enumerate(flows)]
    top = max(float(np.max(view["link_mbps"])) * 1.6, 1e-9)
    panels = [_panel("Mbit/s", xs, rates, 12, 170, top)]
    waits = [("queue", "queue", view["queue_ms"])]
    waits += [(f"rtt flow{i % 4}", f"RTT, {flow['sender']}", flow["rtt_ms"]) for i, flow in enumerate(flows) if "rtt_ms" in flow]
    panels.append(_panel("ms", xs, waits, 212, 90))
    series = {"time_s": view["time_s"], "link": view["link_mbps"], "sent": [round(float(v), 3) for v in sent]}
    series |= {"delivered": [f["delivered_mbps"] for f in flows], "queue_ms": view["queue_ms"], "lost": view["lost_mbps"]}
    complete = all(name in view for name in _MOVES)
    if complete:
        moves = [("held", "held back by the network (ms)", view["held_ms"])]
        moves += [("wasted", "capacity not used for bytes (Mbit/s)", view["wasted_mbps"])]
        panels.append(_panel("moves", xs, moves, 332, 70))
        series |= {"rtt_ms": [f["rtt_ms"] for f in flows]} | {name: view[key] for key, name in _MOVES.items()}
    bottom = 402 if complete else 302
    return {
        "panels": panels,
        "bottom": bottom,
        "height": bottom + 38,
        "complete": complete,
        "time_ticks": [(round(_LEFT + _WIDTH * v / end, 1), f"{v:g}") for v in ticks(end, 8)],
        "series": series,
        "why": explain(view),
    }


def _panel(
    unit: str, xs: np.ndarray, lines: list[tuple[str, str, Any]], top: float, height: float, largest: float | None = None
) -> dict[str, Any]:
    """Place lines in a panel; ``largest`` is the end of its axis, by default that of the lines and at least 1."""
    deepest = largest or max(1.0, *(float(np.max(values)) for _, _, values in lines))

    def y(values: Any) -> np.ndarray:
        return np.asarray(top + height * (1 - np.minimum(np.array(values), deepest) / deepest))

    return {
        "unit": unit,
        "middle": top + height / 2,
        "ticks": [(round(float(y(v)), 1), f"{v:g}") for v in ticks(deepest, 4 if height > 100 else 3)],
        "lines": [{"kind": css_class, "label": label, "path": line(xs, y(values))} for css_class, label, values in lines],
    }


def explain(view: dict[str, Any]) -> str:
    """Return one sentence of measurements about the second half of a run: the use of the link, and the network's moves."""
    half = len(view["time_s"]) // 2
    link = float(np.mean(view["link_mbps"][half:]))
    sent = float(np.mean(np.sum([f["sent_mbps"] for f in view["flows"]], axis=0)[half:]))
    delivered = float(np.mean(np.sum([f["delivered_mbps"] for f in view["flows"]], axis=0)[half:]))
    lost = float(np.mean(view["lost_mbps"][half:]))
    idle = float(np.mean(np.array(view["queue_ms"][half:]) < 1e-3 * max(1e-9, float(np.max(view["queue_ms"])))))
    rates = _describe_rates(link, sent, delivered, lost, idle, len(view["flows"]))
    return f"In the second half of the run {rates}{_describe_moves(view, half)}."


def _describe_rates(link: float, sent: float, delivered: float, lost: float, idle: float, n_flows: int) -> str:
    used = f"{_percent(delivered / link)} of the link is used"
    sends, offers = ("the sender sends", "the sender offers") if n_flows == 1 else ("the flows send", "the flows offer")
    if lost > 0.2 * max(sent, 1e-9):
        lost_share = min(1.0, lost / max(sent, 1e-9))
        return f"{used}: {sends} {_percent(sent / link)} of the link rate, and {_percent(lost_share)} of it is lost"
    if sent < 0.9 * link:
        empty = f", although the queue is empty {_percent(idle)} of the time" if idle > 0.2 else ""
        return f"{used}: {sends} only {_percent(sent / link)} of the link rate{empty}"
    return f"{used}: {offers} {_percent(sent / link)} of the link rate"


def _describe_moves(view: dict[str, Any], half: int) -> str:
    if not all(name in view for name in _MOVES):
        return ""
    rtts_ms = np.concatenate([flow["rtt_ms"][half:] for flow in view["flows"]])
    held_ms = float(np.max(view["held_ms"][half:]))
    if held_ms <= 0.01 * view["rm_ms"]:
        return ""
    path = f"RTTs are {rtts_ms.min():.3g} to {rtts_ms.max():.3g} ms on a path of {view['rm_ms']:.3g} ms"
    return f"; the network holds up to {held_ms:.3g} ms of bytes back ({path})"


def _percent(share: float) -> str:
    """Return a share with two digits, and no more than a hundredth of a per cent."""
    return f"{share * 100:.2g} %" if 5e-5 <= share < 0.095 else f"{share * 100:.0f} %"


GROUPS = {"alone": "Alone", "own_kind": "With its own kind", "company": "In company"}


def measured(cells: Sequence[CellRecord]) -> list[dict[str, Any]]:
    """Return cells as a suite's quantities take them."""
    return [cell.model_dump(include=_FIELDS) | {"parameters": cell.parameters or {}} for cell in cells]


def side_by_side(suite: SuiteBase, cells: Sequence[CellRecord]) -> list[tuple[Metric, str, list[float | None]]]:
    """Return metric, aggregate and values by group (None: undefined) of the suite's table, from the cells of one sender.

    Names in the table are a group of GROUPS (``alone``), or end with one (``utilisation_alone``); empty with less than two
    groups.
    """
    records = measured(cells)
    rows: dict[str, dict[str, Quantity]] = {}
    for name, quantity in suite.table.items():
        group = next((group_name for group_name in GROUPS if name == group_name or name.endswith(f"_{group_name}")), None)
        if group is not None:
            rows.setdefault(name.removesuffix(group), {})[group] = quantity
    if len({group for row in rows.values() for group in row}) < 2:
        return []
    out: list[tuple[Metric, str, list[float | None]]] = []
    for row in rows.values():
        group_name = next(iter(row.values()))
        values = [compute_quantity(records, row[group]) if group in row else None for group in GROUPS]
        out.append((suite.measure(group_name.metric), group_name.aggregate, values))
    return out


_FIELDS = {"scenario", "agent", "adversary", "seed", "metrics"}


DASH = "\N{EN DASH}"
DELAY, USED = "queueing_delay_mean_s", "utilisation"
RAW = (USED, DELAY, "loss_fraction")
_PROFILES = 6
_POINTS = 60


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with a fixed count of decimals, a dash for None."""
    return DASH if value is None else f"{value:.{digits}f}"


def at_least(value: float | None, digits: int = 3) -> str:
    """Return a proved lower bound, rounded down."""
    return _round_towards(value, digits, ROUND_FLOOR)


def at_most(value: float | None, digits: int = 3) -> str:
    """Return a proved upper bound, rounded up."""
    return _round_towards(value, digits, ROUND_CEILING)


def bounded(value: float | None, metric: str, digits: int = 3, *, refuted: bool = False) -> str:
    """Return a bound of a metric, rounded to its safe side; a refuted bound is rounded the other way."""
    return (at_least if (metric.startswith(USED)) != refuted else at_most)(value, digits)


def _round_towards(value: float | None, digits: int, side: str) -> str:
    return DASH if value is None else f"{Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), side)}"


def quantity(value: float | None, metric: Metric) -> str:
    """Return a metric's value for display: delays in milliseconds, loss in per cent, ratios with three decimals."""
    if value is None:
        return DASH
    if metric.unit == "s":
        return f"{value * 1e3:.1f}"
    return f"{value * 100:.2f}" if metric.name == "loss_fraction" else f"{value:.3f}"


def display_unit(metric: Metric) -> str:
    """Return the unit of ``quantity``."""
    return "ms" if metric.unit == "s" else "%" if metric.name == "loss_fraction" else metric.unit


def rank(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}{DASH}{last}"


def metrics_of(board: Board) -> list[Metric]:
    """Return the distinct metrics of the board's suites, without flows and windows."""
    names = {parse_metric(name)[0] for table in board.tables for name in table.suite.metrics}
    return [metric for name, metric in METRICS.items() if name in names]


def suite_page(table: Table) -> str:
    return f"suites/{table.suite.name}-{table.suite.version}-{table.sha256[:8]}.html"


FURTHER = {"company": ("jain_8", "share_worst", "harm"), "everywhere-v1": ("alone", "jain", "in_range")}
"""Suites of the index beside the one that ranks: values of their tables."""


def further(board: Board) -> list[Table]:
    """Return the tables of FURTHER that are on the board, none of them superseded."""
    return [table for table in board.tables[1:] if table.suite.name in FURTHER and not table.superseded]


def _further_values(table: Table, entry: Entry) -> dict[str, Any] | None:
    """Return what the index tells of a sender in one of FURTHER; None if it was not played."""
    result = next((one for one in entry.results if one.record.suite_sha256 == table.sha256), None)
    if result is None:
        return None
    cells = measured(result.cells)
    values = [(name, compute_quantity(cells, table.suite.table[name])) for name in FURTHER[table.suite.name]]
    return {"name": table.suite.name, "values": values, "stale": result.stale}


def index_rows(board: Board, quic: Quic = NO_QUIC) -> list[dict[str, Any]]:
    table, others = board.tables[0], further(board)
    raw = raw_columns(table)
    entries = [board.entry(result.player) for _, _, result in table.rows]
    return [
        {
            "place": place,
            "rank": rank(first, last),
            "result": result,
            "score": result.summary.score,
            "entry": entry,
            "card": {"kind": result.player.kind, "author": "" if entry.submission is None else entry.submission.card.author},
            "better": result.better,
            "worst": entry.worst,
            "proof": headline(entry),
            "verdicts": entry.verdicts,
            "theorems": {theorem.flows: theorem for theorem in reversed(entry.theorems)},
            "further": [_further_values(other, entry) for other in others],
            "quic": next(iter(quic.get(result.player.label, ())), None),
            "raw": [(metric, result.summary.against[table.suite.score.adversary].get(metric.name)) for metric in raw],
        }
        for place, (entry, (first, last, result)) in enumerate(zip(entries, table.rows, strict=True), start=1)
    ]


def raw_columns(table: Table) -> list[Metric]:
    """Return those of throughput, delay and loss that the suite measures and does not rank by."""
    return [METRICS[name] for name in RAW if name in table.suite.metrics and name != table.suite.score.metric]


def overview(board: Board) -> dict[str, Any] | None:
    """Return nominal score against worst case with proved bounds; None if worst cases have another metric than bounds."""
    table = board.tables[0]
    points = []
    for row in index_rows(board):
        score, worst, proof = row["score"], row["worst"], row["proof"]
        if score is None or worst is None or worst.case.metric != USED:
            continue
        bound = proof["bound"] if proof is not None and proof["envelope"] else None
        points.append((row["place"], row["result"].player.label, score.iqm, worst.case.value, bound))
    return (
        None if len(points) < 2 else drawing.overview(points[:_POINTS]) | {"score": table.suite.measure(table.suite.score.metric)}
    )


def headline(entry: Entry) -> dict[str, Any] | None:
    """Return the solver's answer that the index shows: the utilisation proved on CCAC with any buffer, or the first answer."""
    inside = entry.player.kind == SHIELD
    if entry.envelope is not None and entry.envelope.rows:
        envelope = entry.envelope
        rows, flags = envelope.bounds, {"envelope": True, "encoding": entry.player.kind == CLASSIC, "shield": inside}
        if not rows:
            return {"verdict": "unknown", "bound": None, "text": "proved of single traces only, by an older version", **flags}
        proved = sum(row.bound is not None for row in rows)
        best = next((r for r in rows if (r.model, r.buffer, r.metric) == ("ccac", "arbitrary", USED)), rows[0])
        text = f"{proved} of {len(rows)} bounds proved"
        return {"verdict": best.verdict, "bound": best.bound, "text": text, **flags}
    if entry.verifications:
        result = entry.verifications[0].result
        bound = None if result.excused else result.bound
        text = f"reported, not confirmed here: {result.question}"
        flags = {"envelope": False, "encoding": False, "shield": inside}
        return {"verdict": result.verdict, "bound": bound, "text": text, "property_name": result.property_name, **flags}
    return None


def table_view(board: Board, table: Table) -> dict[str, Any]:
    """Return the data of a suite's page."""
    suite = table.suite
    columns = [suite.measure(name) for name in suite.metrics if name != suite.score.metric]
    worst_metric = suite.measure(suite.worst_case.metric)
    rows = [
        {
            "place": place,
            "rank": rank(first, last),
            "result": result,
            "entry": board.entry(result.player),
            "means": [(metric, result.summary.against[suite.score.adversary].get(metric.name)) for metric in columns],
            "case": result.summary.worst_case,
            "by_adversary": worst_by_adversary(result, suite.opponents, worst_metric) if len(suite.opponents) > 1 else {},
        }
        for place, (first, last, result) in enumerate(table.rows, start=1)
    ]
    return {
        "suite": suite,
        "sha256": table.sha256,
        "superseded": table.superseded,
        "reference": table.reference,
        "score": suite.measure(suite.score.metric),
        "worst_metric": worst_metric,
        "columns": [(metric, display_unit(metric)) for metric in columns],
        "rows": rows,
        "scatter": drawing.scatter(_points(table)),
        "profile": _profile(table),
        "scenarios": [{"name": s.name, "summary": s.summary} for s in getattr(suite, "scenarios", ())],
        "manifests": table.manifests[-20:],
        "n_runs": len(table.manifests),
        "page": suite_page(table),
    }


def _points(table: Table) -> list[tuple[int, str, float, float]]:
    points = []
    for place, (_, _, result) in enumerate(table.rows, start=1):
        points_of_cells = [
            (cell.metrics[DELAY] / cell.rtt_s, cell.metrics[USED])  # type: ignore[operator]
            for cell in result.cells
            if cell.adversary == table.suite.score.adversary
            and cell.metrics.get(DELAY) is not None
            and cell.metrics.get(USED) is not None
        ]
        if points_of_cells:
            delay, used = (sum(values) / len(points_of_cells) for values in zip(*points_of_cells, strict=True))
            points.append((place, result.player.label, delay, used))
    return points[:_POINTS]


def _profile(table: Table) -> dict[str, Any] | None:
    """Return the profiles of the best entries and of the reference; None if scores do not lie in [0, 1]."""
    score = table.suite.score
    chosen = [result for _, _, result in table.rows[:_PROFILES]]
    chosen += [result for _, _, result in table.rows[_PROFILES:] if result.player.label == table.reference]
    curves = {result.player.label: result.tasks(score.metric, score.adversary) for result in chosen}
    curves = {name: tasks for name, tasks in curves.items() if tasks}
    inside = all(0 <= value <= 1.05 for tasks in curves.values() for values in tasks.values() for value in values)
    return drawing.profile(curves) if curves and inside else None


def entry_view(board: Board, entry: Entry) -> dict[str, Any]:
    """Return the data of a sender's page besides the entry."""
    suites = []
    for result in entry.results:
        suite = result.record.suite
        table = next(t for t in board.tables if t.sha256 == result.record.suite_sha256 and t.suite.name == suite.name)
        metrics = [suite.measure(name) for name in suite.metrics]
        suites.append(
            {
                "result": result,
                "suite": suite,
                "page": suite_page(table),
                "place": next((rank(a, b) for a, b, other in table.rows if other is result), DASH),
                "of": len(table.rows),
                "reference": table.reference,
                "score": suite.measure(suite.score.metric),
                "columns": [(m, display_unit(m)) for m in metrics],
                "rows": _scenario_rows(result, metrics),
                "strips": _strips(result, table),
                "groups": side_by_side(suite, result.cells),
                "seeds": result.record.manifest.suite["seeds"],
            }
        )
    return {
        "suites": suites,
        "group_titles": list(GROUPS.values()),
        "trace": trace_link(entry.worst, "npz"),
        "plot": trace_link(entry.worst, "png"),
        "viewer": viewer(entry.worst),
        "proofs": [(record.result, proof_link(record)) for record in entry.verifications],
    }


def _scenario_rows(result: Standing, metrics: list[Metric]) -> list[tuple[str, str, int, list[tuple[Metric, float | None]]]]:
    groups: dict[tuple[str, str], list[dict[str, float | None]]] = {}
    for cell in result.cells:
        groups.setdefault((cell.scenario, cell.adversary), []).append(cell.metrics)
    return [
        (scenario, adversary, len(cells), [(m, mean_defined(values.get(m.name) for values in cells)) for m in metrics])
        for (scenario, adversary), cells in groups.items()
    ]


def _strips(result: Standing, table: Table) -> dict[str, Any] | None:
    score = table.suite.score
    tasks = result.tasks(score.metric, score.adversary)
    other = next((r for _, _, r in table.rows if r.player.label == table.reference and r is not result), None)
    return drawing.strips(tasks, other.tasks(score.metric, score.adversary) if other is not None else {}) if tasks else None


def viewer(finding: Finding | None) -> dict[str, Any] | None:
    """Return the picture of a worst case's trace; None if the record has neither its view nor the trace."""
    if finding is None or finding.case.trace is None:
        return None
    stored = _stored_view(finding.record.read(finding.case.trace + VIEW))
    if stored is not None:
        return stored
    trace = finding.record.read(finding.case.trace)
    return None if trace is None else trace_view(make_view(parse_trace(trace, finding.case.trace)))


def _stored_view(content: bytes | None) -> dict[str, Any] | None:
    return None if content is None else trace_view(read_view(content, "view of a trace"))


def damage_view(board: Board) -> list[dict[str, Any]]:
    """Return the rows of the adversaries' track."""
    bounds = _proved_utilisation(board)
    rows = []
    for place, record in enumerate(board.damages, start=1):
        damage, score = record.damage, record.damage.score
        better = sum(other.damage.score.low > score.high for other in board.damages)
        worse = sum(other.damage.score.high < score.low for other in board.damages)
        senders: list[dict[str, Any]] = []
        gaps: list[float] = []
        for name in dict.fromkeys(cell.sender for cell in damage.cells):
            cells = [cell for cell in damage.cells if cell.sender == name]
            lowest = min(cell.utilisation for cell in cells)
            played = {cell.sender_sha256 for cell in cells}
            bound = bounds.get(played.pop()) if len(played) == 1 else None
            gaps += [] if bound is None else [lowest - bound]
            senders.append(
                {
                    "name": name,
                    "damage": sum(cell.damage for cell in cells) / len(cells),
                    "worst": lowest,
                    "bound": bound,
                    "gap": None if bound is None else lowest - bound,
                }
            )
        rows.append(
            {
                "place": place,
                "rank": rank(1 + better, len(board.damages) - worse),
                "name": damage.name,
                "slug": f"adversary-{damage.name}",
                "submission": next(s for s in board.records.submissions if s.submission == damage.submission),
                "damage": damage,
                "score": score,
                "senders": senders,
                "gap": min(gaps) if gaps else None,
                "viewer": _stored_view(record.read(WORST_VIEW)),
            }
        )
    return rows


def _proved_utilisation(board: Board) -> dict[str, float]:
    """Return the utilisation proved on CCAC with any buffer, by canonical hash."""
    out = {}
    for entry in board.entries.values():
        if entry.player.kind == CLASSIC or entry.submission is None:
            continue
        for row in entry.envelope.bounds if entry.envelope is not None else ():
            if (row.model, row.buffer, row.metric) == ("ccac", "arbitrary", USED) and row.bound is not None:
                out[board.records.players[entry.submission.submission]] = row.bound
    return out


def trace_link(finding: Finding | None, suffix: str) -> str | None:
    """Return the site's link to the trace or plot of a worst case, or None."""
    if finding is None:
        return None
    name = finding.case.trace if suffix == "npz" else finding.case.plot
    if name is None or finding.record.read(name) is None:
        return None
    return f"traces/{finding.case.key[:32]}.{suffix}"


def proof_link(record: VerificationRecord) -> str | None:
    """Return the site's link to the trace of a counterexample, or None."""
    trace = record.result.trace
    if trace is None or record.read(trace) is None:
        return None
    return f"traces/proof-{record.result.queries[-1].sha256[:16]}.npz"
