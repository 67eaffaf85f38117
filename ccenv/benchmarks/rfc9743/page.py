"""The page of a report: one self-contained HTML file, with plots of rates over time and of ratios to the baseline."""

from __future__ import annotations

import base64
import itertools
import textwrap
from collections.abc import Mapping, Sequence
from html import escape as e
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.base.figure import finish, panels, picture
from ccenv.benchmarks.cells.cell import Player
from ccenv.benchmarks.rfc9743.criteria import FAILS, MEETS, NOT_MEASURED, REPORTED, TOPICS, Criteria
from ccenv.benchmarks.suite.base import CellData
from ccenv.benchmarks.suite.packet import PacketSuite

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI = 160
WIDTH_IN = 4.6  # letters of 8 points are then readable on a phone
LONGEST = 68  # characters of a line of words
MOST_LINES = 6
DASHES = ("-", "--", ":", "-.")
_BETTER = {"higher": " (more is better)", "lower": " (less is better)", "neither": ""}
_VERDICTS = {"meets": ("^", "#0a6b2d"), "does not meet": ("X", "#a11212")}
WIDEST = 100.0  # ratios beyond are drawn at the edge


def draw_rates(cases: Sequence[str], records: list[CellData], sender: str, baseline: str) -> bytes | None:
    """Draw throughput per flow of the sender, and of all flows of the baseline in grey, as a PNG; None without stored rates."""
    kept = {(r["scenario"], r["agent"]): r["series"] for r in records if "series" in r}
    drawn_cases = [case for case in cases if (case, sender) in kept]
    if not drawn_cases:
        return None
    canvas, axes = panels(len(drawn_cases), 1, (WIDTH_IN, 2.6 * len(drawn_cases)))
    for ax, case in zip(axes, drawn_cases, strict=True):
        if baseline != sender and (case, baseline) in kept:
            _lines(ax, kept[case, baseline], f"all of {baseline}'s run")
        _lines(ax, kept[case, sender], "")
        ax.set_title(case, fontsize=9)
        ax.tick_params(labelsize=8)
        finish(ax, "time (s)", "throughput (Mbit/s)", zero=True, size=9, loc="best", fontsize=8)
    return picture(canvas, ".png", DPI)


def _lines(ax: Axes, series: dict[str, Any], together: str) -> None:
    rates = {name: np.asarray(values) for name, values in series["throughput_mbps"].items()}
    if together or len(rates) > MOST_LINES:
        rates = {together or f"all {len(rates)} flows": sum(rates.values(), np.zeros(1))}
    style: dict[str, Any] = {"color": "0.7", "linewidth": 2.5} if together else {"linewidth": 1.1}
    for (name, values), dashes in zip(rates.items(), itertools.cycle(DASHES), strict=False):
        ax.plot((np.arange(len(values)) + 0.5) * series["every_s"], values, dashes, label=name, **style)


def draw_ratios(measures: Sequence[Mapping[str, Any]], sender: str, baseline: str) -> bytes | None:
    """Draw a criterion's measures as ratios to the baseline, as a PNG; None if nothing can be compared.

    Measures of which more or less is better share one axis; the others have a second one.
    """
    ratios: dict[str, list[tuple[str, float, str]]] = {}
    for measure in measures:
        value, other = measure["value"], measure["baseline"]
        if value is not None and other is not None and value > 0 and other > 0:
            better = measure["better"]
            ratio = other / value if better == "lower" else value / other
            title = f"{sender} over {baseline}" if better == "neither" else f"times better than {baseline}"
            ratios.setdefault(title, []).append((measure["label"] + _BETTER[better], ratio, measure["verdict"]))
    if not ratios or sender == baseline:
        return None
    heights = [len(rows) + 1.5 for rows in ratios.values()]
    canvas, axes = panels(len(ratios), 1, (WIDTH_IN, 0.4 * sum(heights)), height_ratios=heights)
    for ax, (title, rows) in zip(axes, ratios.items(), strict=True):
        _draw_ratio_rows(ax, rows)
        ax.set_xlabel(title, fontsize=9)
    return picture(canvas, ".png", DPI)


def _draw_ratio_rows(ax: Axes, rows: Sequence[tuple[str, float, str]]) -> None:
    """Draw a line per measure from the baseline at 1, its label above, its verdict as marker and text."""
    from matplotlib.ticker import LogLocator, NullFormatter

    drawn_ratios = [min(WIDEST, max(1 / WIDEST, ratio)) for _, ratio, _ in rows]
    reach = max(2.0, *(max(ratio, 1 / ratio) for ratio in drawn_ratios)) * 1.3
    for y, ((label, ratio, verdict), at) in enumerate(zip(reversed(rows), reversed(drawn_ratios), strict=True)):
        marker, colour = _VERDICTS.get(verdict, ("o", "#33507a"))
        ax.plot([1, at], [y, y], color="0.75", linewidth=1.5)
        ax.plot([at], [y], marker, color=colour, markersize=6)
        words = f"{ratio:.3g}{f', {verdict}' if verdict in _VERDICTS else ''}: {label}"
        ax.text(
            0.01, y + 0.22, textwrap.shorten(words, LONGEST, placeholder=" ..."), fontsize=8, transform=ax.get_yaxis_transform()
        )
    ax.axvline(1, color="0.4", linewidth=0.8)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if reach < 30 else (1,)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlim(1 / reach, reach)
    ax.set_ylim(-0.5, len(rows))
    ax.set_yticks([])
    ax.tick_params(labelsize=8)
    ax.grid(alpha=0.25, axis="x")


