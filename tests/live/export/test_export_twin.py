"""The exported C equals its twin bit for bit; the twin's bounds are those of the reference, and they hold."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from acks import host_states, recorded_acks
from hypothesis import given, settings
from hypothesis import strategies as st
from random_acks import random_acks, random_program
from twin_reference import TwinBesideReference

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.programs import Program
from ccenv.agents.sender import ContractSender, PolicySender, ProgramSender
from ccenv.agents.wrapped import load_contract
from ccenv.engine.compiled.policies import mlp_action_reference
from ccenv.live.export import export_bpf
from ccenv.live.export.policy import PolicyDoesNotFit, WholePolicy
from ccenv.live.export.twin import STATE_DTYPE, UNBOUNDED, Twin

MSS_BYTES = 1500.0
BUFFER_PACKETS = 8  # at least: docs/live.md
SHIPPED = [name for name in AGENTS.names() if name.startswith(("cc_", "learned_")) and name != "cc_probe_slow_k"]


def program_of(name: str) -> Program | None:
    sender = make_sender(name)
    return sender.program if isinstance(sender, ProgramSender) else None


CONTRACT = load_contract("learned_contract_u80")
PROGRAMS = {name: program for name in SHIPPED if (program := program_of(name)) is not None}


def scenario(sender: str, rate_Bps: float, buffer_bdp: float, **flow: Any) -> dict[str, Any]:
    flow = {"sender": sender, "rtt_s": 0.04, **flow}
    buffer_bytes = max(BUFFER_PACKETS * MSS_BYTES, buffer_bdp * rate_Bps * flow["rtt_s"])
    return {"duration_s": 2.0, "links": [{"rate_Bps": rate_Bps, "buffer_bytes": buffer_bytes}], "flows": [flow]}


def batches(jitter_s: float) -> dict[str, Any]:
    return {"jitter": {"kind": "batch", "max_s": jitter_s}} if jitter_s else {}


def assert_equal(program: Program, acks: np.ndarray, **options: Any) -> np.ndarray:
    """Compare the C and the twin; return the states."""
    twin, host = Twin(program, **options).run(acks), host_states(program, acks, **options)
    for name in STATE_DTYPE.names or ():
        different = np.flatnonzero(twin[name] != host[name])
        assert different.size == 0, f"{name} differs first at ACK {different[0]}: {twin[different[0]]} {host[different[0]]}"
    return twin


def test_all_shipped_programs_are_here() -> None:
    assert len(PROGRAMS) >= 11
    assert {"cc_qdel", "cc_probe_slow", "learned_nominal_u54", "learned_nominal_u78", "learned_robust_d4"} <= set(PROGRAMS)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_c_equals_twin_on_recorded_acks(name: str) -> None:
    """Each program on its own ACKs: a shallow buffer with losses, and a deep one behind jitter."""
    for buffer_bdp, jitter_s in ((0.4, 0.0), (3.0, 0.04)):
        acks = recorded_acks(scenario(name, 3e6, buffer_bdp, **batches(jitter_s)))
        states = assert_equal(PROGRAMS[name], acks, jitter_s=jitter_s)
        assert len(states) > 200
        assert len(np.unique(states["rate"])) > 3


@settings(max_examples=12)
@given(program=st.integers(0, 10**6), history=st.integers(0, 10**6), setting=st.integers(0, 3))
def test_c_equals_twin_on_random_acks(program: int, history: int, setting: int) -> None:
    options = ({}, {"jitter_s": 0.013}, {"rtt_s": 0.02}, {"rtt_s": 0.05, "jitter_s": 0.1})[setting]
    for seed in range(history, history + 4):
        assert_equal(random_program(program), random_acks(seed), **options)


@settings(max_examples=12)
@given(program=st.integers(0, 10**6), history=st.integers(0, 10**6), chooser=st.sampled_from(["lo", "middle", "hi", "user"]))
def test_no_answer_leaves_the_interval(program: int, history: int, chooser: str) -> None:
    """Contracts: the C equals its twin whatever is answered and when, and the rate lies between the ends of the interval."""
    contract = random_program(program, contract=True)
    for seed in range(history, history + 4):
        states = assert_equal(contract, random_acks(seed), chooser=chooser, jitter_s=0.013)
        decided = states[states["asked"] > 0]
        assert (decided["lo"] <= decided["rate"]).all()
        assert (decided["rate"] <= decided["hi"]).all()
        assert chooser == "user" or len(np.unique(states["position"])) == 1


@settings(max_examples=12)
@given(history=st.integers(0, 10**6), seed=st.integers(0, 10**6), relu=st.booleans())
def test_a_policy_that_is_compiled_in_equals_its_twin(history: int, seed: int, relu: bool) -> None:
    """Random policies with weights of all sizes, in random contracts, on random ACKs."""
    rng = np.random.default_rng(seed)
    widths = [10, *rng.integers(1, 33, int(rng.integers(0, 3))), 1]
    weights = tuple(rng.normal(0, 10.0 ** rng.uniform(-2, 2), shape) for shape in itertools.pairwise(widths))
    policy = PolicySender("p", weights, tuple(rng.normal(0, 1, n) for n in widths[1:]), "relu" if relu else "tanh")
    contract = random_program(seed, contract=True)
    for number in range(history, history + 3):
        assert_equal(contract, random_acks(number), chooser=policy, jitter_s=0.013)


def test_the_shipped_policy_decides_as_in_floating_point() -> None:
    sender = make_sender("learned_contract_u80")
    assert isinstance(sender, ContractSender)
    assert sender.policy is not None
    acks = recorded_acks(scenario("cc_probe_drain", 3e6, 2.0))
    states = assert_equal(CONTRACT, acks, chooser=sender.policy)
    assert len(np.unique(states["position"])) > 10
    whole = WholePolicy.of(sender.policy)
    rng = np.random.default_rng(0)
    for _ in range(200):
        x = rng.uniform([0, 0, 0, 0, -2, 0, -2, 0, 0, 0], [8, 2, 2, 0.1, 2, 1, 2, 4, 1, 4])
        exact = 0.5 * (mlp_action_reference(sender.policy, x) + 1)
        assert whole.position([round(v * 65_536) for v in x]) / 65_536 == pytest.approx(exact, abs=2e-4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"head": "squashed"}, "its head is squashed; mean fits"),
        ({"weights": (np.zeros((10, 33)), np.zeros((33, 1))), "biases": (np.zeros(33), np.zeros(1))}, "a layer has 33 outputs"),
        ({"weights": (np.full((10, 1), 5e3),), "biases": (np.zeros(1),)}, "a weight is 5000; below 4096 fit"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(change: dict[str, Any], words: str) -> None:
    plain = PolicySender("p", (np.zeros((10, 1)),), (np.zeros(1),), "tanh")
    with pytest.raises(PolicyDoesNotFit, match=words):
        export_bpf(CONTRACT, name="p", chooser=replace(plain, **change))


def answered(acks: np.ndarray, answers: dict[int, int]) -> np.ndarray:
    """Return ACKs with answers: positions by the number of the decision, seen from the next ACK on."""
    acks = acks.copy()
    asked = Twin(CONTRACT, chooser="user").run(acks)["asked"].astype(np.int64)
    for row in range(1, len(acks)):
        if asked[row - 1] in answers:
            acks["answer"][row] = (asked[row - 1] << 32) + answers[int(asked[row - 1])]
    return acks


def test_a_chooser_that_falls_silent_leaves_the_middle() -> None:
    """The last answer holds until a decision stays without one; from the next decision on it is the middle."""
    acks = recorded_acks(scenario("cc_probe_drain", 3e6, 2.0))
    states = assert_equal(CONTRACT, answered(acks, {1: 0, 2: 65_536, 3: 2**31}), chooser="user")
    of = {n: set(states["position"][states["asked"] == n].tolist()) for n in range(1, 7)}
    assert of == {1: {32_768, 0}, 2: {0, 65_536}, 3: {65_536}, 4: {65_536}, 5: {32_768}, 6: {32_768}}


@pytest.mark.parametrize("name", ["cc_probe_drain", "learned_robust_d4"])
def test_c_equals_twin_where_counters_wrap(name: str) -> None:
    """The same run with counters that pass 2**32 on the way gives the same states, but for the kernel's first ten segments."""
    acks = recorded_acks(scenario(name, 3e6, 0.4))
    shifted = acks.copy()
    for field in ("delivered", "lost", "data_segs_out"):
        shifted[field] += np.uint32(2**32 - 100)
    before, after = assert_equal(PROGRAMS[name], acks), assert_equal(PROGRAMS[name], shifted)
    for field in set(STATE_DTYPE.names or ()) - {"cwnd"}:
        assert (before[field] == after[field]).all(), field


