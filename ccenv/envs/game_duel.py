"""``ccenv/GameDuel-v0``: sender and network play a solved game against each other, as a PettingZoo parallel environment."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from ccenv.base.errors import InputError
from ccenv.envs.common.agents import AgentsEnv
from ccenv.envs.game import GameCore, read_game_settings, whole_actions
from ccenv.proofs.games import kernels

SENDER, NETWORK = "sender", "network"
_ID = "ccenv/GameDuel-v0"


class GameDuelEnv(AgentsEnv):
    """Let sender and network each be an agent of a game whose value is known.

    ## Description
    As ``ccenv/Game-v0``, but the network is an agent too: a step of the game is two turns. In the first the sender's action
    counts, in the second the network's, which sees what is sent.

    ## Observation Space
    Both: the elements of ``ccenv/Game-v0``, then whether it is the network's turn, and what is sent over the largest action (0 in
    the sender's turn). The network sees no more of the path than the sender: which path is true is decided by its answers.

    ## Action Space
    Sender: as in ``ccenv/Game-v0``. Network: `Discrete(n)`, the number of one of the possible answers to the action, in the order
    in which the solver has them; a larger one counts as the last. The infos' ``action_mask`` has the legal ones of the coming
    turn.

    ## Rewards
    Sender: as in ``ccenv/Game-v0``, in the network's turn. Network: minus that.

    ## Starting State
    As in Game-v0.

    ## Episode End
    Both are terminated after the game's horizon, of two turns a step. Infos of the sender hold ``decision_regret``.

    ## Arguments
    The fields of ``ccenv.envs.game.GameSettings`` except ``network``.

    ## Version History
    * v0: initial version.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "game_duel_v0", "render_modes": [], "is_parallelizable": True}

    def __init__(self, render_mode: str | None = None, **settings: Any) -> None:
        """Build the environment of some settings; ``render_mode`` is None."""
        if "network" in settings:
            raise InputError("network: it is an agent here; for a fixed one see ccenv/Game-v0")
        core = GameCore(1, read_game_settings(settings, _ID), render_mode is not None, kernels.GIVEN)
        self._sent: int | None = None
        seen = spaces.Box(0.0, 1.0, (core.single_observation_space.shape[0] + 2,), np.float32)
        actions: dict[str, Any] = {SENDER: spaces.Discrete(core.n_actions), NETWORK: spaces.Discrete(core.n_answers)}
        super().__init__(core, None, {SENDER: seen, NETWORK: seen}, actions)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        """Start the next episode. No options are used."""
        self._sent = None
        return super().reset(seed, options)

    def _play(self, actions: dict[str, Any]) -> dict[str, float]:
        """Take one turn: the sender's action, or the network's answer to it."""
        reward = 0.0
        if self._sent is None:
            sent = int(whole_actions(actions[SENDER], 1)[0])
            self._sent = sent if sent < self.core.infos()["action_mask"].sum() else 0
        else:
            reward = float(self.core.step(np.array([self._sent]), whole_actions(actions[NETWORK], 1))[0])
            self._sent = None
        return {SENDER: reward, NETWORK: -reward}

    def _observe(self) -> dict[str, np.ndarray]:
        turn = [0.0, 0.0] if self._sent is None else [1.0, self._sent / (self.core.n_actions - 1)]
        seen = np.append(self.core.observe()[0], np.array(turn, np.float32))
        return {SENDER: seen, NETWORK: seen.copy()}

    def _infos(self, over: bool) -> dict[str, dict[str, Any]]:
        """Return the legal actions of the coming turn; whose turn it is not may do anything, and it counts for nothing."""
        del over
        answers = np.ones(self.core.n_answers, np.int8)
        if self._sent is not None:
            count = len(self.core.solved.boards.answers(int(self.core.board[0]), self._sent))
            answers = (np.arange(self.core.n_answers) < count).astype(np.int8)
        sender: dict[str, Any] = {"action_mask": self.core.infos()["action_mask"][0]}
        if self._sent is None and self.core.elapsed[0]:
            sender |= {name: float(values[0]) for name, values in self.core.step_info().items()}
        return {SENDER: sender, NETWORK: {"action_mask": answers}}
