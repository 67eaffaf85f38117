"""The registry of searches, the default panel, and adversaries that are played as they are: scripted, learned, and replays.

A replay repeats the network moves of a solver's counterexample ([CCmatic] s.4, CEGIS), which often hurt other senders too.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ccenv.adversaries import ADVERSARIES
from ccenv.adversaries.learned import is_adversary
from ccenv.adversaries.load import USER_ADVERSARIES, load_adversary
from ccenv.base.errors import unknown_name
from ccenv.base.registry import Registry, build
from ccenv.base.user.loader import Loaded, UserKind
from ccenv.base.user.python_file import is_python_file
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.trace import load_trace

if TYPE_CHECKING:  # commands that only list searches need no engine
    from ccenv.attacks.game import Found, Game

SEARCHES = Registry("adversary")

for _name, _target, _summary in (
    ("corners", "patterns:Corners", "all constant moves of 0, 1 (and 1/2) per choice"),
    ("random_search", "patterns:RandomSearch", "random periodic patterns"),
    ("cem", "population:search_cem", "cross-entropy method over periodic patterns (parameters population, elite_share)"),
    ("cma_es", "population:search_cma_es", "CMA-ES over periodic patterns (parameter population; extra attack)"),
    ("greedy", "lookahead:search_greedy", "decision by decision on snapshots, one-step (parameters interval_rtts, horizon_rtts)"),
    ("evolution", "evolution:search", "whole scenarios, path and moves, with novelty (parameter population)"),
    ("beam", "lookahead:search_beam", "as greedy, but several prefixes live on (parameters width, interval_rtts, horizon_rtts)"),
    (
        "solver",
        "solver:search",
        "the solver's worst continuation, again and again (parameters steps, asks, time_limit_s; extra verify)",
    ),
    ("mutation", "mutation:search", "a far beam, then changed piece by piece (parameters width, interval_rtts, horizon_rtts)"),
    ("two_phase", "two_phase:search", "two patterns, one after the other, then changed piece by piece (parameter population)"),
):
    SEARCHES.add(_name, f"ccenv.attacks.searches.{_target}", tags=("search",), summary=_summary)
for _name, _target, _summary in (
    (
        "cem",
        "policies:search_policy_cem",
        "cross-entropy method over small policies on the network's observation (parameters population, changes)",
    ),
    ("cma_es", "policies:search_policy_cma_es", "CMA-ES over the same policies (parameter population; extra attack)"),
    (
        "ppo",
        "policies:search_policy_ppo",
        "a policy of the same kind trained by PPO (parameters environments, hidden; extra train)",
    ),
):
    SEARCHES.add(f"policy_{_name}", f"ccenv.attacks.searches.{_target}", tags=("search",), summary=_summary)
for _name, _target, _summary in (
    (
        "slow_link",
        "slow_link:search",
        "theorem 2 of [Starvation]: jitter emulates a slower link (parameters slowest_share, rates)",
    ),
    (
        "strong_starvation",
        "starvation:search_strong",
        "theorem 3 of [Starvation], model strong: delays peeled off D by D (parameters ratio, rtts)",
    ),
    ("starvation", "starvation:search", "theorem 1 of [Starvation]: one of two flows starves (parameters ratio, converge_rtts)"),
):
    SEARCHES.add(_name, f"ccenv.attacks.constructions.{_target}", tags=("emulation",), summary=_summary)

PANELS: dict[str, tuple[str, ...]] = {
    "v1": ("corners", "slow_link", "random_search", "cem", "greedy", "beam"),
    "v2": ("corners", "slow_link", "cem", "two_phase", "mutation", "policy_cem"),
}
"""The panels by version: adversaries without extra dependencies. Records name their adversaries."""

PANEL: tuple[str, ...] = PANELS["v2"]
"""The default adversaries of an attack."""


class Search(Protocol):
    """A search over moves.

    A search of more than one run also has ``least_flow_steps(game)``: its smallest budget, or its cost if the weight is 0.
    """

    @property
    def weight(self) -> float:
        """Share of a common budget; 0: it needs a fixed number of steps, whatever the budget."""

    def run(self, game: Any, budget_flow_steps: int, seed: int) -> Found:
        """Search for at most so many flow-steps and return the worst run found."""


def make_search(spec: str, *, code: bool = True) -> Search:
    """Build a search, or wrap an adversary that is played as it is.

    Raises UnknownNameError if nothing has this name; InputError if a parameter is unknown or out of range.

    Args:
        spec: a search of SEARCHES with optional parameters (``"cem:population=128"``), a scripted adversary (``"hoard"``), the
            files of a learned one, a solver's trace (``.npz``), or code of a user: a plugin, or a Python file with an adversary
            (``ccenv.adversaries.load``) or a function ``search`` that returns a Search.
        code: the spec may name code of a user, because the user gave it and not a suite or a record of others.
    """
    name = spec.partition(":")[0]
    if name in SEARCHES:
        search: Search = build(SEARCHES, spec)
        return search
    if spec.endswith(".npz"):
        return Replay(spec)
    if name in ADVERSARIES or is_adversary(spec):
        return Scripted(spec)
    if code and is_python_file(spec):
        return USER_SEARCHES.load(spec).value
    if code and USER_ADVERSARIES.is_user(spec):
        return Scripted(spec)
    raise unknown_name("adversary", name, [*SEARCHES.names(), *ADVERSARIES.names()])


def _accept(code: Loaded[Any]) -> Search | None:
    search: Search = code.value
    if code.attribute not in ("", "search") or isinstance(search, ModuleType):
        return Scripted(code.spec)
    return (
        search if callable(getattr(search, "run", None)) and isinstance(getattr(search, "weight", None), (int, float)) else None
    )


USER_SEARCHES: UserKind[Search] = UserKind(
    "search",
    lambda: [*SEARCHES.names(), *ADVERSARIES.names()],
    "search",
    _accept,
    "a function search() that returns an object with weight and run(), or an adversary",
    fallback=lambda module, file: module,
    registered="adversary",
    plugins=False,
)


@dataclass(frozen=True)
class Replay:
    """Plays the moves of a trace file with one step per Rm on ideal, cbr_delay or ccac, as ``ccenv verify`` stores."""

    file: str
    weight: float = 0.0

    def least_flow_steps(self, game: Game) -> int:
        """Return the cost: a run per step of the trace."""
        return load_trace(self.file).n_steps * game.run_flow_steps

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the run of the worst shift, since the outcome depends on the first step."""
        from ccenv.attacks.game import Found
        from ccenv.proofs.formulas.moves import as_adversary

        trace = load_trace(self.file)
        rows = np.repeat(as_adversary(trace).moves, game.scene.steps_per_rtt, axis=0)[:, game.open_moves]
        shifts = np.arange(len(rows) // game.scene.steps_per_rtt) * game.scene.steps_per_rtt
        moves = game.moves(np.stack([np.roll(rows, -shift, axis=0) for shift in shifts]))
        utilisation = game.play(moves)
        worst = int(np.argmin(utilisation))
        details = {"made_for": trace.header.senders[0], "steps": trace.n_steps, "starts_at_step": worst}
        return Found(RecordedAdversary("replay", moves[worst]), details=details)


@dataclass(frozen=True)
class Scripted:
    """One run against an adversary of ``ccenv.adversaries``, by its spec for ``load_adversary``."""

    spec: str
    weight: float = 0.0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        from ccenv.attacks.game import Found

        result = Found(load_adversary(self.spec))
        game.flow_steps += game.run_flow_steps
        return result