def bounds_of(acks: np.ndarray, rate_Bps: float, **options: Any) -> tuple[float, float, float]:
    """Return the largest C_L and C_L_lambda and the smallest C_U that were ever held, as shares of the link's rate."""
    twin = Twin(PROGRAMS["cc_probe_slow"], **options)
    lower, upper, by_sending = 0.0, np.inf, 0.0
    for row in range(len(acks)):
        twin.run(acks[row : row + 1])
        if twin.rtt_us:
            unit = 8e6 / twin.rtt_us * MSS_BYTES / 2**twin.constants.fraction_bits / rate_Bps
            lower, by_sending = max(lower, twin.C_L * unit), max(by_sending, twin.C_L_lambda * unit)
            upper = upper if twin.C_U == UNBOUNDED else min(upper, twin.C_U * unit)
    return lower, upper, by_sending


SENDERS = ("cc_probe_drain", "cc_qdel", "cc_probe_fast", "cc_probe_slow", "cc_probe_qdel", "learned_nominal_u54", "reno", "copa")


@settings(max_examples=25)
@given(
    sender=st.sampled_from(SENDERS),
    bdp_packets=st.floats(12, 200),
    rtt_s=st.floats(0.01, 0.1),
    buffer_bdp=st.floats(0.05, 6),
    jitter=st.sampled_from([("none", 0.0), ("batch", 0.5), ("batch", 1.0), ("constant", 1.0), ("adversary", 1.0)]),
    known=st.booleans(),
)
def test_bounds_hold(
    sender: str, bdp_packets: float, rtt_s: float, buffer_bdp: float, jitter: tuple[str, float], known: bool
) -> None:
    """C_L <= C <= C_U at every ACK, whoever sends, with jitter up to one packet per window; Rm known or measured."""
    kind, share = jitter
    rate_Bps, jitter_s = bdp_packets * MSS_BYTES / rtt_s, share * rtt_s
    box = {"kind": kind, "max_s": jitter_s, **({"adversary": "square"} if kind == "adversary" else {})}
    acks = recorded_acks(scenario(sender, rate_Bps, buffer_bdp, rtt_s=rtt_s, **({"jitter": box} if share else {})))
    told_s = rtt_s + MSS_BYTES / rate_Bps if known else None
    lower, upper, by_sending = bounds_of(acks, rate_Bps, jitter_s=jitter_s, rtt_s=told_s)
    packet = 1 + (1 / bdp_packets if share else 0) + 1e-6
    assert lower <= packet
    assert upper >= 1 / packet
    if known or kind == "none":
        assert by_sending <= 1 + 1 / bdp_packets + 1e-6


