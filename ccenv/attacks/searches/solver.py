"""The solver as an adversary: the worst legal continuation of an episode, played, and repeated from there.

Bounded model checking (Biere et al., TACAS 1999) from the engine's state. The episode runs in proof timing, one step per Rm; at
each decision the curves and beliefs of the run so far are the query's first sample, and the solver is asked for ever smaller
deliveries in the next W steps. The engine plays its moves and measures the result, since its beliefs also look back beyond the
query (windows of 10 Rm, time-outs). In engine timing each of the moves lasts one Rm, and the rest of the budget mutates the
sequence (``ccenv.attacks.searches.mutation``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.agents.sender import ProgramSender, Sender
from ccenv.attacks.cold_start import NOTHING_KNOWN
from ccenv.attacks.game import Found, Game, generator
from ccenv.attacks.searches.mutation import mutate
from ccenv.attacks.searches.patterns import LEVELS, constants
from ccenv.attacks.windows import Claim, always
from ccenv.base.errors import require_extra
from ccenv.base.registry import number
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.trace import Trace

if TYPE_CHECKING:
    from ccenv.proofs.formulas.encode import SmtSender
    from ccenv.proofs.formulas.view import View

GRID = 1 << 16  # points per C*Rm to which a state is rounded, so that equal numbers stay equal
ASKED_LESS = Fraction(1, 4)  # step between queries, in C*Rm
MODELS = ("ccac", "cbr_delay")


@dataclass(frozen=True)
class Solver:
    """The search."""

    steps: int  # W, length of a continuation in Rm
    asks: int  # most questions per continuation
    time_limit_s: float  # per question; one beyond it is the continuation's last
    weight: float = 4.0

    def _continuation_starts(self, game: Game) -> range:
        return range(max(1, game.scene.calm_rtts), game.scene.warmup_rtts + game.scene.window_rtts, self.steps)

    def least_flow_steps(self, game: Game) -> int:
        """Return the cost of an episode: up to each continuation, and its corners."""
        begins = self._continuation_starts(game)
        each = 1 + int(len(LEVELS) ** len(game.open_moves))
        return each * (sum(begins) + len(begins) * self.steps) + game.n_steps

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the run of all continuations, with corners where the solver has no answer in time.

        Senders without an encoding play on the benign network, with failed preconditions.
        """
        game.require_one_flow("solver")
        require_extra("z3", "verify")
        scene = game.scene
        flow = scene.path.flows[0]
        preconditions = {
            "has_encoding": isinstance(scene.sender, ProgramSender) and scene.sender.start is None,
            "model_is_encoded": scene.model in MODELS,
            "D_is_Rm": round(flow.jitter_s / flow.rtt_s * scene.steps_per_rtt) == scene.steps_per_rtt,
        }
        if not all(preconditions.values()):
            return Found(RecordedAdversary("kind", game.kind[None]), preconditions=preconditions)
        before = game.flow_steps
        twin = Game(replace(scene, timing="smt", steps_per_rtt=1, claim=Claim(2, always, "any")))
        moves, counted = self._episode(twin, game, self._continuation_starts(game), seed)
        full = np.repeat(moves, scene.steps_per_rtt, axis=0)[: game.n_steps]
        outcome = float(game.play(full[None])[0])
        details: dict[str, Any] = {**counted, "before_mutation": outcome}
        left = budget_flow_steps - (game.flow_steps - before)
        full, details["after_mutation"] = mutate(game, full, outcome, left, generator(seed, "solver"))
        return Found(RecordedAdversary("solver", full), preconditions=preconditions, details=details)

    def _episode(self, twin: Game, game: Game, begins: range, seed: int) -> tuple[np.ndarray, dict[str, int]]:
        """Return the moves of an episode in proof timing, and the numbers of continuations and questions answered."""
        sender = encode_program(twin.scene.sender)
        moves = np.tile(twin.kind, (twin.n_steps, 1))
        counts = dict.fromkeys(("continuations", "continued", "asked", "decided", "corners"), 0)
        for row in begins:
            engine = twin.engine(RecordedAdversary("solver", moves), 1, record=True)
            engine.advance(row)
            game.count(engine, row)
            state = engine.trace(0)
            less_than = Fraction(self.steps + 1)
            counts["continuations"] += 1
            length = min(self.steps, twin.n_steps - row)
            for ask in range(self.asks):
                verdict, continuation, delivered_bdp = self._find_continuation(twin, sender, state, less_than, seed)
                counts["asked"] += 1
                counts["decided"] += verdict in ("refuted", "verified")
                if continuation is None:
                    if ask == 0 and verdict == "unknown":
                        moves[row : row + length] = _worst_corner(twin, game, moves, row, length)
                        counts["corners"] += 1
                    break
                counts["continued"] += ask == 0
                moves[row : row + length] = continuation[:length]
                less_than = delivered_bdp - ASKED_LESS
                if less_than <= 0:
                    break
        return moves, counts

    def _find_continuation(
        self, twin: Game, sender: SmtSender, state: Trace, less_than: Fraction, seed: int
    ) -> tuple[str, np.ndarray | None, Fraction]:
        """Ask for a continuation that delivers less; return the verdict, its moves (W, 4) and its delivery in C*Rm."""
        from ccenv.proofs.claims.claims import BELIEF_BOUNDS
        from ccenv.proofs.claims.properties import Property
        from ccenv.proofs.claims.verifier import Query, Verifier
        from ccenv.proofs.formulas.encode import Needs
        from ccenv.proofs.formulas.moves import as_adversary
        from ccenv.proofs.formulas.setting import BeliefRules, Setting
        from ccenv.proofs.formulas.view import as_trace

        path = twin.scene.path
        beta = None if np.isinf(path.buffer_bytes) else round_to_grid(path.buffer_bytes / path.bdp_bytes)
        rules = BeliefRules(upper="exact", lambda_extra_steps=0)
        setting = Setting(twin.scene.model, "infinite" if beta is None else beta, self.steps + 1, beliefs=rules)
        claim = Property(
            "continuation",
            f"the next {self.steps} Rm deliver at least {float(less_than):.4g} C*Rm",
            lambda v: v.S[v.last] - v.S[0] >= less_than,
            Needs(BELIEF_BOUNDS) | sender.needs(setting),
            lambda v: begins_at_state(v, state),
        )
        result = Verifier(self.time_limit_s, seed).decide(Query("continuation", setting, sender, claim))
        if result.verdict != "refuted" or result.view is None:
            return result.verdict, None, less_than
        view = result.view
        return "refuted", as_adversary(as_trace(view, sender.name)).moves, Fraction(view.S[view.last] - view.S[0])


