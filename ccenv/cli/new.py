"""``ccenv new``: starting files for custom senders, adversaries, metrics, suites and more."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated

from ccenv.base.errors import InputError, unknown_name
from ccenv.base.files import write_atomic
from ccenv.cli.options import JsonOption, argument, choices, fresh_option
from ccenv.cli.output import print_json, print_text

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True)
class Template:
    """A starting file."""

    file: str  # in `ccenv/cli/templates`
    what: str  # one line of description
    tries: tuple[str, ...]  # commands that use it, with `{file}` and `{name}`


TEMPLATES = {
    "sender": Template(
        "sender.py",
        "a CCA in plain Python",
        (
            "ccenv compare {file} cubic copa --duration 10s -o compare.svg",
            "ccenv attack {file}",
            "ccenv bench run quick --agent {file}",
        ),
    ),
    "compiled": Template(
        "compiled.py",
        "a CCA as compiled functions, at the speed of the shipped ones",
        ("ccenv compare {file} cubic copa --duration 10s -o compare.svg", "ccenv attack {file}"),
    ),
    "adversary": Template(
        "adversary.py",
        "a network that plays",
        ("ccenv attack copa --adversary {file}", "ccenv compare copa bbr3 --network {file} -s jitter=20ms --duration 10s"),
    ),
    "metric": Template("metric.py", "a number computed from runs", ("ccenv compare copa cubic --metric {file} --duration 10s",)),
    "reward": Template(
        "reward.py",
        "a reward for environments, from terms by name",
        (
            "python -c \"import ccenv, gymnasium; print(gymnasium.make('ccenv/Sender-v0', reward='{file}').reset(seed=0)[0])\"",
            "ccenv train quick_sender environment.reward={file} ppo.rollouts=python total_steps=32768",
        ),
    ),
    "signals": Template(
        "signals.py",
        "signals for environments and policies, from those of the table",
        (
            "python -c \"import ccenv, gymnasium; print(gymnasium.make('ccenv/Sender-v0', "
            "signals=['queue_ratio', 'loss_rate', '{file}'], history=8).reset(seed=0)[0])\"",
        ),
    ),
    "suite": Template("suite.yaml", "a benchmark suite", ("ccenv bench run {file}", "ccenv bench report runs/bench/{name}")),
    "config": Template("config.yaml", "a training run", ("ccenv train {file}",)),
    "scenario": Template("scenario.yaml", "an experiment packet by packet", ("ccenv sim {file} --plot {name}.png",)),
    "program": Template(
        "program.json",
        "a belief program, which the solver takes too",
        ("ccenv show {file}", "ccenv compare {file} copa --duration 10s", "ccenv verify property {file} --property invariant"),
    ),
    "shield": Template(
        "shield.json",
        "a program whose leaves are intervals: what is proved of it holds for every choice inside (docs/shields.md)",
        ("ccenv show {file}", "ccenv compare shield:file={file},chooser=middle copa --duration 10s"),
    ),
    "lemmas": Template(
        "lemmas.yaml",
        "lemmas about traces of one sender, with constants to bisect (docs/programs.md)",
        ("ccenv verify lemmas {file}",),
    ),
    "theorem": Template(
        "theorem.yaml",
        "a theorem: lemmas that hold from trace to trace, for ever (docs/programs.md)",
        ("ccenv verify theorem {file}",),
    ),
}


def command(
    kind: Annotated[str, argument("KIND", " | ".join(TEMPLATES), choices(*TEMPLATES))],
    name: Annotated[str, argument("NAME", "What to call it, and its file.")],
    *,
    fresh: Annotated[bool, fresh_option("Replace a file that is there.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a starting file that works as it is.

    Example: ccenv new sender my_cca
    """
    if kind not in TEMPLATES:
        raise unknown_name("kind", kind, TEMPLATES)
    if not _NAME.fullmatch(name):
        raise InputError(f"name is {name!r}; small letters, digits and _ are allowed, a letter first, 40 at most")
    _require_free(kind, name)
    template = TEMPLATES[kind]
    file = Path(name + Path(template.file).suffix)
    if file.exists() and not fresh:
        raise InputError(f"{file} is there already: give another name, or --fresh to replace it")
    write_atomic(file, render_template(kind, name).encode())
    tries = [text.format(file=file, name=name) for text in template.tries]
    if json:
        print_json({"file": file, "kind": kind, "try": tries})
        return
    print_text(f"wrote {file}: {template.what}. Try:")
    for text in tries:
        print_text(f"  {text}")


def render_template(kind: str, name: str) -> str:
    source = (resources.files("ccenv.cli.templates") / TEMPLATES[kind].file).read_text(encoding="utf-8")
    return source.replace("{name}", name).replace("{{", "{").replace("}}", "}")


def _require_free(kind: str, name: str) -> None:
    """Raise InputError for a name that something shipped with ccenv already has."""
    from ccenv.adversaries import ADVERSARIES
    from ccenv.agents import AGENTS
    from ccenv.attacks.catalog import SEARCHES
    from ccenv.network.metrics.table import METRICS

    taken = {"adversary": [*ADVERSARIES.names(aliases=True), *SEARCHES.names()], "metric": list(METRICS)}
    taken |= dict.fromkeys(("sender", "compiled", "program", "shield"), AGENTS.names())
    if name in taken.get(kind, ()):
        raise InputError(f"{name!r} is the name of a {kind} that comes with ccenv; give another name")
