"""The curve engine: environments of one bottleneck and its flows each, advanced by a compiled kernel; its logs and snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.adversaries.observation import N_FLOW, N_PATH
from ccenv.agents.callbacks import ACK, ADVERSARY_SLOTS, LOSS, MOVE, STATE_HEADER, STATE_SLOTS, TICK, VIEW, record
from ccenv.agents.interface.interface import N_OBSERVATION, Interface, fill_observations
from ccenv.agents.programs import INPUTS
from ccenv.agents.sender import Sender
from ccenv.base.errors import InputError, did_you_mean
from ccenv.base.kernels.threads import share
from ccenv.engine.compiled.beliefs import BeliefSettings, reciprocal_table, settings_record
from ccenv.engine.curve import setup
from ccenv.engine.curve.decision import far_addresses
from ccenv.engine.curve.layout import (
    ENV_DTYPE,
    ENV_RINGS,
    FLOW_DTYPE,
    FLOW_RINGS,
    RECORD_ENV,
    RECORD_FLOW,
    RUN_DTYPE,
    SENDER_KINDS,
)
from ccenv.engine.curve.path_arrays import PathArrays
from ccenv.engine.curve.players import AdversaryTable, SenderTable
from ccenv.engine.curve.step import KernelArrays, advance_range
from ccenv.engine.curve.watch import STATE as WATCH_STATE
from ccenv.engine.curve.watch import Watch
from ccenv.network.adversary import Adversary, moves_width
from ccenv.network.path import Model, Path, get_model
from ccenv.network.trace import Trace, TraceHeader

_BELIEFS = ("C_L", "C_U", "C_L_lambda", "q_U", "qdel_L", "qdel_U", "rtt_s")


_FLOW_LOG = np.dtype([(name, "<f8") for name in RECORD_FLOW])
_ENV_LOG = np.dtype([(name, "<f8") for name in RECORD_ENV])


class Recorder:
    """The logs that the kernel writes: one row per step, grown as a run gets longer; (B, capacity, N) and (B, capacity)."""

    def __init__(self, n_envs: int, n_flows: int, recording: bool) -> None:
        """Allocate the first rows; one row of one environment if nothing is recorded."""
        shape = (n_envs, 64) if recording else (1, 1)
        self.flow_log = np.zeros((*shape, n_flows if recording else 1), _FLOW_LOG)
        self.env_log = np.zeros(shape, _ENV_LOG)

    def make_room(self, last_step: int) -> None:
        """Make sure that there is a row for a step."""
        n_envs, capacity, n_flows = self.flow_log.shape
        if last_step < capacity:
            return
        rows = max(2 * capacity, last_step + 1)
        flow_log, env_log = np.zeros((n_envs, rows, n_flows), _FLOW_LOG), np.zeros((n_envs, rows), _ENV_LOG)
        flow_log[:, :capacity], env_log[:, :capacity] = self.flow_log, self.env_log
        self.flow_log, self.env_log = flow_log, env_log

    def clear(self, which: np.ndarray) -> None:
        """Start the logs of some environments anew."""
        self.flow_log[which, 0] = np.zeros(1, _FLOW_LOG)
        self.env_log[which, 0] = np.zeros(1, _ENV_LOG)


def build_trace(header: TraceHeader, flow_log: np.ndarray, env_log: np.ndarray, start_steps: np.ndarray, steps: int) -> Trace:
    """Return the trace of one environment from its logs, (capacity, N) and (capacity,), of flows that start after (N,) steps."""
    rows = slice(0, steps + 1)
    rate = env_log["link_rate_Bps"][rows].copy()
    if steps:
        rate[0] = rate[1]
    beliefs = {name: flow_log[name][rows].copy() for name in _BELIEFS}
    for i, start_step in enumerate(start_steps):  # before a flow's first row its beliefs are those of its second
        for name in _BELIEFS:
            beliefs[name][: min(start_step + 1, steps + 1), i] = beliefs[name][min(start_step + 1, steps), i]
    asked = {name: flow_log[name][rows].copy() for name in ("rate_Bps", "cwnd_bytes")}
    for values in asked.values():
        values[0] = values[1] if steps else 0.0
    return Trace(
        header=header,
        A=flow_log["A"][rows],
        L=flow_log["L"][rows],
        L_free=flow_log["L_free"][rows],
        S=flow_log["S"][rows],
        G=env_log["G"][rows],
        link_rate_Bps=rate,
        beliefs=beliefs,
        **asked,
    )


@dataclass(frozen=True)
class Snapshot:
    """A copy of the complete state of all environments of an engine."""

    arrays: dict[str, np.ndarray]


def put_back(snapshot: Snapshot, state: dict[str, np.ndarray], which: np.ndarray, n_envs: int) -> None:
    """Copy the environments ``which`` of a snapshot into an engine's arrays. Raises InputError if it is of another shape."""
    for name, target in state.items():
        saved = snapshot.arrays.get(name)
        if saved is None or saved.shape != target.shape:
            had = "no such array" if saved is None else f"shape {saved.shape}"
            raise InputError(f"snapshot with {name} of {had}; this engine has {target.shape}")
        if len(target) % n_envs == 0:  # else no environment uses it
            per_env = len(target) // n_envs
            target.reshape(n_envs, per_env, -1)[which] = saved.reshape(n_envs, per_env, -1)[which]


