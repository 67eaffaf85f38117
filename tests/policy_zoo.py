"""Policies of random weights for tests, over any interface."""

import itertools

import numpy as np

from ccenv.agents.interface.interface import SENDER_V0, Interface
from ccenv.agents.learned import inner_cca
from ccenv.agents.sender import GATES, PolicySender
from ccenv.base.config import validate


def interface(**given) -> Interface:
    """Return an interface of what a card would say."""
    return validate(Interface, given, "card")


def random_policy(
    sees: Interface = SENDER_V0,
    hidden=(8,),
    *,
    stages=(),
    head="mean",
    outputs=1,
    seed=0,
    activation="tanh",
    scale=0.5,
    name="mine",
) -> PolicySender:
    """Return a policy with random weights.

    Args:
        sees: its interface.
        hidden: widths of the stages between input and output.
        stages: their kinds; empty: all dense.
        head: of the network.
        outputs: of its last stage.
        seed: of the weights.
        activation: after dense stages.
        scale: standard deviation of the weights, times the square root of the stage's inputs.
        name: of the policy.
    """
    rng = np.random.default_rng(seed)
    widths = (sees.width, *hidden, outputs)
    kinds = (*(stages or ("dense",) * len(hidden)), "dense")
    weights, biases, us, cs = [], [], [], []
    for kind, (n_in, n_out) in zip(kinds, itertools.pairwise(widths), strict=True):
        gates = GATES.get(kind, 1)
        weights.append(rng.normal(0, scale / np.sqrt(n_in), (n_in, gates * n_out)))
        biases.append(rng.normal(0, scale, gates * n_out))
        if kind in GATES:
            us.append(rng.normal(0, scale / np.sqrt(n_out), (n_out, gates * n_out)))
            cs.append(rng.normal(0, scale, gates * n_out))
    arrays = tuple(weights), tuple(biases)
    return PolicySender(name, *arrays, activation, sees, head, kinds, tuple(us), tuple(cs), inner_cca(sees, "test"))


AURORA = interface(signals="aurora", action="rate_delta")
ZOO = {
    "aurora": lambda seed=0: random_policy(AURORA, (64, 64, 32), seed=seed),
    "gru": lambda seed=0: random_policy(
        interface(signals="company", action="cwnd_exp2", clock={"every": "rtt"}), (8, 6), stages=("dense", "gru"), seed=seed
    ),
    "lstm": lambda seed=0: random_policy(
        interface(signals="orca", action="rate_exp2", history=2), (5, 7), stages=("lstm", "dense"), head="squashed", seed=seed
    ),
    "categorical": lambda seed=0: random_policy(
        interface(signals=["queue_log2", "loss_rate", "last_action"], action="cwnd_delta"), (8,), head="categorical", outputs=5,
        activation="relu", seed=seed,
    ),
    "orca": lambda seed=0: random_policy(
        interface(signals="orca", action="cwnd_exp2_over", inner="cubic", clock={"every": "seconds", "count": 0.02}), seed=seed
    ),
    "probes": lambda seed=0: random_policy(
        interface(
            signals=["probe_response", "roughness_log2", "persistence", "floor_log2", "peak_log2", "loss_lately_log2"],
            history=2, action="cwnd_exp2_probe", clock={"every": "seconds", "count": 0.05},
        ), (8,), seed=seed,
    ),
    "even": lambda seed=0: random_policy(
        interface(signals=["floor_log2", "last_action"], action="cwnd_exp2_even",
                  clock={"every": "seconds", "count": 0.02, "least_rtts": 2}), (8,), seed=seed,
    ),
    "pulled": lambda seed=0: random_policy(
        interface(signals=["floor_log2", "last_action"], action="cwnd_exp2_pull",
                  clock={"every": "seconds", "count": 0.02, "least_rtts": 2}), (8,), seed=seed,
    ),
    "beliefs_gru": lambda seed=0: random_policy(SENDER_V0, (6, 6), stages=("dense", "gru"), seed=seed),
    "mixed": lambda seed=0: random_policy(
        interface(signals=["bounds_log2", "ack_gap_variation", "ack_gap_log2"], history=3, action="rate_log2",
                  clock={"every": "acks", "count": 10}), seed=seed,
    ),
}  # fmt: skip
"""Policies of every kind of network, head, action and clock: name -> what makes one of a seed."""
