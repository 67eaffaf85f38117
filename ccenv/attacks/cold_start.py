"""The solver as an adversary from a cold start: an empty path, uninformed beliefs, the engine's first step.

Two questions about the windows of a claim, in runs of whole belief periods (``ccenv.proofs.theorems.lasso``):

- ``worst_cold_start``: the worst window that ends at some round trip. Its moves are played against the sender's code, and the
  engine's measurement counts.
- ``cold_bound``: a lower bound for such windows at any time. Windows of the first period start from the cold start itself, later
  ones from any state one period before the one in which they begin, which every run has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from ccenv.attacks.game import Game, Scene
from ccenv.attacks.windows import NO_WINDOW
from ccenv.network.laws import check_trace

if TYPE_CHECKING:
    from ccenv.proofs.formulas.encode import Needs
    from ccenv.proofs.formulas.view import View
    from ccenv.proofs.solver.solvers import Answer
    from ccenv.proofs.solver.terms import Formula, Term
    from ccenv.proofs.theorems.lasso import Periods

ENDS_RTTS = (13, 17, 20, 23, 25)
"""Ends of the windows from a cold start, in round trips."""

FINEST = Fraction(1, 64)
"""Resolution of the bounds."""

NOTHING_KNOWN = 1000
"""C_U at the start, in C: the engine's is infinite."""

Start = Literal["cold", "any"]


@dataclass(frozen=True)
class Window:
    """A window of T samples in a run of the solver: from sample ``first`` of the run, with last index ``last`` = T - 1."""

    run: Periods
    first: int
    last: int

    def series(self, name: str) -> list[Term]:
        """Return ``rate``, ``inflight``, ``queue`` or a belief, sample by sample."""
        positions = [self.run.at(self.first + step) for step in range(self.last + 1)]
        if name in ("inflight", "queue"):
            return [getattr(view, name)(t) for view, t in positions]
        return [getattr(view, name)[t] for view, t in positions]

    @property
    def delivered(self) -> Term:
        return self.run.delivered(self.first, self.first + self.last)


def still_window(beliefs: frozenset[str]) -> Callable[[Window], Formula]:
    """The premise ``ccenv.attacks.windows.still`` as a formula; beliefs are true in every run."""
    from ccenv.proofs.solver.terms import all_of

    def premise(window: Window) -> Formula:
        rests = [window.series(name) for name in ("rate", "inflight", "queue")]
        parts = [later == series[0] for series in map(window.series, sorted(beliefs)) for later in series[1:]]
        return all_of([*parts, *(series[-1] <= series[1] for series in rests)])

    return premise


def converged_window(low: Fraction, high: Fraction, most_queue: Fraction) -> Callable[[Window], Formula]:
    """The premise ``ccenv.attacks.windows.converged`` as a formula."""
    from ccenv.proofs.solver.terms import all_of

    def premise(window: Window) -> Formula:
        lower, upper, queue = (window.series(name) for name in ("C_L", "C_U", "queue"))
        jitter_steps = window.run.first.setting.jitter_steps
        parts = [lower[0] >= low, upper[0] <= high, queue[0] <= most_queue * (1 + jitter_steps)]
        parts += [lower[t] >= lower[t - 1] for t in range(1, window.last)]
        parts += [upper[t] <= upper[t - 1] for t in range(1, window.last)]
        return all_of(parts)

    return premise


@dataclass(frozen=True)
class ColdStart:
    """The solver's results on windows in runs from a cold start."""

    utilisation: float | None  # of the worst window that the engine reproduced, or None
    legal: bool  # the independent checker accepts its trace
    none_below: float | None  # by the solver no window that ends at one of `ends_rtts` uses less; None: not asked
    ends_rtts: tuple[int, ...]
    bound: float | None  # no window of any run from a cold start uses less, at any time; None: undecided
    seconds: float


