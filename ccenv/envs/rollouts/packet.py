"""Rollouts inside the packet engine's kernel: a policy runs in each network until the rollout or its episode ends.

The steps equal those of ``ccenv.envs.packet.task``; tests compare them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ccenv.base.errors import InputError
from ccenv.base.kernels.decorator import kernel
from ccenv.base.kernels.threads import share
from ccenv.engine.compiled.calls import unowned
from ccenv.engine.packet.kernel import advance
from ccenv.envs.packet.core import MAX_EVENTS
from ccenv.envs.packet.kernel import observe
from ccenv.envs.packet.task import PacketNetworkTask, PacketTask, RateCore, move_link
from ccenv.envs.rollouts.actor_critic import ActorCritic
from ccenv.envs.rollouts.memory import Memory, RolloutCore, decide, judge, judge_end


class PacketGame(NamedTuple):
    """Actions of the agent of a batch.

    Attributes:
        values: of a discrete action, evenly spaced; for a continuous one its two limits.
        boxes: (B, boxes, words) states of the delay elements that it controls; (B, 0, 1) for an agent that controls flows.
        rows: (1,) int64 rows of each network.
        least_share: (1,) of the link's rate, which it moves after the delay elements; (0,) for a constant rate.
    """

    values: np.ndarray
    boxes: np.ndarray
    rows: np.ndarray
    least_share: np.ndarray


@kernel(nogil=True)
def play_networks(indices, arrays, core, game, networks, memory, discrete, key):  # type: ignore[no-untyped-def]
    """Run the networks of a batch with these indices, (k,), each on its own."""
    a, core, game, networks, memory = unowned(arrays), unowned(core), unowned(game), unowned(networks), unowned(memory)
    n_rows, n_steps, n_flows = game.rows[0], len(memory.rewards), core.seen.shape[1]
    per_row, width, n_actions = n_flows // n_rows, core.seen.shape[2] * core.seen.shape[3], memory.actions.shape[2]
    low, high = game.values[0], game.values[-1]
    scratch = np.zeros((3, networks.weights.shape[2]), np.float32)
    for k in range(len(indices)):
        env, one = indices[k], indices[k : k + 1]
        begun = memory.at[env]
        for t in range(begun, n_steps):
            for r in range(n_rows):
                row = env * n_rows + r
                _see(core, env, r * per_row, per_row, width, memory.observations[t, row])
                decide(networks, memory, scratch, key, row, t, memory.starting[env])
            for r in range(n_rows):
                for place in range(n_actions):
                    drawn = memory.actions[t, env * n_rows + r, place]
                    number = game.values[np.int64(drawn)] if discrete else min(high, max(low, np.float64(drawn)))
                    if game.boxes.shape[1] > 0 and place == n_actions - len(game.least_share):
                        move_link(a, env, number, game.least_share[0])
                    elif game.boxes.shape[1] > 0:
                        game.boxes[env, place, 0] = number
                    else:
                        a.monitors[env, r * per_row + place].asked = number
            advance(one, a, core.until_s, np.int64(MAX_EVENTS))  # not its literal value, for which it would be compiled anew
            observe(a, one, core)
            core.elapsed[env] += 1
            over = core.elapsed[env] >= core.lengths[env] or not core.decides[env].any()
            for r in range(n_rows):
                total = 0.0
                for flow in range(r * per_row, (r + 1) * per_row):
                    total += core.rewards[env, flow]
                memory.rewards[t, env * n_rows + r] = total / per_row
                memory.dones[t, env * n_rows + r] = over
            memory.starting[env] = over
            memory.at[env] = t + 1
            if over or a.run[env, 0].error != 0:
                break
        for r in range(n_rows):
            judge(networks, memory, scratch, env * n_rows + r, begun, memory.at[env])
        if not memory.starting[env] or core.elapsed[env] == 0:
            continue  # the episode continues, or has not started yet
        memory.ended[env] = True
        for r in range(n_rows):
            row = env * n_rows + r
            _see(core, env, r * per_row, per_row, width, memory.final[row])
            judge_end(networks, memory, scratch, row)


@kernel
def _see(core, env, first, flows, width, out):  # type: ignore[no-untyped-def]
    """Write a row's observations of its flows, in order."""
    signals = core.seen.shape[3]
    for flow in range(flows):
        for place in range(width):
            out[flow * width + place] = core.seen[env, first + flow, place // signals, place % signals]


class PacketRollouts(RolloutCore):
    """Rollouts of a task of the packet environments (``RolloutCore``). Raises InputError for ``raw`` or a user reward."""

    def __init__(self, task: PacketTask | PacketNetworkTask) -> None:
        core = task.core
        if core.tells_time:
            raise InputError("raw asks for every step's info, which rollouts in the kernel do not have: leave it out")
        if core.own_reward is not None:
            raise InputError("reward: rollouts in the kernel evaluate no Python; set ppo.rollouts to 'python'")
        self.task = task
        self.num_envs, self.rows_per_env = core.num_envs, task.rows_per_env
        plays_boxes = isinstance(task, PacketNetworkTask)
        per_row = task.n_moves if isinstance(task, PacketNetworkTask) else len(core.flows) // self.rows_per_env
        self.levels, self.n_actions = task.levels or 0, per_row
        low = 0.0 if plays_boxes else -1.0
        least = np.array([core.least_share]) if isinstance(core, RateCore) else np.zeros(0)
        boxes = core.batch.box_words if plays_boxes else np.zeros((core.num_envs, 0, 1))
        self._game = PacketGame(np.linspace(low, 1.0, self.levels or 2), boxes, np.array([self.rows_per_env]), least)

    def play(self, networks: ActorCritic, memory: Memory, key: int) -> None:
        """See ``RolloutCore``."""
        core, indices = self.task.core, np.arange(self.num_envs)
        discrete = self.levels > 0

        def run(first: int, last: int) -> None:
            core_arrays = core.own_arrays
            play_networks(indices[first:last], core.batch.arrays, core_arrays, self._game, networks, memory, discrete, float(key))

        share(run, self.num_envs, core.batch.threads)
        core.check()
