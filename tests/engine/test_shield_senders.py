"""Choosers inside shields: both engines against the plain references, and no settled window below the bound of the lemmas.

Those windows are of the lemma of steady utilisation: true and converged beliefs and a bounded queue at their first sample, the Rm
that the suite lets settle, then T = 11 samples. No belief times out before the last one.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from compare import run_both
from oracles.packet import PacketReference
from random_setup import random_setup
from shields_data import inside, policy, shield

from ccenv.adversaries import ADVERSARIES, make_adversary
from ccenv.agents import make_sender
from ccenv.agents.programs import parse_program, to_data
from ccenv.agents.sender import HeldSender, ShieldSender
from ccenv.attacks.run import attack
from ccenv.attacks.windows import TRUE, Claim, converged
from ccenv.base.errors import InputError
from ccenv.engine.compiled.beliefs import belief_settings
from ccenv.engine.curve.engine import CurveEngine
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.spec import NetworkSpec
from ccenv.network.laws import check_trace
from ccenv.network.path import make_path
from ccenv.proofs.claims.lemmas import constants_of, load_suite

CHOOSERS = ("lo", "hi", "middle", "random", "policy")
PATH = make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=40, buffer_bdp=4)


@pytest.mark.parametrize("chooser", CHOOSERS)
def test_curve_engine_and_reference_choose_alike(chooser):
    for trial in range(12):
        path, run = random_setup(5000 + trial, n_flows=1 + trial % 2, models=("ideal", "cbr_delay", "ccac"))
        run["senders"] = [inside(chooser, seed=trial)] * path.n_flows
        engine, _ = run_both(path, steps=120, **run)
        assert check_trace(engine.trace(0)) == [], f"trial {trial}"


@pytest.mark.parametrize("chooser", CHOOSERS)
def test_packet_engine_and_reference_choose_alike(chooser):
    flows = [
        {"sender": "inside", "rtt_s": 0.02},
        {"sender": "inside", "rtt_s": 0.03, "start_s": 0.05, "jitter": {"kind": "early", "max_s": 0.01}},
    ]
    network = NetworkSpec.model_validate({"links": [{"rate_Bps": 1.5e6, "buffer_bytes": 60_000}], "flows": flows})
    senders = [inside(chooser)] * 2
    engine = PacketEngine(network, senders, duration_s=0.6, seed=5)
    reference = PacketReference(network, senders, seed=5)
    engine.advance(0.6)
    reference.advance(0.6)
    for index, flow in enumerate(reference.flows):
        assert engine.flow("sent_bytes")[index] == flow.sent_bytes > 0


def test_random_choices_depend_on_the_seed_alone():
    def positions(seed, threads=1):
        engine = CurveEngine([PATH] * 64, model="ccac", senders=[inside("random")], seed=seed, threads=threads)
        engine.advance(400)
        return engine.flow("position")[:, 0]

    assert np.array_equal(positions(1), positions(1, threads=2)) and not np.array_equal(positions(1), positions(2))
    assert len(set(positions(1))) == 64  # each environment draws its own
    assert 0 <= positions(1).min() < 0.1 and 0.9 < positions(1).max() < 1


@pytest.mark.parametrize(
    ("asked", "chooser"), [(np.nan, "lo"), (-5.0, "lo"), (0.0, "lo"), (1.0, "hi"), (7.0, "hi"), (0.5, "middle")]
)
def test_an_external_chooser_is_clipped_into_the_interval(asked, chooser):
    engine = CurveEngine([PATH], model="ccac", senders=[inside("external")])
    other = CurveEngine([PATH], model="ccac", senders=[inside(chooser)])
    for _ in range(60):
        engine.advance(8, actions=np.array([[asked]]))
        other.advance(8)
        assert engine.totals()["S"] == other.totals()["S"]
    assert engine.totals()["S"][0, 0] > 0


def test_an_external_position_counts_from_the_decision_that_it_answers():
    """The rate of a step is inside the interval of the beliefs that the chooser saw, at the position that it asked for."""
    engine = CurveEngine([PATH], model="ccac", senders=[inside("external")])
    rng = np.random.default_rng(0)
    engine.advance(8, actions=np.array([[0.5]]))
    for _ in range(80):
        lo, hi = engine.flow("lo_Bps")[0, 0], engine.flow("hi_Bps")[0, 0]
        asked = rng.random()
        engine.advance(8, actions=np.array([[asked]]))
        assert engine.flow("rate_Bps")[0, 0] == min(max(lo + asked * (hi - lo), lo), hi)


def test_a_policy_whose_output_is_no_number_chooses_the_lower_end():
    first, last = policy().weights
    signs = np.where(np.arange(len(last)) % 2, -1.0, 1.0)[:, None]
    broken = replace(policy(), activation="relu", weights=(np.full_like(first, 1e308), 1e308 * signs * np.ones_like(last)))
    broken = replace(broken, biases=(np.full(8, 1e308), np.zeros(1)))  # infinity minus infinity
    engine = CurveEngine([PATH], model="ccac", senders=[ShieldSender("c", shield(), "policy", broken)])
    other = CurveEngine([PATH], model="ccac", senders=[inside("lo")])
    for each in (engine, other):
        each.advance(480)
    assert engine.totals()["S"] == other.totals()["S"]


def test_a_shield_stands_behind_a_proxy_unless_it_is_driven_from_outside():
    held = HeldSender("held", inside("middle"), "fixed", 0.02)
    engine = CurveEngine([PATH], model="ccac", senders=[held])
    engine.advance(400)
    assert engine.totals()["S"][0, 0] > 0
    with pytest.raises(InputError, match="cannot stand behind a proxy"):
        HeldSender("held", inside("external"), "fixed", 0.02)


def test_a_choice_is_held_as_long_as_the_leaf_says():
    data = to_data(shield())
    data["rule"]["else"]["then"]["else"]["hold_rtts"] = 3
    engine = CurveEngine([PATH], model="ccac", senders=[inside("random", program=parse_program(data))], record=True)
    engine.advance(240)
    trace = engine.trace(0)
    changes = np.flatnonzero(np.diff(trace.rate_Bps[:, 0])) + 1
    assert 24 in np.diff(changes)


C_U_HIGH, QUEUE_HIGH = 3.0, 2.0
STEPS = 10
FIRST = 16  # steps before the first window
DEEP_PATH = make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=40, buffer_bdp=6)


@dataclass(frozen=True)
class Bound:
    """What a suite says of steady states, and the preset of beliefs that it says it of."""

    name: str
    utilisation: float
    gamma: float
    settle: int
    beliefs: str


BOUNDS = (
    Bound("learned_shield_u80", 0.8, 0.735, 2, "no_timeout"),
    Bound("learned_shield_u77_timeouts", 0.77, 0.65, 0, "artefact"),
)
SHIELDS = pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.name)


def test_the_bounds_are_those_of_the_suites():
    for bound in BOUNDS:
        suite = load_suite(bound.name).suite
        numbers = constants_of(suite, "history")
        assert (numbers["utilisation"], numbers["C_L_low"]) == (Fraction(str(bound.utilisation)), Fraction(str(bound.gamma)))
        assert (suite.settle, suite.timeout_preset or "no_timeout") == (bound.settle, bound.beliefs)
        assert (numbers["C_U_high"], numbers["queue_high"]) == (C_U_HIGH, QUEUE_HIGH)


def lowest_windows(bound: Bound, chooser: str, n_envs: int, rtts: int) -> tuple[int, float]:
    """Play all scripted adversaries; return windows that satisfy the premises, and their lowest utilisation."""
    program = make_sender(bound.name).program
    C, rtt_s = DEEP_PATH.link_rate_Bps, DEEP_PATH.flows[0].rtt_s
    windows, lowest = 0, np.inf
    for seed, name in enumerate(ADVERSARIES.names("scripted")):
        engine = CurveEngine(
            [DEEP_PATH] * n_envs, model="ccac", senders=[ShieldSender("c", program, chooser)], adversary=make_adversary(name),
            steps_per_rtt=1, timing="smt", loss_detection="oracle", beliefs=belief_settings(bound.beliefs), seed=seed,
        )  # fmt: skip
        seen = []
        for _ in range(rtts):
            engine.advance(1)
            row = [engine.flow(field)[:, 0] for field in ("S", "C_L_Bps", "C_U_Bps")]
            seen.append([*row, engine.env("enqueued_bytes") - engine.env("tokens_bytes")])
        S, C_L, C_U, queue = np.moveaxis(np.array(seen), 1, 0)
        last = bound.settle + STEPS
        true, converged = (C_L <= C) & (C_U >= C), (bound.gamma * C <= C_L) & (C_U <= C_U_HIGH * C)
        premise = true & converged & (queue <= 2 * QUEUE_HIGH * C * rtt_s)
        tighter = (C_L[1:] >= C_L[:-1]) & (C_U[1:] <= C_U[:-1])
        kept = np.lib.stride_tricks.sliding_window_view(tighter, last - 1, axis=0).all(axis=-1)
        premise = premise[FIRST:-last] & kept[FIRST:-1]
        used = (S[FIRST + last :] - S[FIRST + bound.settle : -STEPS]) / (C * rtt_s * (STEPS - 1))
        windows += int(premise.sum())
        lowest = min(lowest, float(used[premise].min(initial=np.inf)))
    return windows, lowest


@SHIELDS
@pytest.mark.parametrize(
    ("chooser", "n_envs", "rtts", "least"),
    [("random", 16, 120, 200), ("lo", 1, 120, 200), ("hi", 1, 120, 200),
     pytest.param("random", 256, 600, 100_000, marks=pytest.mark.slow)],
)  # fmt: skip
def test_no_settled_window_is_below_the_bound(bound, chooser, n_envs, rtts, least):
    windows, lowest = lowest_windows(bound, chooser, n_envs, rtts)
    assert windows > least and lowest >= bound.utilisation


@SHIELDS
@pytest.mark.parametrize(("chooser", "budget"), [
    ("random", 60_000), pytest.param("random", 1_200_000, marks=pytest.mark.slow),
    pytest.param("lo", 400_000, marks=pytest.mark.slow),
])  # fmt: skip
def test_no_attack_of_the_panel_finds_a_window_below_the_bound(bound, chooser, budget):
    steady = converged(bound.gamma, C_U_HIGH, QUEUE_HIGH)
    claim = Claim(bound.settle + STEPS + 1, steady, "steady state of the shield's lemmas", bound.settle)
    result = attack(
        f"shield:file={bound.name},chooser={chooser}", path=DEEP_PATH, budget_flow_steps=budget, timing="smt", claim=claim
    )
    found = {name: finding.worst_utilisation for name, finding in result.by_adversary.items()}
    choices = sum(finding.flow_steps for finding in result.by_adversary.values())
    print(f"{choices} choices by {chooser}: {found}")
    assert all(finding.legal for finding in result.by_adversary.values())
    assert min(found.values()) >= bound.utilisation - TRUE
    assert min(found.values()) < 2  # some window met the premises
