"""Tables of the documentation, built from records: ``python docs/tables NAME`` prints one, ``python docs/tables`` lists all.

A page holds a fence ```` ```{table} NAME ```` with a caption; the build of the site puts the table there (`fill`). No generated
table stands in git. What needs minutes to measure is a record in docs/data; what the package knows is read from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ccenv.base.figure import markdown
from ccenv.base.foreign import read_json
from ccenv.training.shields import report as shields
from tables import (
    attacks,
    beliefs,
    board,
    code,
    distillation,
    everywhere,
    fairness,
    fluid,
    interface,
    kernel,
    papers,
    self_play,
    suites,
    theorems,
    training,
)

DOCS = Path(__file__).parents[1]
DATA = DOCS / "data"
_FENCE = re.compile(r"^```\{table\} (?P<name>\S+)\n(?P<caption>.*?)^```$", re.MULTILINE | re.DOTALL)

Rows = list[dict[str, str]]


class Table(NamedTuple):
    """A table: ``rows`` of the JSON records ``files`` in docs/data, or of what the package itself knows."""

    rows: Callable[..., Rows]
    files: tuple[str, ...] = ()

    def build(self) -> Rows:
        """Return the rows: all have the same columns."""
        return self.rows(*(read_json(DATA / name) for name in self.files))


TABLES = {
    "attacks": Table(attacks.panel, ("attacks.json",)),
    "attacks-adversaries": Table(attacks.adversaries, ("attacks.json",)),
    "attacks-hidden": Table(attacks.hidden, ("attacks.json", "hidden-attacks.json")),
    "attacks-hidden-gain": Table(attacks.hidden_gain, ("attacks.json", "hidden-attacks.json")),
    "attacks-unseen": Table(attacks.unseen, ("unseen-paths.json",)),
    "attacks-gap": Table(attacks.gap, ("adversary-gap.json",)),
    "beliefs-gap": Table(beliefs.gap, ("tighter-beliefs.json",)),
    "beliefs-scores": Table(beliefs.scores, ("tighter-beliefs.json",)),
    "which-first": Table(board.first, ("which.json",)),
    **{f"which-{metric}": Table(partial(board.situations, metric=metric)) for metric in board.METRICS},
    "which-coexistence": Table(board.coexistence),
    **{f"coexistence-{name}": Table(partial(suites.coexistence, columns=columns), ("company.json",))
       for name, columns in suites.COEXISTENCE.items()},
    "coexistence-beliefs": Table(partial(suites.coexistence, columns=suites.BELIEFS), ("company-beliefs.json",)),
    "adaptive": Table(suites.adaptive, ("adaptive.json",)),
    "agents-deviations": Table(code.deviations),
    "rooms": Table(code.rooms),
    "former-commands": Table(code.former_commands),
    "refusals": Table(code.refusals),
    "refusals-board": Table(code.board_refusals),
    "shields": Table(shields.make_rows, ("shields.json",)),
    **{f"everywhere-{part}": Table(partial(everywhere.rows, part=part), ("everywhere.json",))
       for part in ("senders", "variants")},
    "distillation": Table(distillation.results, ("distillation.json",)),
    **{f"fairness-{name}": Table(rows, ("fairness-frontier.json",))
       for name, rows in (("frontier", fairness.frontier), ("utilisation", fairness.utilisations), ("merit", fairness.merit))},
    **{f"fairness-{name}": Table(rows, ("fairness-attacks.json",))
       for name, rows in (("attacks", fairness.attacks), ("outside", fairness.outside))},
    "fairness-policy": Table(fairness.policies, ("fairness-policy.json",)),
    "fluid-statements": Table(fluid.statements, ("fluid-statements.json",)),
    "fluid-fit": Table(fluid.fit),
    "fluid-constants": Table(fluid.constants),
    "fluid-within": Table(fluid.within),
    "interface-signals": Table(interface.signals),
    "interface-sets": Table(interface.sets),
    "interface-actions": Table(interface.actions),
    "interface-terms": Table(interface.terms),
    "interface-rewards": Table(interface.rewards),
    "kernel": Table(kernel.bands, ("kernel-bands.json",)),
    "switches": Table(kernel.switches, ("kernel-switches.json",)),
    "programs": Table(kernel.programs, ("kernel-programs.json",)),
    "coverage": Table(papers.summary),
    **{f"coverage-{name.lower()}": Table(partial(papers.rows, paper=name)) for name in papers.papers()},
    "live": Table(kernel.live),
    "quic-v1": Table(suites.quic, ("quic-v1.json",)),
    "reproduction": Table(suites.reproduction),
    **{f"paper-{name}": Table(partial(suites.statements, suite=name)) for name in suites.papers()},
    **{name: Table(partial(suites.senders, suite=name), ("links.json",)) for name in ("cellular-v1", "leo-v1", "wifi-v1")},
    "fct-v1": Table(partial(suites.senders, suite="fct-v1"), ("flows.json",)),
    "worst-case-v2": Table(suites.worst_cases, ("worst-case-v2.json",)),
    "theorems-grid": Table(theorems.grid, ("grid.json",)),
    "theorems-constants": Table(theorems.constants, ("grid.json",)),
    "theorems-lassos": Table(theorems.lassos, ("theorems.json",)),
    "training-scores": Table(training.scores, ("learning.json",)),
    "training-worst": Table(training.worst, ("learning.json",)),
    "training-zoo": Table(training.zoo, ("learning.json",)),
    "self-play": Table(self_play.runs, ("self-play.json",)),
}  # fmt: skip


def fill(text: str) -> str:
    """Return a page with its tables in place of their fences. Raises KeyError for the name of no table."""
    return _FENCE.sub(lambda found: f"{found['caption']}\n{markdown(TABLES[found['name']].build())}", text)


def named(text: str) -> list[str]:
    """Return the names of the tables of a page."""
    return [found["name"] for found in _FENCE.finditer(text)]