_CLASSES = {MEETS: "good", FAILS: "bad", REPORTED: "plain", NOT_MEASURED: "none"}
_STYLE = """
:root{color-scheme:light}
body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
h1,h2,h3{line-height:1.2}table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #ddd;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.scroll{overflow-x:auto}figure{margin:1.2rem 0}figure img{max-width:100%;height:auto}
figcaption,small{color:#555;font-size:.85rem}
td small{display:block}
.good{color:#0a6b2d;font-weight:600}.bad{color:#a11212;font-weight:600}.plain{color:#33507a}.none{color:#666}
code,pre{background:#f4f4f4;padding:.1rem .3rem}
"""
_HEAD = (
    "<th>Measure</th><th class=n>Value</th><th class=n>95 % of the IQM</th><th class=n>{baseline}</th><th>Unit</th>"
    "<th>Threshold</th><th>Verdict</th>"
)


def render_page(data: dict[str, Any], criteria: Criteria, suite: PacketSuite, records: list[CellData], player: Player) -> str:
    name = data["sender"]["name"]
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width,initial-scale=1">',
        f"<title>{e(name)}: report</title><style>{_STYLE}</style></head><body>",
        f"<h1>{e(name)}</h1><p>{e(data['document'])}. {data['suite']['n_cells']} cells of the suite "
        f"<code>{e(suite.name)}</code>, beside {e(data['baseline'])} in the same cells.</p>",
    ]
    if data["failed"]:
        parts.append(f'<p class="bad">The sender failed: {e(data["failed"])}</p>')
    parts.append(_overview(data))
    for criterion, definition in zip(data["criteria"], criteria.criteria, strict=True):
        rates_png = draw_rates(definition.pictures, records, name, data["baseline"])
        ratios_png = draw_ratios(criterion["measures"], name, data["baseline"])
        parts += [_criterion(criterion, data["baseline"]), _figure(ratios_png, f"Beside {data['baseline']}, same cells")]
        parts.append(_figure(rates_png, "Throughput over time, first seed"))
    parts += [_worst_cases(data["worst_cases"]), _proofs(data["proofs"]), _topics(data), _scenarios(suite, records)]
    parts.append(_origin(data, player))
    return "\n".join(part for part in parts if part) + "\n</body></html>\n"


def _overview(data: dict[str, Any]) -> str:
    rows = "".join(
        f'<tr><td><a href="#{e(c["id"])}">{e(c["title"])}</a></td><td>{e(c["source"])}</td>'
        f'<td class="{_CLASSES[c["verdict"]]}">{c["verdict"]}</td></tr>'
        for c in data["criteria"]
    )
    return (
        "<h2>Verdicts</h2><p>RFC 9743 s.5 states no thresholds. A verdict stands only where another source states a number or "
        "a comparison; all else is reported.</p>"
        f"<div class=scroll><table><thead><tr><th>Criterion</th><th>Source</th><th>Verdict</th></tr></thead><tbody>{rows}"
        "</tbody></table></div>"
    )