@dataclass
class Questions:
    """Queries for windows below some utilisation."""

    scene: Scene  # in proof timing, with the claim whose windows count
    premise: Callable[[Window], Formula]  # of the claim, as a formula
    spec: str  # name of the sender's encoding
    buffer: str  # name of the solver's buffer; its size is the path's
    time_limit_s: float  # per solver call
    seed: int
    seconds: float = 0.0

    def ask(self, start: Start, end: int, less_than: Fraction) -> tuple[Answer, Periods]:
        """Ask for a run with a window of lower utilisation that ends at a sample, in Rm from the run's start.

        It starts ``cold``, or in ``any`` state that the laws of one sample allow.
        """
        from ccenv.proofs.solver.solvers import Store, solve, version_of

        run = _build_run(self.spec, self.scene.model, self.buffer, end)
        window = Window(run, end + 1 - self.scene.claim.samples, self.scene.claim.samples - 1)
        counted = window.last - run.first.setting.jitter_steps
        path = list(self._cold_state(run.first) if start == "cold" else self._path_numbers(run.first))
        text = run.text(*path, self.premise(window), window.delivered < less_than * counted)
        store = Store()
        answer = store.load(text, version_of("z3"))
        if answer is None:
            answer = solve(text, "z3", self.time_limit_s, self.seed)
            about = {"name": f"window from {start} start", "sender": self.spec, "end_rtts": end, "less_than": str(less_than)}
            store.save(text, answer, about)
        self.seconds += answer.seconds
        return answer, run

    @cached_property
    def _segments(self) -> Fraction:
        path = self.scene.path
        return Fraction(path.link_rate_Bps * path.flows[0].rtt_s / path.mss_bytes).limit_denominator(10_000)

    def _path_numbers(self, v: View) -> Iterator[Any]:
        path = self.scene.path
        yield v.alpha == 1 / self._segments
        if v.beta is not None:
            yield v.beta == Fraction(path.buffer_bytes / path.mss_bytes).limit_denominator(10_000) / self._segments

    def _cold_state(self, v: View) -> Iterator[Any]:
        """Yield the engine's initial state: an empty path, no past, C_L = MSS/Rm, C_U unknown."""
        from ccenv.proofs.solver.terms import negate

        yield from self._path_numbers(v)
        yield from (value == 0 for value in (v.E[0], v.G[0], *v.E_before))
        yield v.rate[0] == v.alpha
        if v.beta is not None:
            yield negate(v.lost_at_0)
        if v.loss_seen[0] is not False:
            yield negate(v.loss_seen[0])
        for flags in (v.late[0], v.first_late[0]):
            yield from (negate(flag) for flag in flags.values())
        for name, value in (("C_L", v.alpha), ("C_U", NOTHING_KNOWN)):
            series = getattr(v, name)
            if series is not None:
                yield series[0] == value
        yield from (negate(flag) for flag in v.extra.get("utilised_before", []))


@lru_cache(maxsize=32)
def _build_run(spec: str, model: str, buffer: str, rtts: int) -> Periods:
    from ccenv.proofs.claims.claims import BELIEF_BOUNDS
    from ccenv.proofs.formulas.encode import Needs
    from ccenv.proofs.formulas.setting import BeliefRules, Setting
    from ccenv.proofs.senders.catalog import smt_sender
    from ccenv.proofs.theorems.lasso import periods

    base = Setting(model, buffer, beliefs=BeliefRules(upper="exact", lambda_extra_steps=0))
    needs: Needs = Needs(BELIEF_BOUNDS)
    return periods(base, smt_sender(spec), needs, rtts)


def cold_bound(ask: Questions, low: Fraction, high: Fraction) -> Fraction | None:
    """Return the largest multiple of FINEST that is proved as a lower bound for windows of runs from a cold start."""
    from ccenv.proofs.claims.lemma_run import bisect
    from ccenv.proofs.theorems.lasso import PERIOD_RTTS

    last = ask.scene.claim.samples - 1
    windows: list[tuple[Start, int]] = [("any", PERIOD_RTTS + first + last) for first in range(PERIOD_RTTS)]
    windows += [("cold", first + last) for first in range(PERIOD_RTTS)]

    def decide(value: Fraction) -> tuple[Any, Any]:
        for window in list(windows):
            answer, _ = ask.ask(*window, value)
            if answer.status != "unsat":
                windows.remove(window)
                windows.insert(0, window)  # there may be a worse one
                return ("refuted" if answer.status == "sat" else "unknown"), None
        return "verified", None

    return bisect(decide, "largest", low, high, FINEST).proved


def worst_cold_start(ask: Questions, low: Fraction, most: Fraction, ends_rtts: Sequence[int] = ENDS_RTTS) -> ColdStart:
    """Find the worst window of a run from a cold start, and a lower bound."""
    proved = cold_bound(ask, low, most)
    floor, best = max(low, proved or low), most
    utilisations, legal, floors = [], True, []
    for end in ends_rtts:
        none_below = floor
        while best - none_below > FINEST:
            tried = _choose_between(none_below, best)
            answer, run = ask.ask("cold", end, tried)
            if answer.status == "unsat":
                none_below = tried
                continue
            if answer.status != "sat":
                break
            value, is_legal = _play_run(ask.scene, run, answer, end)
            legal = legal and is_legal
            utilisations.append(value)
            best = min(tried, Fraction(value).limit_denominator(4096)) if value < NO_WINDOW else tried
        floors.append(none_below)
    reached = [value for value in utilisations if value < NO_WINDOW]
    return ColdStart(
        min(reached, default=None),
        legal,
        float(min(floors)) if floors else None,
        tuple(ends_rtts),
        None if proved is None else float(proved),
        round(ask.seconds, 1),
    )


def _choose_between(low: Fraction, high: Fraction) -> Fraction:
    """Return a multiple of FINEST near the middle, above low."""
    steps = int((high - low) / FINEST / 2)
    return (int(low / FINEST) + max(1, steps)) * FINEST


def _play_run(scene: Scene, run: Periods, answer: Answer, end: int) -> tuple[float, bool]:
    """Play the network's moves of a run against the sender's code; return the worst window's utilisation and legality."""
    from ccenv.proofs.formulas.moves import as_adversary
    from ccenv.proofs.formulas.view import as_trace

    moves = as_adversary(as_trace(run.replayed(answer).as_one(), scene.sender.name))
    game = Game(replace(scene, warmup_rtts=0, window_rtts=end, calm_rtts=0))
    trace = game.trace(moves)
    return game.measure(trace), not check_trace(trace)
