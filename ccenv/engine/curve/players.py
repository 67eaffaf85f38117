"""Senders and adversaries of a batch as the tables that the curve kernel reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from ccenv.adversaries.observation import N_FLOW, N_PATH
from ccenv.agents.callbacks import ACK, ADVERSARY_SLOTS, LOSS, MOVE, STATE_SLOTS, TICK, VIEW
from ccenv.agents.interface.interface import OBSERVATION_VERSION
from ccenv.agents.interface.signals import CURVE
from ccenv.agents.python_sender import find_bridge
from ccenv.agents.sender import (
    ClassicSender,
    ExternalSender,
    HeldSender,
    PolicySender,
    ProgramSender,
    Sender,
    ShieldSender,
    bare,
)
from ccenv.base.errors import InputError, did_you_mean
from ccenv.engine.compiled.calls import address_of, copy_python_flows, extras_of
from ccenv.engine.compiled.policies import (
    MAX_WIDTH,
    NO_INNER,
    has_belief_interface,
    memory_words,
    pack_mlps,
    pack_policies,
    require_signals,
)
from ccenv.engine.compiled.program import compile_program, stack_programs
from ccenv.engine.curve.layout import ADVERSARY_KINDS, CHOOSER_CODES, MLP_FIRST_COLUMN, SENDER_KINDS
from ccenv.network.adversary import Adversary, ExternalAdversary, MlpAdversary, RecordedAdversary, ScriptedAdversary, moves_width

PlayerT = TypeVar("PlayerT")

_SENDER_KIND = {
    ExternalSender: "external",
    ProgramSender: "program",
    ClassicSender: "classic",
    PolicySender: "mlp",
    ShieldSender: "shield",
}
_FIXED_POSITION = {"lo": 0.0, "hi": 1.0, "middle": 0.5}
_ADVERSARY_KIND = {
    ExternalAdversary: "external",
    RecordedAdversary: "recorded",
    ScriptedAdversary: "scripted",
    MlpAdversary: "mlp",
}


def _distinct(players: Iterable[Any], kind: type[PlayerT]) -> list[PlayerT]:
    return [p for p in {id(p): p for p in players}.values() if isinstance(p, kind)]


def initial_words(player: ClassicSender | ScriptedAdversary, slots: int, what: str) -> np.ndarray:
    """Return a player's state with its parameters set."""
    words = np.zeros(slots)
    names = player.state.names or ()
    for name, value in player.parameters.items():
        if name not in names:
            raise InputError(f"{what} {player.name!r} has no parameter {name!r}.{did_you_mean(name, names)}")
        words[names.index(name)] = value
    return words