def _criterion(criterion: dict[str, Any], baseline: str) -> str:
    rows = "".join(_measure(measure) for measure in criterion["measures"])
    return (
        f'<h2 id="{e(criterion["id"])}">{e(criterion["title"])} <small>{e(criterion["source"])}: '
        f'<span class="{_CLASSES[criterion["verdict"]]}">{criterion["verdict"]}</span></small></h2><p>{e(criterion["asks"])}</p>'
        f"<div class=scroll><table><thead><tr>{_HEAD.format(baseline=e(baseline))}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _measure(m: dict[str, Any]) -> str:
    interval = f"[{number(m['interval'][0])}, {number(m['interval'][1])}]" if m["interval"] else ""
    conditions = ", ".join(f"{name} {value}" for name, value in m["where"].items())
    conditions = f": {conditions}" if conditions else ""
    cells = f"{m['aggregate']} of {m['metric']} over {m['n_cells']} cells of {m['scenario']}{conditions}"
    seeds = f"; seeds {', '.join(map(str, m['seeds']))}" if m["seeds"] else ""
    why = f"<small>{e(m['why'])}</small>" if "why" in m else ""
    limit = ""
    if m["threshold"]:
        words = [("at least", m["threshold"]["at_least"]), ("at most", m["threshold"]["at_most"])]
        bounds = " and ".join(f"{word} {number(bound)}" for word, bound in words if bound is not None)
        limit = f"{bounds}<small>{e(m['threshold']['source'])}</small>"
    return (
        f"<tr><td>{e(m['label'])}<small>{e(cells + seeds)}</small>{why}</td><td class=n>{number(m['value'])}</td>"
        f"<td class=n>{interval}</td><td class=n>{number(m['baseline'])}</td><td>{e(m['unit'])}</td><td>{limit}</td>"
        f'<td class="{_CLASSES[m["verdict"]]}">{m["verdict"]}</td></tr>'
    )


def _worst_cases(worst_cases: list[dict[str, Any]]) -> str:
    if not worst_cases:
        return ""
    rows = "".join(
        f"<tr><td>{e(w['scene'])}</td><td colspan=4>{e(w['why'])}</td></tr>"
        if "why" in w
        else f"<tr><td>{e(w['scene'])}<small>{8e-6 * w['link_rate_Bps']:g} Mbit/s, Rm {1e3 * w['rtt_s']:g} ms, D "
        f"{1e3 * w['jitter_s']:g} ms, buffer {w['buffer_bytes'] / w['link_rate_Bps'] / w['rtt_s']:.3g} BDP</small></td>"
        f"<td class=n>{number(w['worst_utilisation'])}</td><td>{e(w['adversary'])}</td><td>{'yes' if w['legal'] else 'no'}</td>"
        f"<td class=n>{w['budget_flow_steps']:,}</td></tr>"
        for w in worst_cases
    )
    return (
        "<h2>Worst legal case</h2><p>The lowest share of the link that <code>ccenv attack</code> found on networks that the "
        "model CCAC allows, under a small stated budget: others may be worse.</p><div class=scroll><table><thead><tr>"
        "<th>Scene</th><th class=n>Utilisation</th><th>Found by</th><th>Legal</th><th class=n>Budget (flow-steps)</th>"
        "</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _proofs(proofs: list[dict[str, Any]]) -> str:
    if not proofs:
        return ""
    reasons = list(dict.fromkeys(p["why"] for p in proofs if "why" in p))
    if len(reasons) == 1 and all("why" in p for p in proofs):
        return f"<h2>Proofs</h2><p>None: {e(reasons[0])}</p>"
    rows = "".join(
        f"<tr><td>{e(p['claim'])}{' of ' + e(p['at_least']) if p['at_least'] else ''}</td>"
        f"<td>{e(p['model'])}, buffer {e(p['buffer'])}, T = {p['samples']}</td>"
        f"<td>{e(p.get('verdict', 'not decided'))}<small>{e(p.get('why') or p.get('reason', ''))}</small></td></tr>"
        for p in proofs
    )
    return (
        "<h2>Proofs</h2><p>Answers of the solver for every trace of a model; unknown is what its time did not suffice for, or "
        "where a step of the argument fails.</p>"
        "<div class=scroll><table><thead><tr><th>Claim</th><th>Network</th><th>Verdict</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _topics(data: dict[str, Any]) -> str:
    out = []
    measures = [(c["id"], m) for c in data["criteria"] for m in c["measures"]]
    for topic in TOPICS.values():
        lines = "".join(
            f'<tr><td><a href="#{e(name)}">{e(m["label"])}</a></td><td class=n>{number(m["value"])}</td>'
            f"<td>{e(m['unit'])}</td></tr>"
            for name, m in measures
            if m["topic"] == topic
        )
        out.append(f"<h3>{e(topic)}</h3><div class=scroll><table><tbody>{lines}</tbody></table></div>" if lines else "")
    return f"<h2>The same numbers by the metrics of RFC 5166</h2>{''.join(out)}"


def _scenarios(suite: PacketSuite, records: list[CellData]) -> str:
    played = {record["scenario"].partition("[")[0] for record in records}
    rows = "".join(
        f"<tr><td><code>{e(s.name)}</code></td><td>{e(s.summary)}</td></tr>" for s in suite.scenarios if s.name in played
    )
    return (
        f"<h2>Scenarios</h2><p>{e(suite.notes)}</p><div class=scroll><table><tbody>{rows}</tbody></table></div>"
        f"<p>Run {suite.duration_s:g} s each, the first {suite.warm_up_s:g} s left out, where a scenario says nothing else.</p>"
    )


def _origin(data: dict[str, Any], player: Player) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    return (
        f"<h2>Run it again</h2><pre>ccenv report {e(player.spec)}</pre><p>Sender <code>{data['sender']['sha256'][:16]}</code>, "
        f"suite <code>{data['suite']['sha256'][:16]}</code>, code <code>{data['code_sha256'][:16]}</code>; {e(packages)}.</p>"
    )


def _figure(png: bytes | None, caption: str) -> str:
    if png is None:
        return ""
    data = base64.b64encode(png).decode()
    text = e(caption)
    return f'<figure><img alt="{text}" src="data:image/png;base64,{data}"><figcaption>{text}</figcaption></figure>'


def number(value: float | None) -> str:
    """Return a number with four digits; nothing for None."""
    return "" if value is None else value if isinstance(value, str) else f"{value:.4g}"
