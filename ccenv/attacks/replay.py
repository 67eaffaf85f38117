"""The network moves of a solver's counterexample, played over and over against any sender.

A counterexample ([CCmatic] s.4, CEGIS) says how a network defeats one sender; often it hurts others too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccenv.attacks.game import Found, Game
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.trace import load_trace
from ccenv.proofs.formulas.moves import as_adversary


@dataclass(frozen=True)
class Replay:
    """Play the moves of a trace file; a step of the trace lasts one Rm.

    Attributes:
        file: a trace with one step per Rm on ideal, cbr_delay or ccac, such as ``ccenv verify`` stores.
    """

    file: str
    weight: float = 0.0

    def least_flow_steps(self, game: Game) -> int:
        """Return what it takes: a run per step of the trace."""
        return load_trace(self.file).n_steps * game.run_flow_steps

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the run of the worst shift: which step of the trace comes first changes the outcome."""
        trace = load_trace(self.file)
        rows = np.repeat(as_adversary(trace).moves, game.scene.steps_per_rtt, axis=0)[:, game.open_moves]
        shifts = np.arange(len(rows) // game.scene.steps_per_rtt) * game.scene.steps_per_rtt
        moves = game.moves(np.stack([np.roll(rows, -shift, axis=0) for shift in shifts]))
        utilisation = game.play(moves)
        worst = int(np.argmin(utilisation))
        details = {"made_for": trace.header.senders[0], "steps": trace.n_steps, "starts_at_step": worst}
        return Found(RecordedAdversary("replay", moves[worst]), details=details)
