"""``ccenv/Network-v0``: control the legal moves of the network against fixed senders.

The observation is the true state of the path, then each flow's beliefs and true rate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from ccenv.adversaries.observation import (
    BDP_SEGMENTS,
    BUFFER,
    FLOW_ELEMENTS,
    IN_JITTER_BOX,
    LARGEST_JITTER,
    N_FLOW,
    N_PATH,
    PATH_ELEMENTS,
    PATH_QUEUE,
    SHARE_OVER,
    SPARE_TOKENS,
    TRUE_C_L,
    TRUE_RATE,
)
from ccenv.agents.interface.interface import N_OBSERVATION, Element
from ccenv.agents.sender import ExternalSender
from ccenv.base.errors import InputError
from ccenv.envs.common.adapters import TaskEnv, TaskVectorEnv
from ccenv.envs.common.episodes import Actions
from ccenv.envs.curve.core import Core
from ccenv.envs.curve.distribution import PathDistribution
from ccenv.envs.curve.settings import EXTERNAL, EnvSettings, read_settings, weigh
from ccenv.network.adversary import FIRST_SERVICE, RATE, WASTE, ExternalAdversary, moves_width
from ccenv.network.path import Path, get_model


def network_elements(n_flows: int) -> tuple[Element, ...]:
    """Return the elements of the observation for a number of flows."""
    return PATH_ELEMENTS + FLOW_ELEMENTS * n_flows


def observe_network(core: Core) -> np.ndarray:
    """Return the network's observation: a new (B, len(PATH_ELEMENTS) + N * len(FLOW_ELEMENTS)) float32 array."""
    B, N = core.num_envs, core.n_flows
    rtt_s = core.flow("rtt_s")
    link_rate = core.env("link_rate_now_Bps")
    bdp = link_rate * rtt_s.min(axis=1)
    tokens, enqueued, served = (core.env(name) for name in ("tokens_bytes", "enqueued_bytes", "served_bytes"))
    out = np.empty((B, N_PATH + N * N_FLOW))
    out[:, PATH_QUEUE] = np.maximum(enqueued - tokens, 0.0) / bdp
    out[:, SPARE_TOKENS] = np.maximum(tokens - enqueued, 0.0) / bdp
    out[:, IN_JITTER_BOX] = np.maximum(np.minimum(tokens, enqueued) - served, 0.0) / bdp
    out[:, BUFFER] = np.log2(core.env("buffer_bytes") / bdp)
    out[:, LARGEST_JITTER] = core.flow("jitter_s").max(axis=1) / rtt_s.min(axis=1)
    out[:, BDP_SEGMENTS] = np.log2(bdp / core.env("mss_bytes"))
    out[:, SHARE_OVER] = core.elapsed / core.episode_steps
    flows = np.empty((B, N, N_FLOW))
    flows[:, :, :N_OBSERVATION] = core.observations()
    flows[:, :, TRUE_RATE] = np.log2(core.flow("rate_Bps") / link_rate[:, None])
    flows[:, :, TRUE_C_L] = np.log2(core.flow("C_L_Bps") / link_rate[:, None])
    out[:, N_PATH:] = flows.reshape(B, -1)
    low, high = network_limits(N)
    seen: np.ndarray = np.clip(out, low, high).astype(np.float32)
    return seen


