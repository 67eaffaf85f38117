"""Small policies over the observation of ``ccenv/Network-v0``, as a vector of numbers and as what the kernel evaluates."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ccenv.attacks.game import Found, Game
from ccenv.attacks.searches.attack_mutation import mutate
from ccenv.adversaries.observation import BDP_SEGMENTS, BUFFER, LARGEST_JITTER, N_FLOW, N_PATH
from ccenv.agents.interface.observation import OBSERVATION_VERSION
from ccenv.base.errors import InputError
from ccenv.network.adversary import MlpAdversary, RecordedAdversary

MIDDLE = 0.5  # an output of zero is the middle of a move's range
# How far each input typically moves in a run: weights of one size then mean the same for all of them.
PATH_SCALE = (4.0, 1.0, 1.0, 4.0, 1.0, 6.0, 1.0)
FLOW_SCALE = (2.0, 2.0, 2.0, 0.2, 1.0, 1.0, 2.0, 4.0, 1.0, 4.0, 1.0, 1.0)
CONSTANT = (BUFFER, LARGEST_JITTER, BDP_SEGMENTS)  # inputs that stay the same in all runs of a scene
MUTATION_SHARE = 0.5  # of the budget: for what no policy of this size can do


@dataclass(frozen=True)
class PolicyShape:
    """The size of a policy, and how often it decides.

    Attributes:
        hidden: units of its one hidden layer (tanh); 0: its moves are linear in the inputs.
        decision_steps: engine steps for which moves are kept.
    """

    hidden: int
    decision_steps: int

    def n_values(self, game: Game) -> int:
        """Return how many numbers describe a policy."""
        n_in, n_out = len(_inputs(game)), len(game.open_moves)
        return (n_in + 1) * self.hidden + (self.hidden + 1) * n_out if self.hidden else (n_in + 1) * n_out

    def adversary(self, game: Game, values: np.ndarray) -> MlpAdversary:
        """Return the policy that (n_values,) numbers describe: layer by layer weights, then biases."""
        inputs, scale = _inputs(game), _scale(game)
        widths = [len(inputs), self.hidden, len(game.open_moves)] if self.hidden else [len(inputs), len(game.open_moves)]
        weights, biases, at = [], [], 0
        for n_in, n_out in itertools.pairwise(widths):
            weights.append(values[at : at + n_in * n_out].reshape(n_in, n_out))
            biases.append(values[at + n_in * n_out : at + (n_in + 1) * n_out])
            at += (n_in + 1) * n_out
        first = np.zeros((len(scale), widths[1]))
        first[inputs] = weights[0] / scale[inputs][:, None]
        biases[-1] = biases[-1] + MIDDLE
        return MlpAdversary(
            "policy",
            (first, *weights[1:]),
            tuple(biases),
            "tanh",
            OBSERVATION_VERSION,
            game.open_moves,
            self.decision_steps,
            game.scene.warmup_rtts + game.scene.window_rtts,
        )

    def play(self, game: Game, values: np.ndarray) -> np.ndarray:
        """Return what the goal counts against each of several policies, (B, n_values) to (B,)."""
        return game.play_adversaries([self.adversary(game, row) for row in values])


def policy_shapes(game: Game) -> list[PolicyShape]:
    """Return the shapes that are tried: without and with a hidden layer, deciding every Rm, half Rm and quarter of an Rm."""
    K = game.scene.steps_per_rtt
    steps = sorted({max(1, K // parts) for parts in (1, 2, 4)}, reverse=True)
    return [PolicyShape(hidden, every) for hidden in (0, 4) for every in steps]


def _scale(game: Game) -> np.ndarray:
    return np.array([*PATH_SCALE, *(FLOW_SCALE * game.scene.path.n_flows)])


def _inputs(game: Game) -> np.ndarray:
    n_in = N_PATH + N_FLOW * game.scene.path.n_flows
    return np.array([j for j in range(n_in) if j not in CONSTANT])


def require_playable(game: Game, name: str) -> None:
    """Raise InputError if policies cannot be kept quiet for the calm beginning of a run."""
    if game.calm_steps > game.first_row:
        raise InputError(
            f"adversary {name!r} cannot wait until the measured window has begun: calm_rtts is {game.scene.calm_rtts}, "
            f"warmup_rtts {game.scene.warmup_rtts}"
        )


def finish(
    game: Game, name: str, shape: PolicyShape, values: np.ndarray, best: float, left: int, draw: np.random.Generator, **more: Any
) -> Found:
    """Change what a policy does with what is left of a budget (``changed``); the details describe the policy too."""
    found = changed(game, name, shape.adversary(game, values), best, left, draw)
    found.details = {**asdict(shape), **found.details, **more}
    return found


def changed(game: Game, name: str, policy: MlpAdversary, best: float, left: int, draw: np.random.Generator) -> Found:
    """Write down a policy's moves, change them with what is left of a budget, and return the worst sequence, or the policy."""
    details = {"before_mutation": best, "after_mutation": best}
    of_run = game.run_flow_steps
    if left < 2 * of_run:
        return Found(policy, details=details)
    moves, outcome = mutate(game, game.moves_of(policy), best, left - of_run, draw)
    return Found(RecordedAdversary(name, moves), details=details | {"after_mutation": outcome})
