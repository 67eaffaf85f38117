"""The curve engine: many environments, each a bottleneck with its flows, advanced by a compiled kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from ccenv.adversary import Adversary, ExternalAdversary, RecordedAdversary, ScriptedAdversary
from ccenv.beliefs import RECIPROCALS, BeliefSettings, reciprocal_table, settings_record
from ccenv.engine.calls import address_of
from ccenv.engine.curve_kernel import RUN_DTYPE, advance_parallel, advance_range
from ccenv.engine.curve_network import ERROR_SENDER
from ccenv.engine.layout import (
    ADVERSARY_KINDS,
    ENV_DTYPE,
    ENV_RINGS,
    FLOW_DTYPE,
    FLOW_RINGS,
    RECORD_ENV,
    RECORD_FLOW,
    SENDER_KINDS,
    ring_length,
)
from ccenv.engine.mlp import MAX_WIDTH, pack_mlps
from ccenv.engine.observation import N_OBSERVATION, OBSERVATION_VERSION, fill_observations
from ccenv.engine.paths import PathArrays
from ccenv.engine.signals import ACK, ADVERSARY_SLOTS, LOSS, MOVE, STATE_HEADER, STATE_SLOTS, TICK, VIEW, record
from ccenv.errors import EngineError, InputError, did_you_mean
from ccenv.model import Model, get_model
from ccenv.path import Path
from ccenv.programs import INPUTS, compile_program, stack_programs
from ccenv.sender import ClassicSender, ExternalSender, MlpSender, ProgramSender, Sender
from ccenv.trace import Trace

STATE_DTYPE = record(*STATE_HEADER, *(f"w{i}" for i in range(STATE_SLOTS - len(STATE_HEADER))))
RTO_MIN_S = 0.2  # smallest retransmission time-out; RFC 6298 (2.4) says 1 s, deployed stacks use 0.2 s
DEEP_BUFFER_RTTS = 24  # queue that an infinite buffer can show: the receive window keeps it within the rings
PARALLEL_MIN_STEPS = 2048  # flow-steps in a call below which threads cost more than they bring
DEFAULT_BELIEFS = BeliefSettings()
TIMINGS = ("engine", "smt")
LOSS_DETECTIONS = ("acks", "oracle")

_FLOW_LOG = np.dtype([(name, "<f8") for name in RECORD_FLOW])
_ENV_LOG = np.dtype([(name, "<f8") for name in RECORD_ENV])


@dataclass(frozen=True)
class Snapshot:
    """A copy of the complete state of all environments of an engine."""

    arrays: dict[str, np.ndarray]


class CurveEngine:
    """A batch of environments that share a model, a number of flows and a grid density.

    Args:
        paths: one path per environment, or ``PathArrays`` for large random batches.
        model: ``ideal``, ``cbr_delay``, ``ccac`` or ``strong``.
        senders: one sender per flow, the same in every environment, or one list of senders per environment.
        adversary: the network's player, one for all or one per environment. Default: kind (everything delivered at once).
        steps_per_rtt: K, steps per smallest Rm; one value for the whole batch.
        seed: keys all random numbers together with environment, flow and step.
        timing: ``engine`` or ``smt`` (proof timing, needs K = 1: the rate of step k + 1 is decided on S(k + 1 - Rm)).
        loss_detection: ``acks`` (three segments past the loss, or a time-out) or ``oracle`` (L one Rm ago).
        beliefs: settings of the belief bounds; None: not computed (C_L and the rest stay at their seeds).
        initial_C_L_Bps: seed of C_L, scalar or (B,) or (B, N); at least one segment per Rm is always believed.
        history_rtts: length of the rings in units of the longest Rm; default: what belief windows and buffers need.
        threads: threads for large batches; results do not depend on it.
        record: keep what ``trace`` needs.

    Raises:
        InputError: for a batch that mixes step sizes or numbers of flows, or anything else that is not allowed.
    """

    def __init__(
        self,
        paths: Sequence[Path] | PathArrays,
        *,
        model: str = "cbr_delay",
        senders: Sequence[Sender] | Sequence[Sequence[Sender]],
        adversary: Adversary | Sequence[Adversary] | None = None,
        steps_per_rtt: int | Sequence[int] = 8,
        seed: int = 0,
        timing: str = "engine",
        loss_detection: str = "acks",
        beliefs: BeliefSettings | None = DEFAULT_BELIEFS,
        initial_C_L_Bps: float | np.ndarray = 0.0,
        history_rtts: float | None = None,
        threads: int = 1,
        record: bool = False,
    ) -> None:
        self.model: Model = get_model(model)
        self.steps_per_rtt = _one_density(steps_per_rtt)
        _require_choice("timing", timing, TIMINGS)
        _require_choice("loss_detection", loss_detection, LOSS_DETECTIONS)
        if timing == "smt" and self.steps_per_rtt != 1:
            raise InputError(f"timing 'smt' needs steps_per_rtt 1, not {self.steps_per_rtt}")
        if not 0 <= seed < 2**53:
            raise InputError(f"seed {seed} is not in [0, 2**53)")
        arrays = paths if isinstance(paths, PathArrays) else PathArrays.from_paths(paths, self.steps_per_rtt)
        if arrays.steps_per_rtt != self.steps_per_rtt:
            raise InputError(f"paths on a grid of {arrays.steps_per_rtt} steps per Rm, engine with {self.steps_per_rtt}")
        self.timing = timing
        self.loss_detection = loss_detection
        self.belief_settings = beliefs
        self.seed = seed
        self.threads = threads
        self.recording = record
        self.n_envs, self.n_flows = arrays.rtt_steps.shape
        self._arrays = arrays.for_model(self.model)
        self._history_rtts = history_rtts
        self._H = self._ring_length()
        if 4 * self._H > RECIPROCALS:
            raise InputError(
                f"paths need rings of {self._H} steps; at most {RECIPROCALS // 4}: use fewer steps_per_rtt or shorter delays"
            )
        self._allocate()
        self._set_senders(senders)
        self._set_adversary(adversary)
        self._set_run()
        self._seed_C_L = np.broadcast_to(_as_flow_matrix(initial_C_L_Bps, self.n_envs), (self.n_envs, self.n_flows)).copy()
        self.reset()

    # --- construction -----------------------------------------------------------------------------------------------

    def _ring_length(self) -> int:
        p = self._arrays
        rtt = int(p.rtt_steps.max())
        jitter = int(p.jitter_steps.max())
        probe = self._longest_probe = rtt
        window = (self.belief_settings.window_rtts if self.belief_settings else 1) * rtt
        need = max(window + rtt, 2 * rtt + jitter + probe + 2)
        if self._history_rtts is not None:
            return ring_length(max(need, math.ceil(self._history_rtts * rtt)))
        slowest = p.slowest_rate_Bps()
        queue_s = np.minimum(p.buffer_bytes, DEEP_BUFFER_RTTS * p.link_rate_Bps * p.dt_s * rtt) / slowest
        queue_steps = math.ceil(float((queue_s / p.dt_s).max()))
        return ring_length(max(need, min(queue_steps, 4 * DEEP_BUFFER_RTTS * rtt) + 2 * rtt + jitter + 3))

    def _allocate(self) -> None:
        B, N, H = self.n_envs, self.n_flows, self._H
        self._env = np.zeros(B, ENV_DTYPE)
        self._flow = np.zeros(B * N, FLOW_DTYPE)
        self._ring = np.zeros(B * N * FLOW_RINGS * H)
        self._env_ring = np.zeros(B * ENV_RINGS * H)
        self._acks, self._losses, self._ticks = np.zeros(B, ACK), np.zeros(B, LOSS), np.zeros(B, TICK)
        self._inputs = np.zeros((B, len(INPUTS)))
        self._observations = np.zeros((B, N_OBSERVATION))
        self._reciprocals = reciprocal_table()
        self._settings = settings_record(self.belief_settings or DEFAULT_BELIEFS)
        self._moves = np.ones((1, 2 + 2 * N))
        self._capacity = 0
        self._flow_log = np.zeros((1, 1, 1), _FLOW_LOG)
        self._env_log = np.zeros((1, 1), _ENV_LOG)
        self._observation_out = np.zeros((B, N, N_OBSERVATION), np.float32)

    def _set_senders(self, senders: Sequence[Any]) -> None:
        table = [list(row) for row in senders] if isinstance(senders[0], (list, tuple)) else [list(senders)] * self.n_envs
        if len(table) != self.n_envs or any(len(row) != self.n_flows for row in table):
            raise InputError(
                f"senders for {len(table)} environments of {sorted({len(r) for r in table})} flows; "
                f"the paths have {self.n_envs} of {self.n_flows}"
            )
        self.senders: list[list[Sender]] = table
        distinct: dict[int, Sender] = {id(s): s for row in table for s in row}
        programs = [s for s in distinct.values() if isinstance(s, ProgramSender)]
        classics = [s for s in distinct.values() if isinstance(s, ClassicSender)]
        mlps = [s for s in distinct.values() if isinstance(s, MlpSender)]
        for policy in mlps:
            if policy.observation_version != OBSERVATION_VERSION or policy.weights[0].shape[0] != N_OBSERVATION:
                raise InputError(
                    f"policy {policy.name!r} was trained on observation version {policy.observation_version}; "
                    f"this is version {OBSERVATION_VERSION}"
                )
        compiled = [compile_program(s.program) for s in programs]
        self._nodes, self._first_rows = stack_programs(compiled)
        if not programs:
            self._nodes, self._first_rows = np.zeros((1, 1)), np.zeros(1, np.int64)
        self._calls = np.zeros((max(1, len(classics)), 4), np.int64)
        self._templates = np.zeros((max(1, len(classics)), STATE_SLOTS))
        for row, cca in enumerate(classics):
            self._calls[row] = [
                address_of(cca.init, cca.state),
                address_of(cca.on_ack, cca.state, ACK),
                address_of(cca.on_loss, cca.state, LOSS),
                address_of(cca.on_tick, cca.state, TICK),
            ]
            names = cca.state.names or ()
            for name, value in cca.parameters.items():
                if name not in names:
                    raise InputError(f"sender {cca.name!r} has no parameter {name!r}.{did_you_mean(name, names)}")
                self._templates[row, names.index(name)] = value
        n_states = self.n_envs * self.n_flows if classics else 1
        self._states = np.zeros(n_states, STATE_DTYPE)
        self._state_words = self._states.view("<f8").reshape(n_states, STATE_SLOTS)
        self._mlp_weights, self._mlp_shapes = pack_mlps(mlps)
        self._mlp_scratch = np.zeros((self.n_envs, 2, MAX_WIDTH if mlps else 1))
        index = {id(s): i for group in (programs, classics, mlps) for i, s in enumerate(group)}
        probe = {id(s): c.probe_window_rtts for s, c in zip(programs, compiled, strict=True)}
        kinds = {ExternalSender: "external", ProgramSender: "program", ClassicSender: "classic", MlpSender: "mlp"}
        self._sender_kind = np.array([[SENDER_KINDS[kinds[type(s)]] for s in row] for row in table], np.int64)
        self._sender_index = np.array([[index.get(id(s), 0) for s in row] for row in table], np.int64)
        self._probe_rtts = np.array([[probe.get(id(s), 1) for s in row] for row in table], np.int64)
        longest = int(self._probe_rtts.max()) * int(self._arrays.rtt_steps.max())
        room = self._H - 2 * int(self._arrays.rtt_steps.max()) - int(self._arrays.jitter_steps.max()) - 2
        if longest > room:
            self._H = ring_length(longest + self._H - room)
            self._allocate()

    def _set_adversary(self, adversary: Adversary | Sequence[Adversary] | None) -> None:
        if adversary is None:
            adversary = RecordedAdversary("kind", np.ones((1, 2 + 2 * self.n_flows)))
        players = list(adversary) if isinstance(adversary, (list, tuple)) else [adversary] * self.n_envs
        if len(players) != self.n_envs:
            raise InputError(f"{len(players)} adversaries for {self.n_envs} environments")
        self.adversaries: list[Adversary] = players  # type: ignore[assignment]
        distinct = {id(p): p for p in players}
        scripted = [p for p in distinct.values() if isinstance(p, ScriptedAdversary)]
        self._adversary_calls = np.zeros((max(1, len(scripted)), 2), np.int64)
        words = np.zeros((max(1, len(scripted)), ADVERSARY_SLOTS))
        for row, player in enumerate(scripted):
            self._adversary_calls[row] = [
                address_of(player.init, player.state, VIEW),
                address_of(player.play, player.state, VIEW, MOVE),
            ]
            names = player.state.names or ()
            for name, value in player.parameters.items():
                if name not in names:
                    raise InputError(f"adversary {player.name!r} has no parameter {name!r}.{did_you_mean(name, names)}")
                words[row, names.index(name)] = value
        index = {id(p): i for i, p in enumerate(scripted)}
        kinds = {ExternalAdversary: "external", RecordedAdversary: "recorded", ScriptedAdversary: "scripted"}
        self._adversary_kind = np.array([ADVERSARY_KINDS[kinds[type(p)]] for p in players], np.int64)
        self._adversary_index = np.array([index.get(id(p), 0) for p in players], np.int64)
        self._adversary_words = words
        B, N = self.n_envs, self.n_flows
        self._adversary_states = np.zeros((B * N if scripted else 1, ADVERSARY_SLOTS))
        self._views = np.zeros(B if scripted else 1, VIEW)
        self._flow_moves = np.zeros(B * N, MOVE)
        self._set_recorded([p for p in players if isinstance(p, RecordedAdversary)])

    def _set_recorded(self, players: list[RecordedAdversary]) -> None:
        width = 2 + 2 * self.n_flows
        self._recorded, self._recorded_period = np.ones((1, 1, width)), False
        if not players:
            return
        for player in players:
            if player.moves.ndim != 2 or player.moves.shape[1] != width or not np.isfinite(player.moves).all():
                raise InputError(
                    f"recorded adversary {player.name!r}: moves of shape {player.moves.shape}; "
                    f"finite numbers of shape (steps, {width}) are needed"
                )
        periodic = {p.periodic for p in players}
        lengths = {len(p.moves) for p in players}
        if len(periodic) > 1 or (periodic == {True} and len(lengths) > 1):
            raise InputError("recorded adversaries of one batch must agree on being periodic, periodic ones on their length")
        self._recorded_period = periodic.pop()
        if len({id(p) for p in players}) == 1:
            self._recorded = np.ascontiguousarray(players[0].moves[None], dtype=np.float64)
            return
        longest = max(lengths)
        self._recorded = np.ones((self.n_envs, longest, width))
        for b, player in enumerate(self.adversaries):
            if isinstance(player, RecordedAdversary):
                self._recorded[b, : len(player.moves)] = player.moves
                self._recorded[b, len(player.moves) :] = player.moves[-1]

    def _set_run(self) -> None:
        run = np.zeros(1, RUN_DTYPE)
        m = self.model
        run["n_flows"], run["ring_length"] = self.n_flows, self._H
        run["hoards_tokens"], run["varies_rate"], run["has_jitter"] = m.hoards_tokens, m.varies_rate, m.has_jitter
        run["early_feedback"] = self.timing == "smt"
        run["oracle_loss"] = self.loss_detection == "oracle"
        run["rto_min_s"] = RTO_MIN_S
        run["recording"] = self.recording
        run["compute_beliefs"] = self.belief_settings is not None
        run["ring_at"], run["env_ring_at"] = self._ring.ctypes.data, self._env_ring.ctypes.data
        run["reciprocals_at"] = self._reciprocals.ctypes.data
        for name, array, size in (
            ("states", self._states, STATE_DTYPE.itemsize),
            ("adversary_states", self._adversary_states, 8 * ADVERSARY_SLOTS),
            ("ack", self._acks, ACK.itemsize),
            ("loss", self._losses, LOSS.itemsize),
            ("tick", self._ticks, TICK.itemsize),
            ("view", self._views, VIEW.itemsize),
            ("move", self._flow_moves, MOVE.itemsize),
        ):
            run[f"{name}_at"] = array.ctypes.data
            run[
                "state_bytes" if name == "states" else "adversary_state_bytes" if name == "adversary_states" else f"{name}_bytes"
            ] = size
        self._run = run
        self._kernel_arrays = (
            run, self._env, self._flow, self._arrays.rate_changes, self._states, self._state_words,
            self._templates, self._acks, self._losses, self._ticks, self._views, self._flow_moves, self._calls,
            self._adversary_calls,
        )  # fmt: skip

    # --- state --------------------------------------------------------------------------------------------------------

    def reset(self, mask: np.ndarray | None = None, paths: PathArrays | None = None) -> None:
        """Start environments anew.

        Args:
            mask: (B,) bool, which ones; None: all.
            paths: new paths for exactly these environments (same number of flows, delays that fit the rings).
        """
        which = np.arange(self.n_envs) if mask is None else np.flatnonzero(mask)
        if paths is not None:
            self._arrays.put(which, paths.for_model(self.model), self._fits)
            self._kernel_arrays = (*self._kernel_arrays[:3], self._arrays.rate_changes, *self._kernel_arrays[4:])
        p, N, H = self._arrays, self.n_flows, self._H
        env = self._env
        env[which] = np.zeros(1, ENV_DTYPE)
        for name in (
            "dt_s",
            "buffer_bytes",
            "mss_bytes",
            "link_rate_Bps",
            "link_rate_min_Bps",
            "link_rate_max_Bps",
            "n_rate_changes",
        ):
            env[name][which] = getattr(p, name)[which]
        for name in ("red_min_bytes", "red_max_bytes", "red_max_probability", "red_weight", "has_red"):
            env[name][which] = getattr(p, name)[which]
        env["jitter_steps"][which] = p.jitter_steps[which, 0]
        env["link_rate_now_Bps"][which] = p.link_rate_Bps[which]
        env["adversary_kind"][which] = self._adversary_kind[which]
        env["adversary_index"][which] = self._adversary_index[which]
        env["seed"][which] = self.seed
        env["env_key"][which] = which
        rows = (which[:, None] * N + np.arange(N)).ravel()
        flow = self._flow
        flow[rows] = np.zeros(1, FLOW_DTYPE)
        flow["rtt_steps"][rows] = p.rtt_steps[which].ravel()
        flow["jitter_steps"][rows] = p.jitter_steps[which].ravel()
        dt = np.repeat(p.dt_s[which], N)
        flow["rtt_s"][rows] = flow["rtt_steps"][rows] * dt
        flow["jitter_s"][rows] = flow["jitter_steps"][rows] * dt
        for name in ("start_step", "stop_step", "loss_budget", "workload", "workload_a", "workload_b"):
            flow[name][rows] = getattr(p, name)[which].ravel()
        span = H - p.rtt_steps[which].max(axis=1) * 2 - p.jitter_steps[which].max(axis=1) - 3
        window = p.slowest_rate_Bps()[which] * p.dt_s[which] * span / N
        flow["receive_window_bytes"][rows] = np.repeat(window, N)
        flow["sender_kind"][rows] = self._sender_kind[which].ravel()
        flow["sender_index"][rows] = self._sender_index[which].ravel()
        flow["cwnd_bytes"][rows] = np.inf
        flow["recovery_step"][rows] = -1
        flow["rtt_min_steps"][rows] = np.inf
        flow["rtt_now_steps"][rows] = flow["rtt_steps"][rows]
        flow["probe_window_steps"][rows] = self._probe_rtts[which].ravel() * flow["rtt_steps"][rows]
        flow["initial_C_L_Bps"][rows] = self._seed_C_L[which].ravel()
        # The same as the kernel's reset_beliefs, so that a freshly reset environment can be observed.
        floor = np.repeat(p.mss_bytes[which], N) / flow["rtt_s"][rows]
        seeded = np.maximum(flow["initial_C_L_Bps"][rows], floor)
        for name in ("C_L_Bps", "C_L_lambda_Bps", "rate_Bps"):
            flow[name][rows] = seeded
        for name in ("C_U_Bps", "fresh_C_U_Bps"):
            flow[name][rows] = np.inf
        self._ring.reshape(self.n_envs * N, -1)[rows] = 0.0
        self._env_ring.reshape(self.n_envs, -1)[which] = 0.0
        if len(self._adversary_states) > 1 or self._adversary_kind[0] == ADVERSARY_KINDS["scripted"]:
            self._adversary_states[rows] = np.repeat(self._adversary_words[self._adversary_index[which]], N, axis=0)
            self._write_views(which)
        if self.recording:
            self._ensure_capacity(0)
            self._flow_log[which, 0] = np.zeros(1, _FLOW_LOG)
            self._env_log[which, 0] = np.zeros(1, _ENV_LOG)

    def _fits(self, paths: PathArrays) -> None:
        need = 2 * int(paths.rtt_steps.max()) + int(paths.jitter_steps.max()) + 2
        if need > self._H // 2:
            raise InputError(f"paths need rings of {2 * need} steps; the engine was built with {self._H}")

    def _write_views(self, which: np.ndarray) -> None:
        p = self._arrays
        self._views["dt_s"][which] = p.dt_s[which]
        self._views["steps_per_rtt"] = self.steps_per_rtt
        self._views["n_flows"] = self.n_flows
        self._views["buffer_bytes"][which] = p.buffer_bytes[which]
        self._views["mss_bytes"][which] = p.mss_bytes[which]
        self._views["seed"] = self.seed
        self._views["env"][which] = which

    def set_initial_C_L(self, C_L_Bps: np.ndarray, mask: np.ndarray | None = None) -> None:
        """Set the seed of C_L that the next reset uses. Shape (B,) or (B, N), bytes/s."""
        values = np.broadcast_to(_as_flow_matrix(C_L_Bps, self.n_envs), (self.n_envs, self.n_flows))
        self._seed_C_L = values.copy() if mask is None else np.where(mask[:, None], values, self._seed_C_L)

    def snapshot(self) -> Snapshot:
        """Return a copy of the complete state, to go back to with ``restore``."""
        return Snapshot({name: getattr(self, name).copy() for name in self._state_arrays()})

    def restore(self, snapshot: Snapshot, envs: np.ndarray | None = None) -> None:
        """Go back to a snapshot.

        Args:
            snapshot: made by an engine of the same shape.
            envs: indices of the environments to restore; None: all.
        """
        for name, saved in snapshot.arrays.items():
            target = getattr(self, name)
            if saved.shape != target.shape and not name.endswith("_log"):
                raise InputError(f"snapshot of shape {saved.shape} in {name}, engine has {target.shape}")
            if name.endswith("_log"):
                self._ensure_capacity(saved.shape[1] - 1)
                target = getattr(self, name)
                rows = slice(None) if envs is None else envs
                target[rows, : saved.shape[1]] = saved[rows]
            else:
                shape = (self.n_envs, -1) if len(saved) % self.n_envs == 0 else None
                if envs is None or shape is None:
                    target[...] = saved
                else:
                    target.reshape(shape)[envs] = saved.reshape(shape)[envs]

    def _state_arrays(self) -> tuple[str, ...]:
        names = ["_env", "_flow", "_ring", "_env_ring", "_states", "_adversary_states"]
        return (*names, "_flow_log", "_env_log") if self.recording else tuple(names)

    # --- running ------------------------------------------------------------------------------------------------------

    def advance(self, n_steps: int, actions: np.ndarray | None = None, moves: np.ndarray | None = None) -> None:
        """Advance all environments.

        Args:
            n_steps: steps of dt (K of them are one smallest Rm).
            actions: (B, N) rates in bytes/s for flows with external senders (NaN: leave as is); other flows ignore it.
            moves: (B, 2 + 2 N) numbers in [0, 1] for external adversaries: waste, rate, service per flow, loss per flow.

        Raises:
            InputError: for arrays of a wrong shape or actions that are not positive.
            EngineError: if a sender or adversary left the finite numbers; names environment, flow and time.
        """
        if actions is not None:
            self._take_actions(actions)
        if moves is not None:
            if moves.shape != (self.n_envs, 2 + 2 * self.n_flows) or not np.isfinite(moves).all():
                raise InputError(f"moves of shape {moves.shape}; finite {(self.n_envs, 2 + 2 * self.n_flows)} is needed")
            self._moves = np.ascontiguousarray(moves, dtype=np.float64)
        if self.recording:
            self._ensure_capacity(int(self._env["step"].max()) + n_steps)
        arguments = (
            *self._kernel_arrays, self._moves, self._recorded, self._recorded_period, self._nodes, self._first_rows, self._inputs,
            self._observations, self._mlp_weights, self._mlp_shapes, self._mlp_scratch, self._settings,
            self._flow_log, self._env_log, n_steps,
        )  # fmt: skip
        if self.threads > 1 and self.n_envs * self.n_flows * n_steps >= PARALLEL_MIN_STEPS:
            threads = min(self.threads, numba.config.NUMBA_NUM_THREADS)
            numba.set_num_threads(threads)
            advance_parallel(min(threads, self.n_envs), *arguments)
        else:
            advance_range(0, self.n_envs, *arguments)
        if self._env["error"].any():
            self._raise_error()

    def _take_actions(self, actions: np.ndarray) -> None:
        if actions.shape != (self.n_envs, self.n_flows):
            raise InputError(f"actions of shape {actions.shape}; {(self.n_envs, self.n_flows)} is needed")
        external = (self._sender_kind == SENDER_KINDS["external"]) & ~np.isnan(actions)
        if not (actions[external] > 0).all():
            raise InputError("an action (sending rate in bytes/s) is not positive")
        rates = self._flow["rate_Bps"].reshape(self.n_envs, self.n_flows)
        rates[external] = actions[external]

    def _raise_error(self) -> None:
        b = int(np.flatnonzero(self._env["error"])[0])
        ev = self._env[b]
        flow, time_s = int(ev["error_flow"]), float(ev["error_step"] * ev["dt_s"])
        if ev["error"] == ERROR_SENDER:
            who = f"sender {self.senders[b][flow].name!r} set a window or rate that is not a positive number"
        else:
            who = f"adversary {self.adversaries[b].name!r} made a move that is not a number >= 0"
        raise EngineError(f"{who} (environment {b}, flow {flow}, at {time_s:.6g} s)")

    # --- reading ------------------------------------------------------------------------------------------------------

    def flow(self, name: str) -> np.ndarray:
        """Return a copy of a named field of all flows, shape (B, N); names are those of ``layout.FLOW_DTYPE``."""
        return self._field(self._flow, name).reshape(self.n_envs, self.n_flows)

    def env(self, name: str) -> np.ndarray:
        """Return a copy of a named field of all environments, shape (B,); names are those of ``layout.ENV_DTYPE``."""
        return self._field(self._env, name)

    @staticmethod
    def _field(array: np.ndarray, name: str) -> np.ndarray:
        if name not in (array.dtype.names or ()):
            raise InputError(f"unknown field {name!r}.{did_you_mean(name, array.dtype.names or ())}")
        return array[name].copy()

    @property
    def queue_bytes(self) -> np.ndarray:
        """Bytes waiting at the bottleneck, shape (B,)."""
        return np.maximum(0.0, self._env["enqueued_bytes"] - self._env["tokens_bytes"])

    def observations(self) -> np.ndarray:
        """Return the Sender-v0 observation of every flow: a new (B, N, N_OBSERVATION) float32 array."""
        fill_observations(self._env, self._flow, self.n_flows, self._observation_out)
        return self._observation_out.copy()

    def totals(self) -> dict[str, np.ndarray]:
        """Return cumulative counts for metrics by difference.

        Returns:
            dict: A, L, S (B, N) bytes; delay_byte_s (B, N), bytes times their queueing and jitter delay; capacity (B,)
            bytes that the link could have carried; time_s (B,).
        """
        return {
            **{name: self.flow(name) for name in ("A", "L", "S")},
            "delay_byte_s": self.flow("rtt_byte_sum_s"),
            "acked": self.flow("acked_bytes"),
            "capacity": self.env("capacity_bytes"),
            "time_s": self.env("step") * self.env("dt_s"),
        }

    @property
    def bytes_per_env(self) -> float:
        """Memory of the state, in bytes per environment."""
        arrays = [self._env, self._flow, self._ring, self._env_ring, self._states, self._adversary_states, self._views]
        arrays += [
            self._acks,
            self._losses,
            self._ticks,
            self._inputs,
            self._observations,
            self._flow_moves,
            self._observation_out,
        ]
        return sum(a.nbytes for a in arrays) / self.n_envs

    # --- recording ----------------------------------------------------------------------------------------------------

    def _ensure_capacity(self, last_step: int) -> None:
        if self._capacity > last_step + 1:
            return
        capacity = max(64, 2 * self._capacity, last_step + 2)
        flow_log = np.zeros((self.n_envs, capacity, self.n_flows), _FLOW_LOG)
        env_log = np.zeros((self.n_envs, capacity), _ENV_LOG)
        if self._capacity:
            flow_log[:, : self._capacity] = self._flow_log
            env_log[:, : self._capacity] = self._env_log
        self._flow_log, self._env_log, self._capacity = flow_log, env_log, capacity

    def trace(self, env: int = 0) -> Trace:
        """Return what environment env has done since its reset. Needs ``record=True``."""
        if not self.recording:
            raise InputError("the engine was built without record=True: there is no trace")
        from ccenv.engine.tracing import build_trace

        return build_trace(self, env, self._flow_log[env], self._env_log[env], int(self._env["step"][env]))

    def path(self, env: int) -> Path:
        """Return the path of an environment as data."""
        return self._arrays.path(env)


def _one_density(steps_per_rtt: int | Sequence[int]) -> int:
    values = {int(steps_per_rtt)} if isinstance(steps_per_rtt, (int, np.integer)) else {int(k) for k in steps_per_rtt}
    if len(values) != 1:
        raise InputError(f"a batch cannot mix step sizes: steps_per_rtt {sorted(values)}")
    density = values.pop()
    if density < 1:
        raise InputError(f"steps_per_rtt is {density}; it must be at least 1")
    return density


def _require_choice(what: str, value: str, valid: Sequence[str]) -> None:
    if value not in valid:
        raise InputError(f"unknown {what} {value!r}.{did_you_mean(value, valid)}")


def _as_flow_matrix(values: float | np.ndarray, n_envs: int) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise InputError("initial_C_L_Bps must be finite and not negative")
    return array.reshape(n_envs, 1) if array.ndim == 1 else array