def _worst_corner(twin: Game, game: Game, moves: np.ndarray, row: int, length: int) -> np.ndarray:
    """Return the constant moves (4,) under which the next steps deliver least, played after the moves so far."""
    values = constants(twin)[:, 0]
    plans = np.repeat(moves[None], len(values), axis=0)
    plans[:, row : row + length, twin.open_moves] = values[:, None]
    engine = twin.engine([RecordedAdversary("corner", plan) for plan in plans], len(plans))
    engine.advance(row + length)
    game.count(engine, row + length)
    return np.asarray(plans[int(np.argmin(engine.flow("S")[:, 0])), row])


def encode_program(sender: Sender) -> SmtSender:
    from ccenv.proofs.senders.program import ProgramSmtSender

    if not isinstance(sender, ProgramSender):
        raise TypeError(f"{sender.name} is no belief program")
    return ProgramSmtSender(sender.program)


def round_to_grid(value: float) -> Fraction:
    return Fraction(round(value * GRID), GRID)


def begins_at_state(v: View, state: Trace) -> Any:
    """Return "the view begins where a recorded run in proof timing ends": its curves, losses, rate and beliefs."""
    from ccenv.proofs.solver.terms import all_of, negate

    path = state.header.path
    bdp, rate = path.bdp_bytes, path.link_rate_Bps
    last, origin = state.n_steps, float(state.S[-1, 0])

    def enqueued(back: int) -> Fraction:
        return round_to_grid((float(state.E[max(0, last - back), 0]) - origin) / bdp)

    parts = [
        v.alpha == round_to_grid(path.mss_bytes / bdp),
        v.G[0] == round_to_grid((float(state.G[-1]) - origin) / bdp),
        v.E[0] == enqueued(0),
        v.rate[0] == round_to_grid(float(state.rate_Bps[-1, 0]) / rate),
        *(term == enqueued(back) for back, term in enumerate(v.E_before, 1)),
    ]
    if v.setting.has_loss:
        for flag, back in ((v.lost_at_0, 0), (v.loss_seen[0], 1)):
            lost = last - back >= 1 and state.L[last - back, 0] > state.L[last - back - 1, 0]
            parts.append(flag if lost else negate(flag))
    for name, unit in (("C_L", rate), ("C_U", rate), ("C_L_lambda", rate), ("q_U", bdp)):
        series = getattr(v, name)
        if series is not None:
            value = float(state.beliefs[name][-1, 0]) / unit
            parts.append(series[0] == (Fraction(NOTHING_KNOWN) if np.isinf(value) else round_to_grid(value)))
    return all_of(parts)


def search(steps: int = 8, asks: int = 3, time_limit_s: float = 5.0) -> Solver:
    """Build the search: W of 2 to 20 Rm, 1 to 20 questions per continuation, and a time limit above 0 per question."""
    return Solver(
        int(number("solver", "steps", steps, low=2, high=20, whole=True)),
        int(number("solver", "asks", asks, low=1, high=20, whole=True)),
        number("solver", "time_limit_s", time_limit_s, above=0, high=3600),
    )
