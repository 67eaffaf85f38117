"""Policies of senders in the kernels: measures -> signals -> history -> network -> action.

Shared by both engines: an engine fills a record of ``ccenv.agents.interface.signals`` when a flow decides. A flow's memory
between decisions is a row of float64: whether it has decided yet, its history (the oldest interval first), what functions of a
user add to it, then the states of its recurrent cells. The networks are small, fully connected, with all weights in one flat
array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ccenv.agents.interface.actions import action
from ccenv.agents.interface.interface import SENDER_V0
from ccenv.agents.interface.signals import fill_signals
from ccenv.agents.learned.weights import checked_widths
from ccenv.agents.sender import GATES, HEADS, STAGES, PolicySender
from ccenv.base.errors import InputError
from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.calls import call_2, extra_address

MAX_LAYERS = 6
MAX_WIDTH = 256
ACTIVATIONS = {"tanh": 0, "relu": 1}

# Columns of a shape row: where the weights start, number of layers, activation, then the width of each layer.
_OFFSET, _LAYERS, _ACTIVATION, _FIRST_WIDTH = range(4)
SHAPE_WIDTH = _FIRST_WIDTH + MAX_LAYERS + 1


class Network(Protocol):
    """What the kernel evaluates: weights (n_in, n_out) and biases (n_out,) per layer, and what lies between the layers."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def weights(self) -> tuple[np.ndarray, ...]:
        """One (n_in, n_out) array per layer."""

    @property
    def biases(self) -> tuple[np.ndarray, ...]:
        """One (n_out,) array per layer."""

    @property
    def activation(self) -> str:
        """One of ACTIVATIONS."""


def pack_mlps(networks: Sequence[Network]) -> tuple[np.ndarray, np.ndarray]:
    """Return weights, flat float64 (per layer ``packed_layer``), and shapes, int64 (n, SHAPE_WIDTH), for the kernel."""
    flat: list[np.ndarray] = []
    shapes = np.zeros((max(1, len(networks)), SHAPE_WIDTH), dtype=np.int64)
    offset = 0
    for row, sender in zip(shapes, networks, strict=False):
        widths = [w.shape[0] for w in sender.weights] + [sender.weights[-1].shape[1]]
        if len(sender.weights) > MAX_LAYERS or max(widths) > MAX_WIDTH or sender.activation not in ACTIVATIONS:
            raise InputError(
                f"policy {sender.name!r}: layers {widths} with {sender.activation!r}; at most {MAX_LAYERS} layers of "
                f"{MAX_WIDTH} with one of {', '.join(ACTIVATIONS)}"
            )
        row[_OFFSET], row[_LAYERS], row[_ACTIVATION] = offset, len(sender.weights), ACTIVATIONS[sender.activation]
        row[_FIRST_WIDTH : _FIRST_WIDTH + len(widths)] = widths
        for weight, bias in zip(sender.weights, sender.biases, strict=True):
            flat.append(packed_layer(weight, bias))
            offset += weight.size + bias.size
    return (np.concatenate(flat) if flat else np.zeros(1)), shapes


