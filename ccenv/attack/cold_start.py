"""The solver as an adversary that starts cold: an empty path, beliefs that know nothing, the engine's own first step.

It looks for the worst window of T samples that ends at a given round trip, from the first step on, and its moves are then played
against the sender's own code. What counts is what the engine measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ccenv.attack.game import Game, Scene
from ccenv.attack.windows import NO_WINDOW
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.laws import check_trace

ENDS_RTTS = (13, 15, 17, 19)
"""Round trips at which the window ends. Belief windows of 10 Rm and time-outs are the engine's alone; its replay decides."""

FINEST = Fraction(1, 64)
"""Steps by which the solver is asked for less."""

NOTHING_KNOWN = 1000
"""C_U at the start, in C: the engine's is infinite."""


@dataclass(frozen=True)
class ColdStart:
    """What the solver found from a cold start.

    Attributes:
        utilisation: of the worst window that the engine reproduced, or None.
        legal: the independent checker accepts its trace.
        none_below: no window that ends at one of ``ends_rtts`` uses less than this, by the solver; None: not decided.
        ends_rtts: ends of the windows looked at.
        seconds: of the solver.
    """

    utilisation: float | None
    legal: bool
    none_below: float | None
    ends_rtts: tuple[int, ...]
    seconds: float


def worst_cold_start(
    scene: Scene, spec: str, buffer: str, most: Fraction, time_limit_s: float, seed: int, ends_rtts: Sequence[int] = ENDS_RTTS
) -> ColdStart:
    """Find the worst still window from a cold start.

    Args:
        scene: proof timing; path, model, sender, and the claim whose windows count.
        spec: name of the sender's encoding.
        buffer: name of the solver's buffer; its size is the path's.
        most: utilisation from which on nothing is looked for.
        time_limit_s: per solver call.
        seed: of the solver.
        ends_rtts: round trips at which windows end.
    """
    found, legal, seconds, floors = [], True, 0.0, []
    for end in ends_rtts:
        asked = most
        while asked > 0:
            verdict, moves, used, spent = _ask(scene, spec, buffer, end, asked, time_limit_s, seed)
            seconds += spent
            if verdict != "refuted" or moves is None:
                floors.append(float(asked) if verdict == "verified" else None)
                break
            game = Game(replace(scene, warmup_rtts=0, window_rtts=end, calm_rtts=0))
            trace = game.trace(moves)
            legal = legal and not check_trace(trace)
            found.append(game.measure(trace))
            asked = min(asked, used) - FINEST
        else:
            floors.append(0.0)
    reached = [value for value in found if value < NO_WINDOW]
    decided = [floor for floor in floors if floor is not None]
    none_below = min(decided) if len(decided) == len(floors) else None
    return ColdStart(min(reached, default=None), legal, none_below, tuple(ends_rtts), round(seconds, 1))


def _ask(
    scene: Scene, spec: str, buffer: str, end: int, less_than: Fraction, time_limit_s: float, seed: int
) -> tuple[str, RecordedAdversary | None, Fraction, float]:
    """Ask for a still window that ends at a round trip and uses less; return verdict, moves, its utilisation and seconds."""
    from ccenv.smt.claims.claims import BELIEF_BOUNDS
    from ccenv.smt.claims.properties import Property
    from ccenv.smt.claims.verifier import Query, Verifier
    from ccenv.smt.network.encode import Needs
    from ccenv.smt.network.export import as_trace
    from ccenv.smt.network.moves import as_adversary
    from ccenv.smt.network.setting import BeliefRules, Setting
    from ccenv.smt.network.view import View
    from ccenv.smt.senders.catalog import smt_sender
    from ccenv.smt.solver.algebra import Formula, all_of, negate

    sender = smt_sender(spec)
    rules = BeliefRules(upper="exact", lambda_extra_steps=0)
    setting = Setting(scene.model, buffer, end + 1, beliefs=rules)
    path, first = scene.path, end + 1 - scene.claim.samples
    segments = Fraction(path.link_rate_Bps * path.flows[0].rtt_s / path.mss_bytes).limit_denominator(10_000)
    beta = None if buffer == "infinite" else Fraction(path.buffer_bytes / path.mss_bytes).limit_denominator(10_000) / segments
    needs = Needs(BELIEF_BOUNDS) | sender.needs(setting)

    def cold(v: View) -> Formula:
        return all_of(_cold(v, 1 / segments, beta))

    def still_and_low(v: View) -> Formula:
        parts: list[Formula] = []
        for name in sorted(needs.bounds):
            series = getattr(v, name)
            parts += [series[t] == series[first] for t in range(first + 1, end + 1)]
        parts += [curve(end) <= curve(first + 1) for curve in (lambda t: v.rate[t], v.inflight, v.queue)]
        counted = end - first - v.setting.jitter_steps
        return all_of([*parts, v.S[end] - v.S[first] < less_than * counted])

    claim = Property("cold start", f"no still window from a cold start uses less than {float(less_than):.4g}",
                     lambda v: negate(still_and_low(v)), needs, cold)  # fmt: skip
    result = Verifier(time_limit_s, seed).decide(Query("cold start", setting, sender, claim))
    view = result.view
    if result.verdict != "refuted" or view is None:
        return result.verdict, None, less_than, result.seconds
    used = (view.S[end] - view.S[first]) / (end - first - setting.jitter_steps)
    return "refuted", as_adversary(as_trace(view, sender.name)), used, result.seconds


def _cold(v, alpha: Fraction, beta: Fraction | None) -> Iterator:  # type: ignore[no-untyped-def, type-arg]
    """Yield the engine's initial state: an empty path, nothing sent or seen before, C_L = C_L_lambda = MSS/Rm, C_U unknown."""
    from ccenv.smt.solver.algebra import negate

    yield v.alpha == alpha
    yield from (value == 0 for value in (v.E[0], v.G[0], *v.E_before))
    yield v.rate[0] == alpha
    if v.beta is not None:
        yield v.beta == beta
        yield negate(v.lost_at_0)
    if v.loss_seen[0] is not False:
        yield negate(v.loss_seen[0])
    for flags in (v.late[0], v.first_late[0]):
        yield from (negate(flag) for flag in flags.values())
    for name, value in (("C_L", alpha), ("C_L_lambda", alpha), ("C_U", NOTHING_KNOWN), ("q_U", 0)):
        series = getattr(v, name)
        if series is not None:
            yield series[0] == value
    yield from (negate(flag) for flag in v.extra.get("utilised_before", []))
