"""Random choices inside the shipped contracts against scripted networks, in proof timing: no settled window below the bound.

Windows are those of the lemma of steady utilisation: true and converged beliefs and a bounded queue at their first sample, the Rm
that the suite lets settle, then T = 11 samples. No belief times out before the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from ccenv.adversaries import ADVERSARIES, make_adversary
from ccenv.agents import make_sender
from ccenv.agents.sender import ContractSender
from ccenv.attacks.run import attack
from ccenv.attacks.windows import TRUE, Claim, converged
from ccenv.engine.compiled.beliefs import belief_settings
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.path import make_path
from ccenv.proofs.claims.lemmas import constants_of, load_suite

C_U_HIGH, QUEUE_HIGH = 3.0, 2.0
STEPS = 10
FIRST = 16  # steps before the first window
PATH = make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=40, buffer_bdp=6)


@dataclass(frozen=True)
class Bound:
    """What a suite says of steady states, and the preset of beliefs that it says it of."""

    name: str
    utilisation: float
    gamma: float
    settle: int
    beliefs: str


BOUNDS = (
    Bound("learned_contract_u80", 0.8, 0.735, 2, "no_timeout"),
    Bound("learned_contract_u77_timeouts", 0.77, 0.65, 0, "artefact"),
)
CONTRACTS = pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.name)


def test_the_bounds_are_those_of_the_suites():
    for bound in BOUNDS:
        suite = load_suite(bound.name).suite
        numbers = constants_of(suite, "history")
        assert (numbers["utilisation"], numbers["C_L_low"]) == (Fraction(str(bound.utilisation)), Fraction(str(bound.gamma)))
        assert (suite.settle, suite.timeout_preset or "no_timeout") == (bound.settle, bound.beliefs)
        assert (numbers["C_U_high"], numbers["queue_high"]) == (C_U_HIGH, QUEUE_HIGH)


def lowest_windows(bound: Bound, chooser: str, n_envs: int, rtts: int) -> tuple[int, int, float]:
    """Play all scripted adversaries; return choices made, windows that satisfy the premises, and their lowest utilisation."""
    program = make_sender(bound.name).program
    C, rtt_s = PATH.link_rate_Bps, PATH.flows[0].rtt_s
    names = ADVERSARIES.names("scripted")
    windows, lowest = 0, np.inf
    for seed, name in enumerate(names):
        engine = CurveEngine(
            [PATH] * n_envs,
            model="ccac",
            senders=[ContractSender("c", program, chooser)],
            adversary=make_adversary(name),
            steps_per_rtt=1,
            timing="smt",
            loss_detection="oracle",
            beliefs=belief_settings(bound.beliefs),
            seed=seed,
        )
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
    return len(names) * n_envs * rtts, windows, lowest


@CONTRACTS
@pytest.mark.parametrize("chooser", ["random", "lo", "hi"])
def test_no_settled_window_is_below_the_bound(bound, chooser):
    choices, windows, lowest = lowest_windows(bound, chooser, n_envs=16 if chooser == "random" else 1, rtts=120)
    assert choices >= 900 and windows > 200
    assert lowest >= bound.utilisation


@pytest.mark.slow
@CONTRACTS
def test_a_million_random_choices_stay_above_the_bound(bound):
    choices, windows, lowest = lowest_windows(bound, "random", n_envs=256, rtts=600)
    print(f"{choices} choices, {windows} windows, lowest utilisation {lowest:.4f}")
    assert choices >= 1_000_000 and windows > 100_000
    assert lowest >= bound.utilisation


@CONTRACTS
@pytest.mark.parametrize(
    ("chooser", "budget"),
    [
        ("random", 60_000),
        pytest.param("random", 1_200_000, marks=pytest.mark.slow),
        pytest.param("lo", 400_000, marks=pytest.mark.slow),
    ],
)
def test_no_attack_of_the_panel_finds_a_window_below_the_bound(bound, chooser, budget):
    steady = converged(bound.gamma, C_U_HIGH, QUEUE_HIGH)
    claim = Claim(bound.settle + STEPS + 1, steady, "steady state of the contract's lemmas", bound.settle)
    result = attack(
        f"contract:file={bound.name},chooser={chooser}", path=PATH, budget_flow_steps=budget, timing="smt", claim=claim
    )
    found = {name: finding.worst_utilisation for name, finding in result.by_adversary.items()}
    choices = sum(finding.flow_steps for finding in result.by_adversary.values())
    print(f"{choices} choices by {chooser}: {found}")
    assert all(finding.legal for finding in result.by_adversary.values())
    assert min(found.values()) >= bound.utilisation - TRUE
    assert min(found.values()) < 2  # some window met the premises
