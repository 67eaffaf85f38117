"""Attacks on senders of QUIC stacks: moves that a search in the curve engine found, and a search against the stack itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ccenv.agents import make_sender
from ccenv.attacks.game import Game, Scene, generator
from ccenv.attacks.searches.mutation import mutate
from ccenv.attacks.searches.patterns import RandomSearch, constants
from ccenv.live.attacks import shipped_moves
from ccenv.network.adversary import StoredMoves, load_moves
from ccenv.network.path import MBPS_IN_BPS
from ccenv.quic.run import Control, QuicResult, compile_sender, run_quic
from ccenv.quic.stacks import get_stack
from ccenv.quic.stacks.stack import Stack

COUNTERPARTS = {"bbr": "bbr1"}  # controls of stacks, by the sender of the engine whose moves are played
BUDGET_S = 60.0
RANDOM_SHARE = 0.4  # of the runs of a search; the rest mutates the worst so far
MOST_RUNS = 1_000_000


@dataclass
class QuicGame(Game):
    """A game of the curve engine's searches that is played against a stack."""

    stack: Stack
    sender: Control  # as :func:`compile_sender` returns it
    stored: StoredMoves  # moves, whose path, grid and window hold
    told: Callable[[int], None] | None = None
    worst: QuicResult = field(init=False)  # of all runs so far
    runs: int = 0
    illegal: list[str] = field(default_factory=list)  # what the law checker said about them

    def __post_init__(self) -> None:
        head = self.stored.header
        K = head.steps_per_rtt
        first, steps = head.first_row // K, len(self.stored.moves) // K
        super().__init__(
            Scene(make_sender("reno"), head.path, head.model, steps_per_rtt=K, warmup_rtts=first, window_rtts=steps - first)
        )

    def run(self, moves: np.ndarray | None, adversary: str) -> QuicResult:
        """Play one run; None: calm."""
        result = run_quic(
            self.stack, [self.sender], self.scene.path, steps=self.n_steps, moves=moves, first_row=self.first_row,
            adversary=adversary, steps_per_rtt=self.scene.steps_per_rtt,
        )  # fmt: skip
        self.runs += 1
        self.illegal += result.violations
        if self.runs == 1 or result.utilisation < self.worst.utilisation:
            self.worst = result
        if self.told is not None:
            self.told(self.runs)
        return result

    def play(self, moves: np.ndarray) -> np.ndarray:
        """Return the utilisation under several sequences of moves."""
        return np.array([self.run(row, "a search against the stack").utilisation for row in moves])


def attack_quic(
    stack: str,
    sender: str,
    *,
    search: bool = False,
    budget_s: float = BUDGET_S,
    seed: int = 0,
    told: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Attack a sender of a stack.

    With ``search`` also against the stack itself, from the stored moves on; the number of runs follows from the CPU time of one.
    ``told`` receives the runs played and planned.

    Returns:
        dict: the JSON object of ``ccenv quic attack``: utilisation without and under the moves, and whether all runs were legal.
    """
    chosen = get_stack(stack)
    files = shipped_moves()
    name = COUNTERPARTS.get(sender, sender)
    played: list[dict[str, Any]] = []
    games: list[QuicGame] = []
    for found_against in [name] if name in files else sorted(files):  # without moves of its own: the worst of the others
        stored = load_moves(files[found_against])
        compiled = compile_sender(chosen, sender, stored.header.path, stored.header.dt_s)
        game = QuicGame(chosen, compiled, stored)
        calm = game.run(None, "calm")
        attacked = game.run(stored.moves, stored.adversary.name)
        played.append({
            "found_against": stored.header.sender, "found_by": stored.header.adversary, "simulated": stored.header.utilisation,
            "calm": calm.utilisation, "utilisation": attacked.utilisation, "losses": attacked.losses,
        })  # fmt: skip
        games.append(game)
    row = int(np.argmin([one["utilisation"] for one in played]))
    game, path = games[row], games[row].scene.path
    out: dict[str, Any] = {
        "stack": stack,
        "sender": sender,
        "rate_mbps": path.link_rate_Bps / MBPS_IN_BPS,
        "rtt_ms": 1e3 * path.flows[0].rtt_s,
        "jitter_ms": 1e3 * path.flows[0].jitter_s,
        "buffer_bdp": path.buffer_bytes / path.bdp_bytes,
        "calm": played[row]["calm"],
        "shipped_moves": played,
    }
    if search:
        begun_s = time.process_time()
        game.run(game.stored.moves, "timed")
        planned = int(max(2, min(MOST_RUNS, budget_s / max(1e-6, time.process_time() - begun_s))))
        game.told = None if told is None else lambda runs: told(runs, planned)
        out["search"] = search_moves(game, planned, seed)
    worst = game.worst
    out |= {
        "worst": worst.utilisation,
        "worst_network": worst.trace.header.adversary,
        "legal": not any(one.illegal for one in games),
        "runs": sum(one.runs for one in games),
        "hash": worst.hash,
    }
    if worst.records:
        out |= {"twin": worst.difference() is None, "paced_by": chosen.pacer, "beliefs": worst.beliefs()[0]}
    return out


def search_moves(game: QuicGame, runs: int, seed: int) -> dict[str, Any]:
    """Try constant and random patterns, then mutate the worst sequence so far, stored moves included."""
    before = game.runs
    corners = game.moves(constants(game, (0.0, 1.0)))[:runs]
    tried = [*corners, game.stored.moves]
    random_runs = int(RANDOM_SHARE * runs) - len(corners)
    if random_runs > 0:
        found = RandomSearch().run(game, random_runs * game.run_flow_steps, seed)
        tried.insert(-1, np.asarray(found.adversary.moves))  # type: ignore[union-attr]
    outcomes = game.play(np.stack(tried))
    outcome, best = float(outcomes.min()), tried[int(outcomes.argmin())]
    left = runs - (game.runs - before)
    _, after = mutate(game, best, outcome, max(0, left) * game.run_flow_steps, generator(seed, "quic"))
    return {"runs": game.runs - before, "seed": seed, "before_mutation": outcome, "after_mutation": after}
