"""The tighter belief rules as queries: true of every legal trace of any sender; without their premises they are not."""

from collections.abc import Callable
from itertools import combinations

import pytest

from ccenv.proofs.claims.claims import no_window_misleads
from ccenv.proofs.claims.properties import Property
from ccenv.proofs.claims.verifier import Query, Verifier
from ccenv.proofs.formulas.setting import HISTORY_STEPS, BeliefRules, Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.senders.rate_based import AnySender
from ccenv.proofs.solver.terms import Formula, all_of, any_of, implies

pytest.importorskip("z3")

SAMPLES = 6


def lost(v: View, x: int) -> Formula:
    return v.lost[x] > 0 if x else v.lost_at_0


def used(v: View, first: int, last: int) -> Formula:
    return all_of(v.step_utilised(x) for x in range(first, last + 1))


def between_losses(v: View) -> Formula:
    """C_L: what entered the queue after a step that filled the buffer."""
    return all_of(implies(lost(v, a), v.E[t] - v.E[a] <= t - a) for a, t in combinations(range(SAMPLES), 2))


def until_a_loss(v: View) -> Formula:
    """C_U: what entered the queue, all steps used, until a step that filled the buffer."""
    d = v.setting.jitter_steps
    return all_of(
        implies(all_of([lost(v, a), used(v, x + 1, a)]), v.E[a] - v.E[x] >= a - x) for x, a in combinations(range(SAMPLES - d), 2)
    )


def begins_with_what_was_sent(v: View, fallback: bool = True) -> Formula:
    """C_U: a window begins at E(x), or at an earlier sample if no step between wasted a token."""
    d = v.setting.jitter_steps
    claims = []
    for t in range(d + 1, SAMPLES):
        for x in range(t - d):
            for first in range(x + 1):
                bounds = [v.S[t] - v.E[y] >= t - d - y for y in range(first + 1, x + 1)]
                if fallback or not bounds:
                    bounds.append(v.S[t] - v.S[first] >= t - d - first)
                claims.append(implies(used(v, x + 1, t - d), any_of(bounds)))
    return all_of(claims)


def decide(claim: Callable[[View], Formula], model: str) -> str:
    setting = Setting(model, "arbitrary", SAMPLES, past_steps=HISTORY_STEPS)
    return Verifier(120).decide(Query("rule", setting, AnySender(), Property("rule", "", claim))).verdict


@pytest.mark.parametrize("model", ["ideal", "cbr_delay", "ccac"])
@pytest.mark.parametrize("rule", [between_losses, until_a_loss, begins_with_what_was_sent])
def test_each_rule_holds_on_every_legal_trace(rule, model) -> None:
    assert decide(rule, model) == "verified"


@pytest.mark.parametrize("model", ["ideal", "cbr_delay", "ccac"])
def test_the_encoding_of_the_rules_misleads_nobody(model) -> None:
    setting = Setting(model, "arbitrary", SAMPLES, beliefs=BeliefRules(upper="exact", tighter=True))
    claim = Property("windows", "", no_window_misleads)
    assert Verifier(120).decide(Query("windows", setting, AnySender(), claim)).verdict == "verified"
    premise = Property("windows", "", lambda v: all_of([no_window_misleads(v), v.E[3] - v.E[1] <= 2]))
    assert Verifier(120).decide(Query("windows", setting, AnySender(), premise)).verdict == "refuted"


BROKEN = {
    "no loss": lambda v: v.E[3] - v.E[1] <= 2,
    "steps that were not used": lambda v: implies(lost(v, 3), v.E[3] - v.E[1] >= 2),
    "no token wasted": lambda v: begins_with_what_was_sent(v, fallback=False),
    "a step too many": lambda v: implies(lost(v, 1), v.E[3] - v.E[1] <= 1),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_without_its_premise_a_rule_is_wrong(broken) -> None:
    assert decide(BROKEN[broken], "ccac") == "refuted"