@pytest.mark.parametrize(("buffer_bdp", "jitter_s"), [(0.3, 0.0), (1.0, 0.0), (4.0, 0.04)])
@pytest.mark.parametrize("sender", ["cc_probe_drain", "cc_probe_fast"])
def test_upper_bounds_are_found(sender: str, buffer_bdp: float, jitter_s: float) -> None:
    """Bounds that hold because they say nothing would be of no use: losses and delays prove that the link was busy."""
    acks = recorded_acks(scenario(sender, 6e6, buffer_bdp, **batches(jitter_s)))
    lower, upper, _ = bounds_of(acks, 6e6, jitter_s=jitter_s)
    assert lower > 0.9
    assert upper < 1.6


@pytest.mark.parametrize(
    ("sender", "rate_Bps", "buffer_bdp", "jitter_s"),
    [
        ("cc_probe_drain", 3e6, 0.4, 0.0),
        ("cc_probe_drain", 3e6, 2.0, 0.04),
        ("cc_probe_fast", 6e6, 0.2, 0.0),
        ("cc_qdel", 3e6, 4.0, 0.02),
        ("cc_probe_slow", 1.5e6, 3.0, 0.04),
        ("learned_nominal_u70", 3e6, 1.0, 0.0),
        ("learned_robust_d4", 3e6, 3.0, 0.01),
        ("cc_probe_qdel", 12e6, 1.0, 0.005),
    ],
)
def test_bounds_are_those_of_the_reference(sender: str, rate_Bps: float, buffer_bdp: float, jitter_s: float) -> None:
    acks = recorded_acks(scenario(sender, rate_Bps, buffer_bdp, **batches(jitter_s)))
    twin = TwinBesideReference(PROGRAMS[sender], jitter_s=jitter_s)
    twin.run(acks)
    ours, theirs = (np.array([pair[side] for pair in twin.pairs]) for side in (0, 1))
    assert len(ours) > 300
    assert len(np.unique(ours[:, 1:], axis=0)) > 10
    np.testing.assert_allclose(ours[:, :2], theirs[:, :2], rtol=0, atol=3e-7)
    assert (ours[:, 2] <= theirs[:, 2] + 3e-7).all()
    window_steps = twin.constants.probe_steps + twin.jitter
    if acks["lost"][-1] == 0:
        assert (ours[:, 2] >= theirs[:, 2] - 1 / window_steps - 3e-7).all()