class SenderTable:
    """The senders of all environments.

    Attributes:
        senders: B rows of N senders.
        kind, index: (B, N) codes of layout.SENDER_KINDS, and rows in the tables below.
        nodes, first_rows: belief programs (``stack_senders``).
        chooser, chooser_index, position: (B, N) of shields: codes of layout.CHOOSER_CODES, rows of their policies, and where in
            the interval they start.
        probe_rtts: (B, N) T* of C_L_lambda in Rm.
        hold_s, hold_window_s: (B, N) target_s and window_s of proxies that hold ACKs; 0 and infinite without.
        calls: (n, 4) addresses of init, on_ack, on_loss, on_tick of the classic CCAs.
        templates: (n, STATE_SLOTS) their initial states.
        bridges: per environment and flow, in a row, the bridge of a sender in plain Python; empty without such senders.
        extras: what functions of users add to the observations of policies.
        policies, policy_weights: policies (``ccenv.engine.compiled.policies.pack_policies``).
        has_policies, memory_words: whether there are any, and how many numbers a flow with one remembers at most.
        has_monitors: whether a policy sees more than beliefs.
    """

    def __init__(self, senders: Sequence[Any], n_envs: int, n_flows: int) -> None:
        """Build the tables from one row of senders for all environments, or one row per environment."""
        table = [list(row) for row in senders] if isinstance(senders[0], (list, tuple)) else [list(senders)] * n_envs
        if len(table) != n_envs or any(len(row) != n_flows for row in table):
            raise InputError(
                f"senders for {len(table)} environments of {sorted({len(r) for r in table})} flows; "
                f"the paths have {n_envs} of {n_flows}"
            )
        self.senders: list[list[Sender]] = table
        players = [bare(s) for row in table for s in row]
        programs: list[ProgramSender | ShieldSender] = [
            *_distinct(players, ProgramSender),
            *(shields := _distinct(players, ShieldSender)),
        ]
        mlps = _distinct([*players, *(shield.policy for shield in shields)], PolicySender)
        inner = [policy.inner for policy in mlps]
        driven = [player.inner for player in players if isinstance(player, ExternalSender)]
        classics = _distinct([*players, *inner, *driven], ClassicSender)
        self.nodes, self.first_rows = stack_senders(programs)
        self.has_classics = bool(classics)
        self.calls = np.array([_sender_calls(cca) for cca in classics] or [[0] * 4], np.int64)
        self.templates = np.array([initial_words(cca, STATE_SLOTS, "sender") for cca in classics] or [np.zeros(STATE_SLOTS)])
        bridges = [find_bridge(player) for player in players]
        self.bridges = bridges if any(bridges) else []
        self.extras = extras_of(mlps)
        index = {id(s): i for group in (programs, classics, mlps) for i, s in enumerate(group)}
        self.policy_weights, self.policies = pack_policies(mlps, [NO_INNER if c is None else index[id(c)] for c in inner])
        self.has_policies = bool(mlps)
        self.memory_words = max([1, *map(memory_words, mlps)])
        self.has_monitors = not all(has_belief_interface(policy) for policy in mlps)
        probe = {id(s): s.program.probe_window_rtts for s in programs}
        self.kind = np.array([[SENDER_KINDS[_SENDER_KIND[type(bare(s))]] for s in row] for row in table], np.int64)
        self.index = np.array([[index.get(id(_rule(bare(s))), NO_INNER) for s in row] for row in table], np.int64)
        choices = [[_find_choice(s, index) for s in row] for row in table]
        self.chooser, self.chooser_index, self.position = np.moveaxis(np.array(choices, np.float64), 2, 0)
        holds = [[(s.target_s, s.window_s) if isinstance(s, HeldSender) else (0.0, np.inf) for s in row] for row in table]
        self.hold_s, self.hold_window_s = np.moveaxis(np.array(holds, np.float64), 2, 0)
        self.probe_rtts = np.array([[probe.get(id(bare(s)), 1) for s in row] for row in table], np.int64)

    @property
    def is_python(self) -> bool:
        """Whether the kernel calls plain Python: then it must run in the thread that it was called in."""
        return bool(self.bridges or self.extras)

    def require_signals(self, beliefs: bool) -> None:
        """Raise InputError where a policy sees or sets what the engine does not have; beliefs: it keeps belief bounds."""
        for policy in _distinct((bare(s) for row in self.senders for s in row), PolicySender):
            require_signals(policy, CURVE, beliefs=beliefs)

    def copy_python_flows(self, states: np.ndarray, envs: Iterable[int]) -> None:
        """Give the flows in plain Python of some environments objects of their own (``python_calls``)."""
        n_flows = self.kind.shape[1]
        copy_python_flows(states, self.bridges, (env * n_flows + flow for env in envs for flow in range(n_flows)))


def _rule(player: Any) -> Any:
    """Return what a row of the tables holds of a sender: of one that is driven from outside, the CCA inside."""
    return player.inner if isinstance(player, ExternalSender) else player


def _find_choice(sender: Sender, index: dict[int, int]) -> tuple[int, int, float]:
    """Return code of the chooser, row of its policy and its position; zeros for senders without a shield."""
    shield = bare(sender)
    return chooser_of(shield, index.get(id(shield.policy), 0)) if isinstance(shield, ShieldSender) else (0, 0, 0.0)


def chooser_of(shield: ShieldSender, policy_row: int) -> tuple[int, int, float]:
    """Return the code of a shield's chooser, the row of its policy, and where in the interval it starts."""
    chooser = "fixed" if shield.chooser in _FIXED_POSITION else shield.chooser
    return CHOOSER_CODES[chooser], policy_row, _FIXED_POSITION.get(shield.chooser, 0.0)


def stack_senders(senders: Sequence[ProgramSender | ShieldSender]) -> tuple[np.ndarray, np.ndarray]:
    """Return all nodes, and per sender the first row of the program that it starts with and of the one that follows, (n, 2)."""
    if not senders:
        return np.zeros((1, 1)), np.zeros((1, 2), np.int64)
    pairs = [(s.program if isinstance(s, ShieldSender) else s.start or s.program, s.program) for s in senders]
    distinct = list({id(p): p for pair in pairs for p in pair}.values())
    nodes, rows = stack_programs([compile_program(p) for p in distinct])
    row_of = {id(p): int(row) for p, row in zip(distinct, rows, strict=True)}
    return np.ascontiguousarray(nodes), np.array([[row_of[id(p)] for p in pair] for pair in pairs], np.int64)


def _sender_calls(cca: ClassicSender) -> list[int]:
    return [
        address_of(cca.init, cca.state),
        address_of(cca.on_ack, cca.state, ACK),
        address_of(cca.on_loss, cca.state, LOSS),
        address_of(cca.on_tick, cca.state, TICK),
    ]


