"""Rollouts inside the curve engine's kernel: a policy runs in each environment until the rollout or its episode ends.

Environments are independent, so each runs as long as possible, and Python starts new episodes for all that ended at once. The
steps equal those of ``ccenv.envs.curve.task`` and ``ccenv.envs.curve.network``; tests compare them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ccenv.adversaries.observation import fill_network_observation
from ccenv.agents.interface.interface import N_OBSERVATION, fill_observation
from ccenv.agents.interface.rewards import N_TERMS
from ccenv.agents.interface.signals import N_SIGNALS
from ccenv.base.errors import InputError
from ccenv.base.kernels.decorator import kernel
from ccenv.base.kernels.threads import share
from ccenv.engine.compiled.calls import unowned
from ccenv.engine.compiled.policies import FIRST_HISTORY
from ccenv.engine.curve.layout import SENDER_KINDS
from ccenv.engine.curve.step import advance_range
from ccenv.engine.curve.watch import Watch, begin_flows, fill_flow_terms, measure_flows, obey_actions
from ccenv.envs.curve.interface import WatchedTask
from ccenv.envs.curve.network import NetworkTask
from ccenv.envs.curve.settings import fill_terms
from ccenv.envs.curve.task import ACTION_RANGE_LOG2, SenderTask
from ccenv.envs.rollouts.actor_critic import ACTOR, LEVELS, ActorCritic
from ccenv.envs.rollouts.memory import Memory, RolloutCore, decide, judge, judge_end
from ccenv.network.adversary import moves_width

_PLAYS_SENDERS, _PLAYS_NETWORK = range(2)
_PLAYS, _EPISODE_STEPS = range(2)
_SHIELD = SENDER_KINDS["shield"]


class Game(NamedTuple):
    """Actions and rewards of the agent of a batch.

    Attributes:
        rules: (2,) int64, _PLAYS_SENDERS or _PLAYS_NETWORK, and environment steps of a whole episode.
        flows: (R, m) int64, the flows that each row controls.
        columns: int64, the columns of the moves that the network's agent chooses.
        moves: (2 + 2 N,) moves that it does not choose.
        groups: (R, N) bool, the flows that each row is rewarded for.
        weights: (terms,) of the reward.
        elapsed: (B,) int64 steps of the episode so far.
        lengths: (B,) int64 length of the episode in steps.
        sums: (B, R, terms) sums of the terms over the episode so far.
    """

    rules: np.ndarray
    flows: np.ndarray
    columns: np.ndarray
    moves: np.ndarray
    groups: np.ndarray
    weights: np.ndarray
    elapsed: np.ndarray
    lengths: np.ndarray
    sums: np.ndarray


class Watched(NamedTuple):
    """The controlled flows of an engine, observed through an interface.

    Without an interface kernels take None, and are compiled without the code for it.

    Attributes:
        controlled: (N,) bool.
        numbers: int64 of the signals.
        history: (1,) int64 intervals.
        action: (3,) number and parameters of the action.
        weights: (N_TERMS,) of a reward by the table's terms; empty: by the curve environments' own terms.
        shares, measured: of the engine's ``Watch``.
    """

    controlled: np.ndarray
    numbers: np.ndarray
    history: np.ndarray
    action: np.ndarray
    weights: np.ndarray
    shares: np.ndarray
    measured: np.ndarray

    @classmethod
    def from_watch(cls, watch: Watch, weights: np.ndarray | None) -> Watched:
        """Build it from an engine's watch and the weights of the table's terms."""
        interface = watch.require_interface()
        return cls(
            controlled=watch.controlled,
            numbers=interface.numbers,
            history=np.array([interface.history]),
            action=np.array(interface.action_row),
            weights=np.zeros(0) if weights is None else weights,
            shares=watch.shares,
            measured=watch.measured,
        )


@kernel
def _observe(arrays, game, watched, b, env, row, wide, out):  # type: ignore[no-untyped-def]
    """Write a row's observation to out, float32; b is the environment's index in its engine, env that in the batch."""
    n_flows = arrays.run[0].n_flows
    if game.rules[_PLAYS] == _PLAYS_NETWORK:
        share_over = game.elapsed[env] / game.rules[_EPISODE_STEPS]
        fill_network_observation(arrays.env[b], arrays.flow, b * n_flows, n_flows, share_over, wide)
        for j in range(len(out)):
            out[j] = wide[j]
        return
    for place in range(game.flows.shape[1]):
        index = b * n_flows + game.flows[row, place]
        if watched is None:
            fill_observation(arrays.env[b], arrays.flow[index], out[place * N_OBSERVATION : (place + 1) * N_OBSERVATION])
        else:
            width = len(out) // game.flows.shape[1]
            for j in range(width):
                out[place * width + j] = arrays.policy_memory[index, FIRST_HISTORY + j]


@kernel
def _act(arrays, game, watched, b, row, levels, actions, asked):  # type: ignore[no-untyped-def]
    """Turn a row's actions into rates, positions inside a shield, or moves; actions of an interface go to ``asked``."""
    n_flows = arrays.run[0].n_flows
    low = 0.0 if game.rules[_PLAYS] == _PLAYS_NETWORK else -1.0
    if game.rules[_PLAYS] == _PLAYS_NETWORK:
        arrays.moves[b, :] = game.moves
    for place in range(len(actions)):
        if levels > 0:
            number = low + (1.0 - low) * actions[place] / (levels - 1)
        else:
            number = min(1.0, max(low, np.float64(actions[place])))
        if game.rules[_PLAYS] == _PLAYS_NETWORK:
            arrays.moves[b, game.columns[place]] = number
            continue
        if watched is not None:
            asked[0, row * len(actions) + place] = number
            continue
        flow = arrays.flow[b * n_flows + game.flows[row, place]]
        if flow.sender_kind == _SHIELD:
            flow.position = 0.5 * (number + 1.0)
            continue
        slowest = arrays.env[b].mss_bytes / flow.rtt_s
        flow.rate_Bps = max(flow.C_L_Bps * 2.0 ** (ACTION_RANGE_LOG2 * number), slowest)