STATE_DTYPE = record(*STATE_HEADER, *(f"w{i}" for i in range(STATE_SLOTS - len(STATE_HEADER))))
RTO_MIN_S = 0.2  # smallest retransmission time-out (RTO); RFC 6298 (2.4) says 1 s, deployed stacks use 0.2 s
PARALLEL_MIN_STEPS = 2048  # flow-steps in a call below which threads cost more than they bring
DEFAULT_BELIEFS = BeliefSettings()
_STATE = ("_env", "_flow", "_ring", "_env_ring", "_states", "_adversary_states", "_flow_moves")  # of a snapshot, beside the logs


class CurveEngine:
    """A batch of environments that share a model, a number of flows and a grid density.

    Raises InputError for a batch that mixes step sizes or numbers of flows, or anything else that is not allowed.

    Args:
        paths: one path per environment, or ``PathArrays`` for large random batches.
        model: ``ideal``, ``cbr_delay``, ``ccac`` or ``strong``.
        senders: needed: one sender per flow, the same in every environment, or one list of senders per environment.
        adversary: the network's player, one for all or one per environment. Default: kind (everything delivered at once).
        steps_per_rtt: K, steps per smallest Rm; one value for the whole batch.
        seed: keys all random numbers together with environment, flow and step.
        timing: ``engine`` or ``smt`` (proof timing, needs K = 1: the rate of step k + 1 is decided on S(k + 1 - Rm)).
        loss_detection: ``acks`` (three segments past the loss, or the RTO) or ``oracle`` (L one Rm ago).
        beliefs: settings of the belief bounds; None: not computed (C_L and the rest stay at their seeds).
        initial_C_L_Bps: seed of C_L, scalar or (B,) or (B, N); at least one segment per Rm is always believed.
        history_rtts: length of the rings in longest Rm; default: what windows and buffers need.
        threads: for large batches; results do not depend on it.
        interface: what flows with an external sender see and set (``watch``); None: rates, in ``advance``.
        watched: flows that are observed over the interface while their own senders decide.
        record: keep what ``trace`` needs.
    """

    def __init__(
        self,
        paths: Sequence[Path] | PathArrays,
        *,
        model: str = "cbr_delay",
        senders: Sequence[Sender] | Sequence[Sequence[Sender]] | None = None,
        adversary: Adversary | Sequence[Adversary] | None = None,
        steps_per_rtt: int | Sequence[int] = 8,
        seed: int = 0,
        timing: str = "engine",
        loss_detection: str = "acks",
        beliefs: BeliefSettings | None = DEFAULT_BELIEFS,
        initial_C_L_Bps: float | np.ndarray = 0.0,
        history_rtts: float | None = None,
        threads: int = 1,
        interface: Interface | None = None,
        watched: Sequence[int] = (),
        record: bool = False,
    ) -> None:
        setup.require_players(paths, senders, adversary, threads)
        self.model: Model = get_model(model)
        self.steps_per_rtt = setup.one_density(steps_per_rtt)
        setup.require_modes(timing, loss_detection, self.steps_per_rtt, seed)
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
        self._arrays = arrays.for_model(self.model).copy()
        setup.require_believable(self._arrays, self.model, beliefs)
        self._senders = SenderTable(senders or (), self.n_envs, self.n_flows)
        self._senders.require_signals(beliefs is not None)
        self._players = AdversaryTable(adversary, self.n_envs, self.n_flows)
        window_rtts = beliefs.window_rtts if beliefs else 1
        self._H = setup.needed_ring(self._arrays, self._senders, window_rtts, history_rtts)
        controlled = (self._senders.kind[0] == SENDER_KINDS["external"]) if interface else np.zeros(self.n_flows, np.bool_)
        controlled[list(watched)] = True
        words = self._senders.memory_words if self._senders.has_policies else 0
        monitors = self._senders.has_monitors
        self.watch = Watch(self.n_envs, self.n_flows, words, monitors, interface, controlled, drives=not watched)
        self._allocate()
        self.kernel_arrays = self.watch.arrays = self._gather(self._new_run())
        self._seed_C_L = np.broadcast_to(setup.flow_matrix(initial_C_L_Bps, self.n_envs), (self.n_envs, self.n_flows)).copy()
        self.reset()

    def __repr__(self) -> str:
        flows = f"{self.n_flows} flow{'s' if self.n_flows > 1 else ''} each"
        return f"CurveEngine({self.n_envs} environments, {flows}, {self.model.name}, {self.steps_per_rtt} steps per Rm)"

    def _allocate(self) -> None:
        B, N, H = self.n_envs, self.n_flows, self._H
        self._env = np.zeros(B, ENV_DTYPE)
        self._flow = np.zeros(B * N, FLOW_DTYPE)
        self._ring = np.zeros(B * N * FLOW_RINGS * H)
        self._env_ring = np.zeros(B * ENV_RINGS * H)
        self._acks, self._losses, self._ticks = np.zeros(B, ACK), np.zeros(B, LOSS), np.zeros(B, TICK)
        self._inputs = np.zeros((B, len(INPUTS)))
        self._observations = np.zeros((B, N_PATH + N * N_FLOW))  # the longer of the two kinds
        self._reciprocals = reciprocal_table()
        self._settings = settings_record(self.belief_settings or DEFAULT_BELIEFS)
        self._moves = np.ones((B, moves_width(N)))
        self._recorder = Recorder(B, N, self.recording)
        self._observation_out = np.zeros((B, N, N_OBSERVATION), np.float32)
        self._states = np.zeros(B * N if self._senders.has_classics else 1, STATE_DTYPE)
        self._state_words = self._states.view("<f8").reshape(-1, STATE_SLOTS)
        self._mlp_scratch = np.zeros((B, 2, self._players.mlp_width))
        scripted = self._players.has_scripted
        self._adversary_states = np.zeros((B * N if scripted else 1, ADVERSARY_SLOTS))
        self._views = np.zeros(B if scripted else 1, VIEW)
        self._flow_moves = np.zeros(B * N, MOVE)

    def _new_run(self) -> np.ndarray:
        run = np.zeros(1, RUN_DTYPE)
        m = self.model
        run["n_flows"], run["ring_length"] = self.n_flows, self._H
        run["hoards_tokens"], run["varies_rate"], run["has_jitter"] = m.hoards_tokens, m.varies_rate, m.has_jitter
        run["early_feedback"], run["oracle_loss"] = self.timing == "smt", self.loss_detection == "oracle"
        run["rto_min_s"], run["recording"] = RTO_MIN_S, self.recording
        run["compute_beliefs"] = self.belief_settings is not None
        run["monitoring"] = self.watch.is_measuring
        run["ring_at"], run["env_ring_at"] = self._ring.ctypes.data, self._env_ring.ctypes.data
        run["reciprocals_at"], run["nodes_at"] = self._reciprocals.ctypes.data, self._senders.nodes.ctypes.data
        run["inputs_at"], run["inputs_bytes"] = self._inputs.ctypes.data, self._inputs.strides[0]
        for name, array in (
            ("states", self._states),
            ("adversary_states", self._adversary_states),
            ("ack", self._acks),
            ("loss", self._losses),
            ("tick", self._ticks),
            ("view", self._views),
            ("move", self._flow_moves),
        ):
            run[f"{name}_at"], run[f"{name}_bytes"] = array.ctypes.data, array.strides[0]
        run["recorded_period"] = self._players.periodic
        for name, address in far_addresses(self._senders.kind, self._senders.policies, self._players.kind).items():
            run[name] = address
        self._n_steps = run["n_steps"]
        return run

    def _gather(self, run: np.ndarray) -> KernelArrays:
        senders, players, log = self._senders, self._players, self._recorder
        return KernelArrays(
            run=run,
            env=self._env,
            flow=self._flow,
            rate_changes=self._arrays.rate_changes,
            states=self._states,
            state_words=self._state_words,
            templates=senders.templates,
            sender_calls=senders.calls,
            acks=self._acks,
            losses=self._losses,
            ticks=self._ticks,
            views=self._views,
            flow_moves=self._flow_moves,
            adversary_calls=players.calls,
            moves=self._moves,
            recorded=players.recorded,
            first_rows=senders.first_rows,
            observations=self._observations,
            policies=senders.policies,
            policy_weights=senders.policy_weights,
            policy_memory=self.watch.memory,
            policy_scratch=self.watch.scratch,
            monitors=self.watch.rows,
            measures=self.watch.measures,
            signals=self.watch.signals,
            mlp_scratch=self._mlp_scratch,
            adversary_weights=players.mlp_weights,
            adversary_shapes=players.mlp_shapes,
            adversary_outputs=players.mlp_moves,
            settings=self._settings,
            flow_log=log.flow_log,
            env_log=log.env_log,
        )

    def reset(self, mask: np.ndarray | None = None, paths: PathArrays | None = None, keys: np.ndarray | None = None) -> None:
        """Start the environments of a mask, (B,) bool, anew, by default all.

        Args:
            mask: (B,) bool, which ones; None: all.
            paths: new paths for exactly these environments (same number of flows, delays that fit the rings).
            keys: whole numbers below 2**53, one for each of these environments: what its random numbers depend on besides seed,
                flow and step. None: its index, so that an environment repeats itself.
        """
        which = np.arange(self.n_envs) if mask is None else np.flatnonzero(mask)
        if paths is not None:
            setup.require_believable(put := paths.for_model(self.model), self.model, self.belief_settings)
            self._arrays.put(which, put, self._fits)
            self.kernel_arrays = self.kernel_arrays._replace(rate_changes=self._arrays.rate_changes)
        self._reset_records(which, which if keys is None else keys)

    def _reset_records(self, which: np.ndarray, keys: np.ndarray) -> None:
        N = self.n_flows
        setup.reset_envs(self._env, which, self._arrays, self._players, self.seed, keys)
        rows = setup.reset_flows(self._flow, which, self._arrays, self._senders, self._seed_C_L, self._H)
        self._ring.reshape(self.n_envs * N, -1)[rows] = 0.0
        self._env_ring.reshape(self.n_envs, -1)[which] = 0.0
        if self._players.has_scripted:
            self._adversary_states[rows] = np.repeat(self._players.words[self._players.words_index[which]], N, axis=0)
            setup.reset_views(self._views, which, self._arrays, self.seed, keys)
        self.watch.reset(rows)
        if self.recording:
            self._recorder.clear(which)

    def _fits(self, paths: PathArrays) -> None:
        if (need := setup.least_ring(paths, self._senders)) > self._H:
            raise InputError(f"paths need rings of {need} steps; the engine was built with {self._H}")

    def set_initial_C_L(self, C_L_Bps: np.ndarray, mask: np.ndarray | None = None) -> None:
        """Set the seed of C_L that the next reset uses. Shape (B,) or (B, N), bytes/s."""
        values = np.broadcast_to(setup.flow_matrix(C_L_Bps, self.n_envs), (self.n_envs, self.n_flows))
        self._seed_C_L = values.copy() if mask is None else np.where(mask[:, None], values, self._seed_C_L)

    def _state(self) -> dict[str, np.ndarray]:
        """Return the arrays that a snapshot holds, beside the logs."""
        arrays = {name: getattr(self, name) for name in _STATE}
        return arrays | ({f"watch.{name}": getattr(self.watch, name) for name in WATCH_STATE} if self.watch.is_used else {})

    def snapshot(self) -> Snapshot:
        """Return a copy of the complete state, to go back to with ``restore``."""
        arrays = {name: array.copy() for name, array in self._state().items()}
        self._senders.copy_python_flows(arrays["_states"], range(self.n_envs))
        if self.recording:
            arrays.update(flow_log=self._recorder.flow_log.copy(), env_log=self._recorder.env_log.copy())
        return Snapshot(arrays)

    def restore(self, snapshot: Snapshot, envs: np.ndarray | None = None) -> None:
        """Go back to a snapshot of an engine of the same shape, recording or not as this one; by default in all environments."""
        which = np.arange(self.n_envs) if envs is None else np.asarray(envs)
        put_back(snapshot, self._state(), which, self.n_envs)
        self._senders.copy_python_flows(self._states, which)
        if self.recording:
            flow_log, env_log = snapshot.arrays["flow_log"], snapshot.arrays["env_log"]
            self._recorder.make_room(flow_log.shape[1] - 1)
            self._recorder.flow_log[which, : flow_log.shape[1]] = flow_log[which]
            self._recorder.env_log[which, : env_log.shape[1]] = env_log[which]

    def advance(self, n_steps: int, actions: np.ndarray | None = None, moves: np.ndarray | None = None) -> None:
        """Advance all environments.

        Raises InputError for arrays of a wrong shape or actions that are not positive; EngineError if a sender or adversary left
        the finite numbers; names environment, flow and time.

        Args:
            n_steps: steps of dt (K of them are one smallest Rm).
            actions: (B, N) rates in bytes/s for flows with external senders (NaN: leave as is), positions in [0, 1] for
                shields with an external chooser (clipped; NaN counts as 0); other flows ignore it.
            moves: (B, 2 + 2 N) numbers in [0, 1] for external adversaries: waste, rate, service per flow, loss per flow.
        """
        setup.require_count("n_steps", n_steps, 0)
        if actions is not None:
            setup.take_actions(self._flow, actions, (self.n_envs, self.n_flows))
        if moves is not None:
            if moves.shape != self._moves.shape or not np.isfinite(moves).all():
                raise InputError(f"moves of shape {moves.shape}; finite {self._moves.shape} is needed")
            self._moves[:] = moves
        if self.recording:
            self._recorder.make_room(int(self._env["step"].max()) + n_steps)
            log = self._recorder
            self.kernel_arrays = self.kernel_arrays._replace(flow_log=log.flow_log, env_log=log.env_log)
        self._n_steps[0] = n_steps
        small = self.n_envs * self.n_flows * n_steps < PARALLEL_MIN_STEPS or self._senders.is_python
        arrays = self.kernel_arrays
        share(lambda first, last: advance_range(first, last, arrays), self.n_envs, 1 if small else self.threads)
        for extra in self._senders.extras:
            extra.raise_failure()
        if self._env["error"].any():
            raise setup.engine_error(self._env, self.senders, self.adversaries, self._H)

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
        waiting: np.ndarray = np.maximum(0.0, self._env["enqueued_bytes"] - self._env["tokens_bytes"])
        return waiting

    def observations(self) -> np.ndarray:
        """Return the Sender-v0 observation of every flow: a new (B, N, N_OBSERVATION) float32 array."""
        fill_observations(self._env, self._flow, self.n_flows, self._observation_out)
        return self._observation_out.copy()

    def totals(self) -> dict[str, np.ndarray]:
        """Return cumulative counts for metrics by difference.

        A, L, S are (B, N) bytes; delay_byte_s (B, N), bytes times their queueing and jitter delay; capacity (B,) bytes that the
        link could have carried; time_s (B,).
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
        names = ("_views", "_acks", "_losses", "_ticks", "_inputs", "_observations", "_observation_out")
        state_bytes = sum(array.nbytes for array in self._state().values())
        return float((state_bytes + sum(getattr(self, name).nbytes for name in names)) / self.n_envs)

    def trace(self, env: int = 0) -> Trace:
        """Return what environment env has done since its reset. Needs ``record=True``."""
        if not self.recording:
            raise InputError("the engine was built without record=True: there is no trace")
        setup.require_place("env", env, self.n_envs)
        header = TraceHeader(
            path=self.path(env),
            model=self.model.name,
            timing=self.timing,  # type: ignore[arg-type]
            steps_per_rtt=self.steps_per_rtt,
            dt_s=float(self._env["dt_s"][env]),
            history="empty",
            senders=tuple(sender.name for sender in self.senders[env]),
            adversary=self.adversaries[env].name,
            seed=self.seed,
        )
        flow_log, env_log = self._recorder.flow_log[env], self._recorder.env_log[env]
        return build_trace(header, flow_log, env_log, self.flow("start_step")[env], int(self._env["step"][env]))

    @property
    def senders(self) -> list[list[Sender]]:
        """The senders: one row of N per environment."""
        return self._senders.senders

    @property
    def adversaries(self) -> list[Adversary]:
        """The network players, one per environment."""
        return self._players.adversaries

    def __reduce__(self) -> Any:
        """Refuse copying and pickling: the kernel's records hold addresses of this engine's arrays."""
        raise InputError("a CurveEngine cannot be copied or pickled: build another one and restore a snapshot into it")

    def path(self, env: int) -> Path:
        return self._arrays.path(env)