def network_limits(n_flows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest values of the observation, float32."""
    elements = network_elements(n_flows)
    return np.array([e.low for e in elements], np.float32), np.array([e.high for e in elements], np.float32)


_ID = "ccenv/Network-v0"
DEFAULTS: dict[str, Any] = {
    "senders": ("cc_probe_drain",),
    "adversary": EXTERNAL,
    "reward": {"utilisation": -1.0, "queue": 0.1, "loss": 1.0},
}


class NetworkAction:
    """Moves of the network: one number in [0, 1] for each free choice of its model and path.

    Args:
        settings: exactly one model; loss budgets of fixed paths.
        n_flows: N.
        levels: 0: any number; n: the n evenly spaced values from 0 to 1, chosen by index.
    """

    def __init__(self, settings: EnvSettings, n_flows: int, levels: int = 0) -> None:
        if len(settings.models) != 1:
            raise InputError(f"models {list(settings.models)}: an agent that plays the network needs exactly one model")
        model = get_model(settings.models[0])
        columns = [(WASTE, "waste")] if model.hoards_tokens else []
        columns += [(RATE, "rate")] if model.varies_rate and _rate_varies(settings.paths) else []
        if model.hoards_tokens:
            columns += [(FIRST_SERVICE, "service")]
        elif model.has_jitter:
            columns += [(FIRST_SERVICE + i, f"service_{i}") for i in range(n_flows)]
        paths = settings.paths
        fixed = (paths,) if isinstance(paths, Path) else paths if isinstance(paths, tuple) else ()
        for i in range(n_flows):
            if any(path.flows[i].loss_budget > 0 for path in fixed):
                columns += [(FIRST_SERVICE + n_flows + i, f"loss_{i}")]
        if not columns:
            raise InputError(f"model {model.name!r} without loss budget leaves the network no choice: nothing to control")
        self.names = tuple(name for _, name in columns)
        self.columns = tuple(column for column, _ in columns)
        self.default = np.ones(moves_width(n_flows))
        self.default[FIRST_SERVICE + n_flows :] = 0.0
        self._actions = Actions(len(columns), np.arange(levels) / (levels - 1) if levels else None, low=0.0)
        self.space = self._actions.space

    def moves(self, actions: np.ndarray, num_envs: int) -> np.ndarray:
        """Return moves for ``Core.advance`` from actions (B, n). Raises InputError as ``Actions.read`` does."""
        moves = np.tile(self.default, (num_envs, 1))
        moves[:, self.columns] = self._actions.read(actions, num_envs)
        return moves


def _rate_varies(paths: PathDistribution | Path | tuple[Path, ...]) -> bool:
    if isinstance(paths, PathDistribution):
        return paths.link_rate_min_share < 1
    return any(
        (p.link_rate_min_Bps, p.link_rate_max_Bps) != (None, None) for p in ((paths,) if isinstance(paths, Path) else paths)
    )


class NetworkTask:
    """Control the network's moves: ``senders`` without ``"external"``, ``adversary`` external, one model."""

    def __init__(self, num_envs: int, settings: EnvSettings, record: bool = False) -> None:
        senders = settings.build_senders()
        if any(isinstance(sender, ExternalSender) for sender in senders):
            raise InputError("senders names an 'external' flow, but the agent controls the network; for both see ccenv/Duel-v0")
        adversary = settings.build_adversary()
        if not isinstance(adversary, ExternalAdversary):
            raise InputError("adversary is fixed, but the agent controls the network: leave it out")
        settings.require_beliefs(_ID)
        self.rows_per_env = 1
        self.levels = settings.n_actions if settings.is_discrete else 0
        self._action = NetworkAction(settings, len(senders), self.levels)
        self.move_names = self._action.names
        self.move_columns = self._action.columns
        self.fixed_moves = self._action.default
        everyone = np.ones((1, len(senders)), np.bool_)
        self.core = Core(num_envs, settings, senders=senders, adversary=adversary, groups=everyone, record=record)
        self.weights = settings.reward.vector()
        self.single_observation_space = spaces.Box(*network_limits(len(senders)), dtype=np.float32)
        self.single_action_space = self._action.space

    def step(self, actions: np.ndarray) -> np.ndarray:
        """Make the moves and take one step; return the rewards (B,)."""
        moves = self._action.moves(actions, self.core.num_envs)
        rewards: np.ndarray = weigh(self.core.advance(moves=moves)[:, 0], self.weights)
        return rewards

    def observe(self) -> np.ndarray:
        """Return the true state of the paths and their flows."""
        return observe_network(self.core)


class NetworkEnv(TaskEnv):
    """Control the network: choose the legal moves that hurt fixed senders most.

    ## Description
    The mirror of ``ccenv/Sender-v0``. The senders are fixed agents (``senders``, by default one belief program); the agent
    makes the non-deterministic choices that the network model leaves open. Every number is mapped into the legal interval of
    the moment, so that whatever the agent does is a legal trace of the model.

    ## Observation Space
    `Box`, float32: the path's true state, then for each flow its ``ccenv/Sender-v0`` elements and two more.

    | index | name | unit | range |
    | --- | --- | --- | --- |
    | 0 | queue / (C Rm) | 1 | 0 to 32 |
    | 1 | spare tokens / (C Rm) | 1 | 0 to 8 |
    | 2 | bytes in the jitter box / (C Rm) | 1 | 0 to 8 |
    | 3 | log2(beta / (C Rm)) | 1 | -8 to 8 |
    | 4 | largest D / Rm | 1 | 0 to 8 |
    | 5 | log2(C Rm / MSS) | 1 | -4 to 20 |
    | 6 | share of the episode that is over | 1 | 0 to 1 |
    | 7 | log2(C_U / C_L); 8 before any upper bound | log2 | 0 to 8 |
    | 8 | qdel_L / Rm | 1 | 0 to 16 |
    | 9 | qdel_U / Rm | 1 | 0 to 16 |
    | 10 | found lost / sent bytes | 1 | 0 to 1 |
    | 11 | log2(rate / C_L) | log2 | -8 to 8 |
    | 12 | log2(1 + 4 MSS / (C_L Rm)) | log2 | 0 to 4 |
    | 13 | log2(C_L_lambda / C_L); a fact on ideal and cbr_delay | log2 | -8 to 8 |
    | 14 | q_U / (C_L Rm); a fact on ideal and cbr_delay | 1 | 0 to 16 |
    | 15 | newest judged step was utilised | 0 or 1 | 0 to 1 |
    | 16 | bytes in flight / (C_L Rm) | 1 | 0 to 32 |
    | 17 | log2(rate / C) | 1 | -20 to 8 |
    | 18 | log2(C_L / C) | 1 | -20 to 8 |

    Elements 7 to 18 are repeated for each further flow.

    ## Action Space
    `Box(0, 1, (n,), float32)`, the choices of the model in this order, kept for a whole step:

    | model | choices |
    | --- | --- |
    | `cbr_delay` | service of each flow |
    | `ccac` | waste, service |
    | `strong` | rate (if the paths leave a range), service of each flow |

    and the loss of each flow that has a loss budget. service 1 delivers all that may be delivered, 0 as little as the law
    allows; waste is the share of the spare tokens to throw away; rate lies between the smallest and largest link rate; loss is
    the share of the remaining budget. Values outside [0, 1] are clipped.

    With ``action="discrete"`` each choice is one of ``n_actions`` evenly spaced values from 0 to 1, given by its index:
    `MultiDiscrete`, or `Discrete(n_actions)` where there is one choice only.

    ## Rewards
    The weighted sum of named terms (``reward``), by default the negative of Sender-v0's: -utilisation + 0.1*queue + loss.

    ## Starting State
    As in Sender-v0: an idle path, senders fresh.

    ## Episode End
    Truncated after ``episode_rtts`` (64) round trips; never terminated. The info of the last step holds the episode's mean of
    each reward term.

    ## Arguments
    The fields of ``ccenv.envs.curve.settings.EnvSettings`` except ``adversary``; exactly one of ``models`` (by
    default ``ccac``); ``decision_steps=1`` lets the network move in every engine step; ``render_mode`` None or ``"rgb_array"``.

    ## Version History
    * v0: initial version (observation version 1).
    """

    env_id = _ID
    read_settings = staticmethod(read_settings)
    make_task = staticmethod(NetworkTask)
    defaults = DEFAULTS


class NetworkVectorEnv(TaskVectorEnv):
    """A batch of ``NetworkEnv``; see there."""

    single = NetworkEnv