def packed_layer(weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return a layer as ``affine`` reads it: W (n_in, n_out) row by row, then b."""
    return np.concatenate([np.ascontiguousarray(weight, dtype=np.float64).ravel(), np.asarray(bias, dtype=np.float64)])


@kernel(inline="always")
def affine(weights, at, n_in, n_out, x, out):
    """Write x W + b to out[:n_out]; ``packed_layer`` starts at ``at``, and x is another array than out.

    The inner loop runs over outputs, which are independent of each other: it can be vectorised without adding up any sum in
    another order.
    """
    bias_at = at + n_in * n_out
    for o in range(n_out):
        out[o] = weights[bias_at + o]
    for j in range(n_in):
        value = x[j]
        row = at + j * n_out
        for o in range(n_out):
            out[o] += weights[row + o] * value


@kernel(inline="always")
def activate(activation, n, x):
    """Apply one of ACTIVATIONS to x[:n]."""
    if activation == 0:
        for o in range(n):
            x[o] = np.tanh(x[o])
    else:
        for o in range(n):
            x[o] = max(0.0, x[o])


@kernel
def mlp_outputs(weights, shapes, which, observation, scratch):
    """Evaluate a network of ``pack_mlps``; return the row of scratch, (2, MAX_WIDTH), that holds its outputs."""
    at = shapes[which, _OFFSET]
    layers = shapes[which, _LAYERS]
    for layer in range(layers):
        n_in = shapes[which, _FIRST_WIDTH + layer]
        n_out = shapes[which, _FIRST_WIDTH + layer + 1]
        target = scratch[(layer + 1) % 2]
        if layer == 0:
            affine(weights, at, n_in, n_out, observation, target)
        else:
            affine(weights, at, n_in, n_out, scratch[layer % 2], target)
        if layer < layers - 1:
            activate(shapes[which, _ACTIVATION], n_out, target)
        at += (n_in + 1) * n_out
    return layers % 2


@kernel
def mlp_level(outputs, which, levels):
    """Return the value in [0, 1] of a discrete choice: of its evenly spaced values the first with the highest score."""
    best = 0
    for level in range(1, levels):
        if outputs[which * levels + level] > outputs[which * levels + best]:
            best = level
    return best / (levels - 1)


MAX_SIGNALS = 64
_WORD = 8  # bytes
CLOCKS = {"srtt": 0, "rtt": 1, "seconds": 2, "acks": 3, "min_rtt": 4}
NO_INNER = -1
_DENSE, _GRU, _LSTM = range(len(STAGES))
_MEAN, _SQUASHED, _CATEGORICAL = range(len(HEADS))

# Words of a flow's memory; the history follows.
STARTED, FIRST_HISTORY = range(2)
# Rows of the scratch: two that stages take turns in, then the gates of a cell from its input and from its state, MAX_WIDTH each.
_GATES = 2
SCRATCH_ROWS = _GATES + 2 * max(GATES.values())

POLICY_DTYPE = np.dtype(
    [
        ("weights_at", "<i8"),  # in the flat array
        ("address", "<i8"),  # of the flat array, where it is not passed along
        ("n_weights", "<i8"),  # its length
        ("n_stages", "<i8"),
        ("activation", "<i8"),
        ("head", "<i8"),
        ("kinds", "<i8", (MAX_LAYERS,)),
        ("widths", "<i8", (MAX_LAYERS + 1,)),
        ("n_signals", "<i8"),
        ("history", "<i8"),
        ("numbers", "<i8", (MAX_SIGNALS,)),
        ("action", "<i8"),
        ("first", "<f8"),  # parameter of the action
        ("second", "<f8"),
        ("clock", "<i8"),
        ("count", "<f8"),
        ("least_rtts", "<f8"),
        ("beliefs_only", "<i8"),  # sees only what Sender-v0 sees, and sets what it sets, once per told RTT
        ("inner", "<i8"),  # row of the CCA inside, or NO_INNER
        ("memory_words", "<i8"),
        ("n_extra", "<i8"),  # elements that functions of a user add to the input, after the history
        ("extra_at", "<i8"),  # address of what computes them (``python_calls.extra_address``)
    ]
)


def pack_policies(policies: Sequence[PolicySender], inner_rows: Sequence[int] = ()) -> tuple[np.ndarray, np.ndarray]:
    """Return weights, flat float64, and (max(1, n),) POLICY_DTYPE for the kernels.

    ``inner_rows`` are rows of the CCAs inside, or NO_INNER; empty: none has one.

    Raises:
        InputError: for a network that the kernels cannot evaluate, or one that does not fit its interface.
    """
    flat: list[np.ndarray] = []
    rows = np.zeros(max(1, len(policies)), POLICY_DTYPE)
    offset = 0
    for row, policy, inner in zip(rows, policies, inner_rows or [NO_INNER] * len(policies), strict=False):
        _check(policy)
        sees, kinds = policy.interface, policy.stage_kinds
        widths = checked_widths(policy, f"policy {policy.name!r}")
        row["weights_at"], row["n_stages"] = offset, len(kinds)
        row["activation"], row["head"] = ACTIVATIONS[policy.activation], HEADS.index(policy.head)
        row["kinds"][: len(kinds)] = [STAGES.index(kind) for kind in kinds]
        row["widths"][: len(widths)] = widths
        row["n_signals"], row["history"] = len(sees.signals), sees.history
        row["numbers"][: len(sees.signals)] = sees.numbers
        row["action"], row["first"], row["second"] = sees.action_row
        row["clock"], row["count"], row["inner"] = CLOCKS[sees.clock.every], sees.clock.count, inner
        row["least_rtts"] = sees.clock.least_rtts
        row["beliefs_only"] = has_belief_interface(policy)
        row["memory_words"] = memory_words(policy)
        if sees.extra is not None:
            row["n_extra"], row["extra_at"] = len(sees.extra.elements), extra_address(sees.extra)
        pieces, hidden = [], iter(zip(policy.hidden_weights, policy.hidden_biases, strict=True))
        for kind, weight, bias in zip(kinds, policy.weights, policy.biases, strict=True):
            pieces.append(packed_layer(weight, bias))
            if kind in GATES:
                pieces.append(packed_layer(*next(hidden)))
        flat += pieces
        offset += sum(map(len, pieces))
    return (np.concatenate(flat) if flat else np.zeros(1)), rows


def has_belief_interface(policy: PolicySender) -> bool:
    """Tell whether a policy sees and sets what ``ccenv/Sender-v0`` has always had, whatever its network."""
    return policy.interface == SENDER_V0


def memory_words(policy: PolicySender) -> int:
    """Return how many float64 a flow with this policy remembers."""
    states = {"gru": 1, "lstm": 2}
    cells = [kind for kind in policy.stage_kinds if kind in GATES]
    state_words = sum(states[kind] * len(weight) for kind, weight in zip(cells, policy.hidden_weights, strict=True))
    return FIRST_HISTORY + policy.interface.width + state_words


def require_signals(policy: PolicySender, engine: str, *, finite: bool = True, beliefs: bool = True) -> None:
    """Raise InputError in one line where an engine or a flow lacks what a policy sees or sets.

    ``finite``: the flow's application has an end; ``beliefs``: the engine keeps belief bounds.
    """
    sees = policy.interface
    for row in sees.rows:
        if engine not in row.engines:
            raise InputError(f"policy {policy.name!r} sees {row.name!r}, which the {engine} engine does not have")
        lacks = {"truth": "no sender can measure", "finite": "only a flow of finite size has", "beliefs": "needs belief bounds"}
        available = {"": True, "truth": False, "finite": finite, "beliefs": beliefs}
        if not available[row.needs]:
            raise InputError(f"policy {policy.name!r} sees {row.name!r}, which {lacks[row.needs]}")
    needs = action(sees.action).needs
    if needs == "shield":
        raise InputError(f"policy {policy.name!r} sets {sees.action!r}, which needs a shield; a policy alone has none")
    if needs == "beliefs" and not beliefs:
        raise InputError(f"policy {policy.name!r} sets {sees.action!r}, which needs belief bounds")
    if sees.clock.common:
        raise InputError(f"policy {policy.name!r} has a common clock; a sender decides for itself")


def _check(policy: PolicySender) -> None:
    widths = checked_widths(policy, f"policy {policy.name!r}")
    last = widths[-1] >= 2 if policy.head == "categorical" else widths[-1] == 1
    is_known = policy.activation in ACTIVATIONS and policy.head in HEADS and set(policy.stage_kinds) <= set(STAGES)
    if not is_known or not last or max(widths[1:]) > MAX_WIDTH or policy.stage_kinds[-1] != "dense":
        raise InputError(
            f"policy {policy.name!r}: layers {widths} with {policy.activation!r}, stages {', '.join(policy.stage_kinds)} and "
            f"head {policy.head!r}; at most {MAX_LAYERS} layers of {MAX_WIDTH} with one of {', '.join(ACTIVATIONS)}, stages "
            f"{', '.join(STAGES)} (the last dense) and a head {', '.join(HEADS)} that fits the last width"
        )
    if widths[0] != policy.interface.width:
        sees = policy.interface
        extra = f" and {len(sees.extra.elements)} of one's own" if sees.extra else ""
        raise InputError(
            f"policy {policy.name!r} has {widths[0]} inputs; {len(sees.signals)} signals with a history of {sees.history}{extra} "
            f"are {sees.width}"
        )
    if bool(policy.interface.inner) != (policy.inner is not None):
        raise InputError(f"policy {policy.name!r} names the inner CCA {policy.interface.inner!r}; it comes with {policy.inner}")


@kernel(inline="always")
def _sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


@kernel
def _gru(weights, at, n_in, n, x, state, gates, out):
    """Advance a GRU (Cho et al. 2014, in PyTorch's form); return where its weights end. ``state`` is (n,); out gets it too."""
    affine(weights, at, n_in, 3 * n, x, gates)
    hidden_gates = gates[3 * n :]
    hidden_at = at + (n_in + 1) * 3 * n
    affine(weights, hidden_at, n, 3 * n, state, hidden_gates)
    for o in range(n):
        reset = _sigmoid(gates[o] + hidden_gates[o])
        update = _sigmoid(gates[n + o] + hidden_gates[n + o])
        new = np.tanh(gates[2 * n + o] + reset * hidden_gates[2 * n + o])
        out[o] = (1.0 - update) * new + update * state[o]
    for o in range(n):
        state[o] = out[o]
    return hidden_at + (n + 1) * 3 * n


@kernel
def _lstm(weights, at, n_in, n, x, state, gates, out):
    """Advance an LSTM (Hochreiter, Schmidhuber 1997, with forget gate); ``state`` is (2n,): output, then cell."""
    affine(weights, at, n_in, 4 * n, x, gates)
    hidden_gates = gates[4 * n :]
    hidden_at = at + (n_in + 1) * 4 * n
    affine(weights, hidden_at, n, 4 * n, state, hidden_gates)
    for o in range(n):
        enter = _sigmoid(gates[o] + hidden_gates[o])
        forget = _sigmoid(gates[n + o] + hidden_gates[n + o])
        new = np.tanh(gates[2 * n + o] + hidden_gates[2 * n + o])
        leave = _sigmoid(gates[3 * n + o] + hidden_gates[3 * n + o])
        state[n + o] = forget * state[n + o] + enter * new
        out[o] = leave * np.tanh(state[n + o])
    for o in range(n):
        state[o] = out[o]
    return hidden_at + (n + 1) * 4 * n


@kernel
def network_outputs(policy, weights, x, states, scratch):
    """Evaluate a policy's network; return the row of scratch, (SCRATCH_ROWS, MAX_WIDTH), that holds its outputs.

    The states of the recurrent cells, one after the other, advance.
    """
    at = policy.weights_at
    stages = policy.n_stages
    gates = scratch[_GATES:].reshape((SCRATCH_ROWS - _GATES) * MAX_WIDTH)
    state_at = 0
    row = 1
    for stage in range(stages):
        n_in, n_out, stage_kind = policy.widths[stage], policy.widths[stage + 1], policy.kinds[stage]
        source = x if stage == 0 else scratch[1 - row]
        if stage_kind == _DENSE:
            affine(weights, at, n_in, n_out, source, scratch[row])
            if stage < stages - 1:
                activate(policy.activation, n_out, scratch[row])
            at += (n_in + 1) * n_out
        elif stage_kind == _GRU:
            at = _gru(weights, at, n_in, n_out, source, states[state_at : state_at + n_out], gates, scratch[row])
            state_at += n_out
        else:
            at = _lstm(weights, at, n_in, n_out, source, states[state_at : state_at + 2 * n_out], gates, scratch[row])
            state_at += 2 * n_out
        row = 1 - row
    return 1 - row


@kernel
def head_action(head, n, outputs):
    """Return the action in [-1, 1] that a head makes of n outputs; a number that is none counts as -1."""
    if head == _CATEGORICAL:
        best = 0
        for level in range(1, n):
            if outputs[level] > outputs[best]:
                best = level
        return 2.0 * best / (n - 1) - 1.0
    a = np.tanh(outputs[0]) if head == _SQUASHED else outputs[0]
    return -1.0 if np.isnan(a) else min(1.0, max(-1.0, a))


@kernel
def act_on_beliefs(policy, weights, observation, memory, scratch):
    """Return the action of a policy with the belief interface, given the ten belief signals."""
    row = network_outputs(policy, weights, observation, memory[FIRST_HISTORY + policy.n_signals :], scratch)
    return head_action(policy.head, policy.widths[policy.n_stages], scratch[row])


@kernel
def remember(signals, numbers, n_signals, history, memory):
    """Put an interval's signals at the end of a history; at the first one it holds nothing but them: of an idle flow."""
    words = n_signals * history
    stack = memory[FIRST_HISTORY : FIRST_HISTORY + words]
    if memory[STARTED] == 0.0:
        memory[STARTED] = 1.0
        for interval in range(history):
            for j in range(n_signals):
                stack[interval * n_signals + j] = signals[numbers[j]]
        return
    for j in range(words - n_signals):
        stack[j] = stack[j + n_signals]
    for j in range(n_signals):
        stack[words - n_signals + j] = signals[numbers[j]]


@kernel
def act(policy, weights, m, memory, signals, scratch):
    """Return the action in [-1, 1] of a policy at the end of an interval; its memory advances, ``signals`` holds all signals."""
    fill_signals(m, signals)
    remember(signals, policy.numbers, policy.n_signals, policy.history, memory)
    words = policy.n_signals * policy.history
    if policy.extra_at != 0:
        here = np.int64(memory.ctypes.data)
        call_2(policy.extra_at, here + _WORD * FIRST_HISTORY, here + _WORD * (FIRST_HISTORY + words))
        words += policy.n_extra
    stack = memory[FIRST_HISTORY : FIRST_HISTORY + words]
    row = network_outputs(policy, weights, stack, memory[FIRST_HISTORY + words :], scratch)
    return head_action(policy.head, policy.widths[policy.n_stages], scratch[row])


@kernel
def _actions(policy, weights, seen, states, scratch, out):
    """Write the actions of one policy for a batch to out (B,); see ``PolicyBatch.actions``."""
    for b in range(len(out)):
        row = network_outputs(policy, weights, seen[b], states[b], scratch)
        out[b] = head_action(policy.head, policy.widths[policy.n_stages], scratch[row])


class PolicyBatch:
    """One policy that decides for a batch of flows whose histories somebody else keeps; its recurrent states are (n, words)."""

    def __init__(self, policy: PolicySender, n: int) -> None:
        """Begin with empty states for n flows. Raises InputError for a policy that the kernels cannot evaluate."""
        self._weights, rows = pack_policies([policy], [0] if policy.inner else [])
        self._policy, self._scratch = rows[0], new_scratch(1)[0]
        self.states = np.zeros((n, max(1, memory_words(policy) - FIRST_HISTORY - policy.interface.width)))

    def actions(self, seen: np.ndarray) -> np.ndarray:
        """Return the actions in [-1, 1] (n,) for what the flows see, (n, width of the interface); the states advance."""
        out = np.zeros(len(seen))
        _actions(self._policy, self._weights, np.ascontiguousarray(seen, dtype=np.float64), self.states, self._scratch, out)
        return out

    def reset(self, mask: np.ndarray) -> None:
        """Begin anew at some flows, (n,) bool."""
        self.states[mask] = 0.0


def new_scratch(n: int) -> np.ndarray:
    """Return scratch for n policies that decide at the same time: (n, SCRATCH_ROWS, MAX_WIDTH)."""
    return np.zeros((n, SCRATCH_ROWS, MAX_WIDTH))
