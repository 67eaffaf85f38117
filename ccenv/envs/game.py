"""``ccenv/Game-v0``: a solved game of sender and network on an integer grid, for the sender."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces
from pydantic import Field

from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import InputError, shown
from ccenv.envs.common.adapters import TaskEnv, TaskVectorEnv
from ccenv.envs.common.episodes import Episodes
from ccenv.proofs.games import kernels
from ccenv.proofs.games.boards import explore
from ccenv.proofs.games.game import load_game
from ccenv.proofs.games.values import Solved

_ID = "ccenv/Game-v0"
MOST_BYTES = 1_000_000_000
"""Largest tables of a game that an environment holds."""
LARGEST_ACTION = 2**31
TERMS = ("regret", "decision_regret_sum", "lost")


class GameSettings(StrictModel):
    """What an environment of a game takes.

    Attributes:
        game: a shipped game (``ccenv list configs``, kind solve) or a YAML file.
        network: ``optimal``: one of the worst answers to the action, drawn; ``random``: any possible answer.
        horizon_steps: instead of the game's.
    """

    game: str = "cbr_small"
    network: Literal["optimal", "random"] = "optimal"
    horizon_steps: int | None = Field(default=None, ge=1, le=10_000, strict=True)


def read_game_settings(settings: dict[str, Any], where: str = _ID, defaults: dict[str, Any] | None = None) -> GameSettings:
    """Return checked settings. Raises InputError."""
    return validate(GameSettings, {**(defaults or {}), **settings}, where)


@lru_cache(maxsize=4)
def solved_game(name: str, horizon_steps: int | None) -> Solved:
    """Return a game solved, the last ones kept. Raises InputError for one whose tables are too large for an environment."""
    game = load_game(name)
    if horizon_steps is not None:
        game = game.changed(horizon_steps=horizon_steps)
    boards = explore(game)
    size = 4 * len(boards) * (game.horizon_steps + 1 + len(boards.tuples))
    if size > MOST_BYTES:
        raise InputError(
            f"game {game.name!r}: its tables take {size / 1e9:.1f} GB; an environment holds up to {MOST_BYTES / 1e9:g} GB: "
            "fewer rates or buffers, or a shorter horizon"
        )
    return Solved(boards)


class GameCore(Episodes):
    """A batch of runs of a solved game, and the sender's view of it (``ccenv.envs.common.episodes.Task``).

    Attributes:
        solved: the game; an episode ends at its horizon.
        board: (B,) where each run is.
    """

    term_names = TERMS
    terminates = True
    rows_per_env = 1

    def __init__(self, num_envs: int, settings: GameSettings, record: bool = False, answer: int | None = None) -> None:
        """Solve the game and put all runs on its first board.

        ``record`` is for pictures, which a game has none of here; ``answer`` says how the network plays, instead of the settings.
        """
        if record:
            raise InputError("render_mode must be None: ccenv solve GAME --out draws a line of play")
        self.solved = solved_game(settings.game, settings.horizon_steps)
        super().__init__(num_envs, self.solved.horizon_steps, (1, len(TERMS)))
        boards = self.solved.boards
        by_settings = kernels.OPTIMAL if settings.network == "optimal" else kernels.DRAWN
        self._answer = by_settings if answer is None else answer
        self._graph = (boards.first_action, boards.first_edge, boards.delivered, boards.lost, boards.target)
        self._fastest = boards.fastest.astype(np.int64)
        self.n_actions, self.n_answers = boards.game.most_sent + 1, int(np.diff(boards.first_edge).max())
        self._legal = (np.arange(self.n_actions) < boards.actions[:, None]).astype(np.int8)
        self.single_observation_space = spaces.Box(0.0, 1.0, (boards.seen.shape[1] + 1,), np.float32)
        self.single_action_space: spaces.Space[Any] = spaces.Discrete(self.n_actions)
        self._keys = np.stack(self.keys(), axis=1).astype(np.float64)
        self.board = np.zeros(num_envs, np.int64)
        self.reward, self._error, self._lost = np.zeros(num_envs), np.zeros(num_envs), np.zeros(num_envs)

    @property
    def core(self) -> GameCore:
        """The batch, as the adapters ask a task for it."""
        return self

    def _start(self, indices: np.ndarray) -> None:
        self._begin(indices, np.zeros(len(indices)))
        self._keys[indices], self.board[indices] = np.stack(self.keys(indices), axis=1), 0

    def step(self, actions: np.ndarray, answers: np.ndarray | None = None) -> np.ndarray:
        """Take one step with the actions of all environments; return the rewards (B,)."""
        kernels.play(
            *(self._graph, self.solved.table, self._fastest, self._answer, self._keys, self.elapsed, self.board),
            *(whole_actions(actions, self.num_envs), self.elapsed if answers is None else answers),
            *(self.reward, self._error, self._lost),
        )
        self.sums[:, 0] += np.stack([-self.reward, self._error, self._lost], axis=1)
        return self.reward.copy()

    def step_info(self, rows_per_env: int = 1) -> dict[str, np.ndarray]:
        """Return how much worse than the best each decision was, and what the regret comes to under best play from here."""
        del rows_per_env
        done = np.asarray(self.solved.table[self.episode_steps - self.elapsed, self.board], dtype=np.float64)
        earlier = -self.sums[:, 0, 0] + self._fastest[self.board] * self.elapsed
        return {"decision_regret": self._error.copy(), "least_regret": done - earlier}

    def means(self, mask: np.ndarray) -> np.ndarray:
        """Return the sums of an episode's terms, (sum(mask), 1, terms): regret, regret of decisions, packets lost."""
        sums: np.ndarray = self.sums[mask]
        return sums

    def observe(self) -> np.ndarray:
        """Return what the boards of all runs say, and the share of the steps that are left, (B, elements) float32."""
        left = (self.episode_steps - self.elapsed) / self.episode_steps
        return np.concatenate([self.solved.boards.seen[self.board], left[:, None]], axis=1, dtype=np.float32)

    def infos(self) -> dict[str, np.ndarray]:
        """Return the legal actions, (B, n_actions) of 0 and 1."""
        return {"action_mask": self._legal[self.board]}