@kernel
def _count(arrays, b, counts):  # type: ignore[no-untyped-def]
    """Write the cumulative counts behind the reward terms to counts, (4, 1, N)."""
    n_flows = counts.shape[2]
    for i in range(n_flows):
        flow = arrays.flow[b * n_flows + i]
        counts[0, 0, i] = flow.S
        counts[1, 0, i] = flow.L
        counts[2, 0, i] = flow.acked_bytes
        counts[3, 0, i] = flow.rtt_byte_sum_s


@kernel
def _measure(arrays, watched, envs, signals):  # type: ignore[no-untyped-def]
    """End the intervals of an environment's controlled flows."""
    history = watched.history[0]
    measure_flows(arrays, watched.controlled, envs, watched.numbers, history, watched.shares, signals, watched.measured)


@kernel
def _begin(arrays, watched, first_flow, envs, signals):  # type: ignore[no-untyped-def]
    """Begin the controlled flows of an environment that has been reset."""
    if arrays.monitors[envs[0] * len(watched.controlled) + first_flow].decisions == 0:
        begin_flows(arrays, watched.controlled, envs, np.int64(watched.action[0]))
        _measure(arrays, watched, envs, signals)


@kernel
def _obey(arrays, watched, envs, asked):  # type: ignore[no-untyped-def]
    """Apply the requested actions to the controlled flows of an environment."""
    number, first, second = np.int64(watched.action[0]), watched.action[1], watched.action[2]
    obey_actions(arrays, watched.controlled, envs, asked, number, first, second, watched.measured)


@kernel
def _mean_reward(watched, terms, first, flows, default):  # type: ignore[no-untyped-def]
    """Return the mean reward of a row's flows by the table's terms, or the default if those have no weights."""
    if len(watched.weights) == 0:
        return default
    total = 0.0
    for flow in range(first, first + flows):
        for term in range(N_TERMS):
            total += watched.weights[term] * terms[0, flow, term]
    return total / flows