class AdversaryTable:
    """The network players of all environments.

    Attributes:
        adversaries: one per environment.
        kind, index: (B,) codes of layout.ADVERSARY_KINDS, and rows in the tables below.
        calls: (n, 2) addresses of init and play of the scripted ones.
        words: (n, ADVERSARY_SLOTS) their initial states; words_index: (B,) rows, 0 where nobody is scripted.
        recorded: (1 or B, steps, 2 + 2 N) moves of the recorded ones.
        periodic: the recorded ones start over after their last step.
        mlp_weights, mlp_shapes: policies (``ccenv.engine.compiled.policies.pack_mlps``).
        mlp_moves: (n, MLP_FIRST_COLUMN + 2 + 2 N) what their outputs are.
        mlp_width: the scratch width that they need.
    """

    def __init__(self, adversary: Adversary | Sequence[Adversary] | None, n_envs: int, n_flows: int) -> None:
        """Build the tables from one adversary for all environments or one per environment; None: deliver everything at once."""
        width = moves_width(n_flows)
        if adversary is None:
            adversary = RecordedAdversary("kind", np.ones((1, width)))
        players: list[Adversary] = list(adversary) if isinstance(adversary, Sequence) else [adversary] * n_envs
        if len(players) != n_envs:
            raise InputError(f"{len(players)} adversaries for {n_envs} environments")
        self.adversaries = players
        scripted = _distinct(players, ScriptedAdversary)
        self.has_scripted = bool(scripted)
        calls = [[address_of(p.init, p.state, VIEW), address_of(p.play, p.state, VIEW, MOVE)] for p in scripted]
        self.calls = np.array(calls or [[0, 0]], np.int64)
        self.words = np.array([initial_words(p, ADVERSARY_SLOTS, "adversary") for p in scripted] or [np.zeros(ADVERSARY_SLOTS)])
        policies = _distinct(players, MlpAdversary)
        self.mlp_weights, self.mlp_shapes = pack_mlps(policies)
        self.mlp_moves = np.array([_policy_moves(p, n_flows) for p in policies] or [[0] * (MLP_FIRST_COLUMN + width)], np.int64)
        self.mlp_width = MAX_WIDTH if policies else 1
        index = {id(p): i for group in (scripted, policies) for i, p in enumerate(group)}
        self.kind = np.array([ADVERSARY_KINDS[_ADVERSARY_KIND[type(p)]] for p in players], np.int64)
        self.index = np.array([index.get(id(p), 0) for p in players], np.int64)
        self.words_index = np.where([isinstance(p, ScriptedAdversary) for p in players], self.index, 0)
        self.recorded, self.periodic = _stack_recorded(players, width)


def _policy_moves(policy: MlpAdversary, n_flows: int) -> list[int]:
    """Check an adversary policy against the number of flows; return its row of mlp_moves."""
    width = moves_width(n_flows)
    n_in, n_out = policy.weights[0].shape[0], policy.weights[-1].shape[1]
    if policy.observation_version != OBSERVATION_VERSION or n_in != N_PATH + n_flows * N_FLOW:
        raise InputError(
            f"adversary {policy.name!r} was trained on {n_in} inputs of observation version {policy.observation_version}; "
            f"{n_flows} flows have {N_PATH + n_flows * N_FLOW} of version {OBSERVATION_VERSION}"
        )
    columns, levels = list(policy.columns), policy.levels
    if levels < 0 or levels == 1:
        raise InputError(f"adversary {policy.name!r}: levels {levels}; 0 (continuous moves) or at least 2 are needed")
    if len(columns) * max(1, levels) != n_out or len(set(columns)) != len(columns) or not set(columns) <= set(range(width)):
        each = f" of {levels} levels" if levels else ""
        raise InputError(
            f"adversary {policy.name!r}: moves {columns}{each} for {n_out} outputs; distinct ones below {width} are needed"
        )
    if policy.decision_steps < 0 or policy.episode_rtts < 1:
        raise InputError(f"adversary {policy.name!r}: decision_steps must not be negative and episode_rtts must be positive")
    return [policy.decision_steps, policy.episode_rtts, len(columns), levels, *columns, *[0] * (width - len(columns))]


def _stack_recorded(players: list[Adversary], width: int) -> tuple[np.ndarray, bool]:
    recorded = [p for p in players if isinstance(p, RecordedAdversary)]
    if not recorded:
        return np.ones((1, 1, width)), False
    for player in recorded:
        if player.moves.ndim != 2 or player.moves.shape[1] != width or not np.isfinite(player.moves).all():
            raise InputError(
                f"recorded adversary {player.name!r}: moves of shape {player.moves.shape}; "
                f"finite numbers of shape (steps, {width}) are needed"
            )
    periodic = {p.periodic for p in recorded}
    lengths = {len(p.moves) for p in recorded}
    if len(periodic) > 1 or (periodic == {True} and len(lengths) > 1):
        raise InputError("recorded adversaries of one batch must agree on being periodic, periodic ones on their length")
    if len({id(p) for p in recorded}) == 1:
        # A copy: for an array that may not be written to, the kernel would be compiled a second time.
        return np.array(recorded[0].moves[None], dtype=np.float64, order="C"), periodic.pop()
    stacked = np.ones((len(players), max(lengths), width))
    for row, one in zip(stacked, players, strict=True):
        if isinstance(one, RecordedAdversary):
            row[: len(one.moves)] = one.moves
            row[len(one.moves) :] = one.moves[-1]
    return stacked, periodic.pop()