def whole_actions(actions: Any, num_envs: int) -> np.ndarray:
    """Return actions as (B,) whole numbers from 0 on. Raises InputError for another shape, fractions, NaN and numbers below 0."""
    values = np.asarray(actions)
    if values.size != num_envs or values.dtype.kind not in "biuf":
        raise InputError(f"actions of shape {values.shape}; one whole number for each of {num_envs} environments is needed")
    if not np.all((values >= 0) & (values < LARGEST_ACTION) & (values == np.floor(values))):
        raise InputError(f"actions are {shown(values.ravel()[:4].tolist())}; whole numbers from 0 on are needed")
    return values.reshape(num_envs).astype(np.int64)


class GameEnv(TaskEnv):
    """Send whole packets into a network that plays the worst legal answer, and be told the exact regret of each decision.

    ## Description
    The game of [CCmatic] s.4 on an integer grid, solved (docs/games.md): a step is one Rm, data are packets. The board is the
    exact belief set, all paths (C, beta, queue or tokens) that explain what was seen; no other sender knows more. The network
    answers how many packets it delivers and loses.

    ## Observation Space
    `Box`, float32 in [0, 1]: for each tuple of the belief set whether it is still possible; packets in flight over the game's
    cap; packets sent whose answer is not known yet (late feedback) over the largest action; the share of the steps that are left.

    ## Action Space
    `Discrete(2 C_max + 2)`: packets to send. Legal are those up to some number, which keep to the game's allowance of loss and
    its cap whatever the network answers; of any other number nothing is sent. ``action_mask`` of the info has them.

    ## Rewards
    Packets delivered less what C_U t has grown by, C_U the greatest rate still possible: the sum over an episode is exactly minus
    the regret, C_U H - S. Best play against the optimal network gives minus the value of the game.

    ## Starting State
    All paths of the game are possible, nothing is in flight. Seeds: everything is keyed by (seed, environment, episode).

    ## Episode End
    Terminated after the game's horizon. The info of every step holds ``decision_regret`` (packets by which the decision is worse
    than the best one, exactly), ``least_regret`` (of the episode, under best play of both from here) and ``action_mask``; that of
    the last step also the episode's sums ``regret``, ``decision_regret_sum`` and ``lost``.

    ## Arguments
    The fields of ``ccenv.envs.game.GameSettings``: ``game``, ``network``, ``horizon_steps``.

    ## Version History
    * v0: initial version.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]
    task: GameCore

    env_id = _ID
    read_settings = staticmethod(read_game_settings)
    make_task = GameCore

    def action_masks(self) -> np.ndarray:
        """Return the legal actions, as the maskable PPO of sb3-contrib asks for them."""
        return np.asarray(self.task.infos()["action_mask"][0], dtype=np.bool_)


class GameVectorEnv(TaskVectorEnv):
    """A batch of ``GameEnv``; see there."""

    single = GameEnv