@kernel(nogil=True)
def play_range(first, last, first_env, arrays, game, watched, networks, memory, key):  # type: ignore[no-untyped-def]
    """Run environments first .. last - 1 of an engine whose environment 0 is number first_env of the batch."""
    a, game, networks, memory = unowned(arrays), unowned(game), unowned(networks), unowned(memory)
    n_rows, n_flows, n_terms = len(game.groups), a.run[0].n_flows, len(game.weights)
    n_steps, levels = len(memory.rewards), networks.shapes[ACTOR, LEVELS]
    scratch = np.zeros((3, networks.weights.shape[2]), np.float32)
    wide = np.zeros(memory.observations.shape[2])
    before, now, capacity = np.zeros((4, 1, n_flows)), np.zeros((4, 1, n_flows)), np.zeros(2)
    rtt_s, terms = np.zeros((1, n_flows)), np.zeros((n_rows, n_terms))
    envs, signals, per_row = np.zeros(1, np.int64), np.zeros(N_SIGNALS), game.flows.shape[1]
    asked, flow_terms = np.zeros((1, game.flows.size)), np.zeros((1, game.flows.size, N_TERMS))
    for b in range(first, last):
        env = first_env + b
        ev = a.env[b]
        envs[0] = b
        if watched is not None:
            _begin(a, watched, game.flows[0, 0], envs, signals)
        smallest_rtt_s = np.inf
        for i in range(n_flows):
            rtt_s[0, i] = a.flow[b * n_flows + i].rtt_s
            smallest_rtt_s = min(smallest_rtt_s, rtt_s[0, i])
        _count(a, b, before)
        capacity[0] = ev.capacity_bytes
        begun = memory.at[env]
        for t in range(begun, n_steps):
            for r in range(n_rows):
                row = env * n_rows + r
                _observe(a, game, watched, b, env, r, wide, memory.observations[t, row])
                decide(networks, memory, scratch, key, row, t, memory.starting[env])
            for r in range(n_rows):
                _act(a, game, watched, b, r, levels, memory.actions[t, env * n_rows + r], asked)
            if watched is not None:
                _obey(a, watched, envs, asked)
            advance_range(b, b + 1, a)
            if watched is not None:
                _measure(a, watched, envs, signals)
                fill_flow_terms(a, watched.controlled, envs, watched.measured, flow_terms)
            _count(a, b, now)
            capacity[1] = ev.capacity_bytes
            for i in range(n_flows):
                for count in range(4):
                    change = now[count, 0, i] - before[count, 0, i]
                    before[count, 0, i] = now[count, 0, i]
                    now[count, 0, i] = change
            queue = max(0.0, ev.enqueued_bytes - ev.tokens_bytes) / (ev.link_rate_now_Bps * smallest_rtt_s)
            fill_terms(now, 0, capacity[1] - capacity[0], queue, rtt_s, game.groups, terms)
            capacity[0] = capacity[1]
            game.elapsed[env] += 1
            over = game.elapsed[env] >= game.lengths[env]
            for r in range(n_rows):
                reward = 0.0
                for term in range(n_terms):
                    game.sums[env, r, term] += terms[r, term]
                    reward += game.weights[term] * terms[r, term]
                if watched is not None:
                    reward = _mean_reward(watched, flow_terms, r * per_row, per_row, reward)
                memory.rewards[t, env * n_rows + r] = reward
                memory.dones[t, env * n_rows + r] = over
            memory.starting[env] = over
            memory.at[env] = t + 1
            if over or ev.error != 0:
                break
        for r in range(n_rows):
            judge(networks, memory, scratch, env * n_rows + r, begun, memory.at[env])
        if not memory.starting[env] or game.elapsed[env] == 0:
            continue  # the episode continues, or has not started yet
        memory.ended[env] = True
        for r in range(n_rows):
            row = env * n_rows + r
            _observe(a, game, watched, b, env, r, wide, memory.final[row])
            judge_end(networks, memory, scratch, row)


class CurveRollouts(RolloutCore):
    """Rollouts of a task of the curve engine (``RolloutCore``). Raises InputError for ``step_info``."""

    def __init__(self, task: SenderTask | NetworkTask) -> None:
        if task.core.settings.step_info:
            raise InputError("step_info asks for every step's info, which rollouts in the kernel do not have: leave it out")
        self.task = task
        core = task.core
        self.num_envs, self.rows_per_env = core.num_envs, task.rows_per_env
        moves = np.ones(moves_width(core.n_flows))
        if isinstance(task, NetworkTask):
            self.levels, self.n_actions = task.levels, len(task.move_columns)
            plays, flows, columns = _PLAYS_NETWORK, np.zeros((1, 0), np.int64), np.array(task.move_columns, np.int64)
            moves = task.fixed_moves
        else:
            self.levels, self.n_actions = task.levels, task.rows.shape[1]
            plays, flows, columns = _PLAYS_SENDERS, task.rows, np.zeros(0, np.int64)
        rules = np.array([plays, core.episode_steps], np.int64)
        self._game = Game(rules, flows, columns, moves, core.groups, task.weights, core.elapsed, core.lengths, core.sums)

    def play(self, networks: ActorCritic, memory: Memory, key: int) -> None:
        """See ``RolloutCore``."""
        core = self.task.core
        for part, engine in core.engines():
            arrays, B = engine.kernel_arrays, engine.n_envs
            watched = Watched.from_watch(engine.watch, self.task.table_weights) if isinstance(self.task, WatchedTask) else None
            arrays.run["n_steps"] = core.decision_steps

            def run(first: int, last: int, arrays: Any = arrays, watched: Any = watched, start: int = part.start) -> None:
                play_range(first, last, start, arrays, self._game, watched, networks, memory, float(key))

            share(run, B, core.settings.threads)
            engine.advance(0)  # raises what went wrong
        core.count_again()
