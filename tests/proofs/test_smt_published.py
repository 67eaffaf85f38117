"""Published senders, two flows, ReLU policies and theorem 6.1."""

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from ccenv.base.errors import CcenvError, InputError
from ccenv.cli.main import main
from ccenv.network.laws import check_trace
from ccenv.network.trace import Trace
from ccenv.proofs.claims.ask import setting_of
from ccenv.proofs.claims.claims import SAMPLES, Thresholds, build_claim
from ccenv.proofs.claims.cycles import RETURNS
from ccenv.proofs.claims.fairness import (
    LARGEST_INCREASE,
    aimd_query,
    algorithm1_claims,
    algorithm1_query,
    dctcp_query,
    delay_aimd_query,
    program_query,
    step_query,
)
from ccenv.proofs.claims.impossibility import convergence_time_s, ramp, rtts_to_reach
from ccenv.proofs.claims.properties import Property
from ccenv.proofs.claims.report import decide_claim, refute
from ccenv.proofs.claims.verifier import STEP_FAILS, Query, Verifier
from ccenv.proofs.formulas.encode import encode
from ccenv.proofs.formulas.moves import REPLAY_TOLERANCE, as_adversary, engine_replay
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import as_trace
from ccenv.proofs.replay.closed_loop import run_in_engine
from ccenv.proofs.replay.exact import Decision, ReplayError, Run, replay
from ccenv.proofs.senders.catalog import smt_sender
from ccenv.proofs.senders.thinned import thin
from ccenv.proofs.solver.terms import all_of, any_of

pytest.importorskip("z3")


def test_copa_stays_below_a_tenth_on_ccac() -> None:
    """CCAC (Arun et al. 2021): jitter of one Rm keeps Copa's window small for good."""
    (query,) = build_claim("utilisation_or_rise", Setting(samples=10), smt_sender("copa"), Thresholds(Fraction(1, 10)))
    failed = Verifier(60).decide(query)
    assert failed.reason == STEP_FAILS
    repeated, result, _ = refute(query, failed, Verifier(60))
    assert (result.verdict, repeated.claim.repeats) == ("refuted", True)
    trace = as_trace(result.view, "copa")
    run, difference = engine_replay(trace)
    assert difference <= REPLAY_TOLERANCE
    step_bytes = run.header.path.link_rate_Bps * run.header.dt_s
    assert run.S[-1, 0] - run.S[1, 0] < 0.1 * step_bytes * (run.n_steps - 1)  # from sample 1 on it repeats
    assert as_adversary(trace).moves.shape == (9, 4)


def test_constant_rate_and_aimd_with_a_bdp_of_buffer_use_half_of_the_link() -> None:
    sender = smt_sender("constant")
    slow = build_claim("utilisation_or_rise", Setting(samples=6), sender, Thresholds(Fraction(1, 2)))
    assert Verifier(60).decide(slow[0]).reason == STEP_FAILS
    (query,) = build_claim("utilisation_or_rise", Setting("ccac", Fraction(1), 7), smt_sender("aimd"), Thresholds(Fraction(1, 2)))
    assert Verifier(60).decide(query).verdict == "verified"


def test_aimd_that_must_find_its_losses_uses_less_of_the_link() -> None:
    """Told by an oracle AIMD uses half of the link at 1 BDP of buffer; by duplicate ACKs the bytes lost hold its window back."""
    verdicts = {}
    for detection in ("oracle", "dupacks"):
        setting = Setting("ccac", Fraction(1), 6, loss_detection=detection)
        (query,) = build_claim("utilisation_or_rise", setting, smt_sender("aimd"), Thresholds(Fraction(1, 2)))
        verdicts[detection] = Verifier(60).decide(query)
    assert {name: result.verdict for name, result in verdicts.items()} == {"oracle": "verified", "dupacks": "unknown"}
    result = verdicts["dupacks"]
    assert result.reason == STEP_FAILS
    run = run_in_engine(as_trace(result.view, "aimd"), result.view, result.values, smt_sender("aimd"), 1)
    assert run["engine"] == "reproduced"


@pytest.mark.parametrize(("detection", "verdict"), [("oracle", "verified"), ("dupacks", "refuted")])
def test_only_a_time_out_takes_the_window_to_one_segment(detection: str, verdict: str) -> None:
    def holds(v):
        return all_of(any_of([v.cwnd[t] > v.alpha, v.cwnd[t - 1] < 3 * v.alpha]) for t in range(1, v.setting.samples))

    setting = Setting("ccac", Fraction(1, 2), 7, loss_detection=detection)
    claim = Property("no restart", "a window of three segments does not fall to one", holds)
    assert Verifier(60).decide(Query("no restart", setting, smt_sender("aimd"), claim)).verdict == verdict


def test_two_aimd_flows_are_not_starved_without_bound() -> None:
    """[Starvation] s.5.4, on five Rm: each Rm halves at most once, and the other window grows by one MSS."""
    assert Verifier(60).decide(aimd_query(Fraction(32), 6)).verdict == "verified"
    assert Verifier(60).decide(aimd_query(Fraction(16), 6)).verdict == "refuted"


@pytest.mark.parametrize("query", [
    aimd_query(Fraction(16), 6), aimd_query(Fraction(3), 5, flows=3), aimd_query(Fraction(16), 6, model="ccac"),
    pytest.param(dctcp_query(Fraction(3, 2), 5), marks=pytest.mark.slow),
    program_query(smt_sender("cc_probe_drain"), Fraction(10), 6),
    program_query(smt_sender("cc_probe_drain"), Fraction(10), 6, 3, "ccac"),
])  # fmt: skip
def test_counterexamples_of_several_flows_are_legal_and_the_engine_reproduces_every_flow(query: Query, tmp_path) -> None:
    outcome = decide_claim("fairness", [query], Verifier(60), tmp_path)
    assert (outcome.verdict, outcome.details["replay"]["engine"]) == ("refuted", "reproduced")
    trace = Trace.load(Path(outcome.trace))
    assert trace.n_flows == query.flows and check_trace(trace) == [] and engine_replay(trace)[1] <= REPLAY_TOLERANCE
    with pytest.raises(InputError, match=f"{query.flows} flows"):
        as_adversary(trace)


@pytest.mark.parametrize(("sender", "prop", "thresholds", "least", "verdict"), [
    ("cc_qdel", "queue", Thresholds(None, Fraction(5)), "0", "verified"),
    ("cc_qdel", "inflight", Thresholds(None, Fraction(8)), "0", "verified"),
    ("cc_qdel", "f-efficient", Thresholds(), "0", "refuted"),
    ("cc_qdel", "utilisation", Thresholds(Fraction(1, 2)), "99/100", "verified"),
    ("cc_probe_drain", "utilisation", Thresholds(Fraction(1, 4)), "9/10", "verified"),
])  # fmt: skip
def test_bounds_under_an_application_limit_and_a_loss_budget(sender, prop, thresholds, least, verdict, tmp_path) -> None:
    """[CCmatic] s.8: what bounds the queue survives an application that sends less; a share of lost bytes costs utilisation."""
    thinned = thin(smt_sender(sender), Fraction(least))
    setting, _ = setting_of(thinned, "ccac", "infinite", SAMPLES.get(prop, 7), None, ("paper", "paper", "oracle"))
    outcome = decide_claim(prop, build_claim(prop, setting, thinned, thresholds), Verifier(60), tmp_path)
    assert outcome.verdict == verdict
    if verdict == "refuted":
        assert outcome.details["replay"]["exact"] and check_trace(Trace.load(Path(outcome.trace))) == []


@pytest.mark.parametrize("least", [Fraction(-1, 2), Fraction(2)])
def test_a_share_of_which_no_trace_is_legal_is_refused(least: Fraction) -> None:
    with pytest.raises(InputError):
        thin(smt_sender("cc_qdel"), least)


def test_marks_keep_a_flow_from_starving_in_short_cycles() -> None:
    """[Starvation] s.6.4 (longer cycles: docs/verification.md); the replayer computes marks and echoes by itself."""
    assert Verifier(60).decide(dctcp_query(Fraction(10), 5)).verdict == "verified"
    query = dctcp_query(Fraction(2), 5)
    values = Verifier(60).decide(query).values
    marked = next(t for t in range(1, 5) if values[f"marked_{t}"])
    for changed in ({f"marked_{marked}": False}, {"mark_above": values["mark_above"] * 2}):
        with pytest.raises(ReplayError, match=r"marked|threshold"):
            replay(query.setting, values | changed, frozenset(), 1, query.sender.decider(), 2)


@pytest.mark.slow
def test_aimd_on_delay_starves_no_flow_in_short_cycles() -> None:
    """[Starvation] s.6.2; the smaller ratio's cycle replays exactly, and not with another window."""
    assert Verifier(60).decide(delay_aimd_query(Fraction(10), 7)).verdict == "verified"
    query = delay_aimd_query(Fraction(3, 2), 7)
    values = Verifier(60).decide(query).values
    replay(query.setting, values, frozenset(), 1, query.sender.decider(), 2)
    with pytest.raises(ReplayError):
        replay(query.setting, values | {"alpha": values["alpha"] * 2}, frozenset(), 1, query.sender.decider(), 2)


def test_algorithm_1_keeps_its_invariant_and_no_smaller_ratio(tmp_path) -> None:
    """(s + a/(mu_minus/s))/b is the least ratio that one step keeps: below it a step leaves, by a trace that the engine plays."""
    step, invariant, delays = (decide_claim(query.name, [query], Verifier(60), tmp_path) for query in algorithm1_claims())
    assert [step.verdict, invariant.verdict, delays.verdict] == ["refuted", "verified", "refuted"]
    assert {outcome.details["replay"]["engine"] for outcome in (step, delays)} == {"reproduced"}
    least = (Fraction(2) + LARGEST_INCREASE) / Fraction(1, 2)
    assert Verifier(60).decide(step_query(least - Fraction(1, 1000))).verdict == "refuted"
    assert Verifier(60).decide(step_query(least, flows=3)).verdict == "verified"


@pytest.mark.parametrize(("sender", "model", "verdict"), [
    ("bbr1", "cbr_delay", "refuted"), ("bbr_paced_up", "cbr_delay", "unknown"), ("bbr_paced_up", "ccac", "unknown"),
    ("bbr_estimated_rm", "cbr_delay", "refuted"), ("bbr_paced_up_estimated_rm", "cbr_delay", "unknown"),
    ("copa", "ccac", "refuted"), ("cc_qdel", "cbr_delay", "verified"),
])  # fmt: skip
def test_which_senders_are_f_efficient_under_jitter(sender: str, model: str, verdict: str, tmp_path) -> None:
    """[Starvation] s.6.1: BBR and Copa are not, for no f; with a higher pacing rate nothing is found against BBR, nor proved."""
    queries = build_claim("f-efficient", Setting(model, "infinite", 10), smt_sender(sender), Thresholds())
    outcome = decide_claim("f-efficient", queries, Verifier(60), tmp_path)
    assert outcome.verdict == verdict and (outcome.details.get("lasso") == RETURNS) == (verdict == "refuted")
    if verdict == "refuted":
        assert check_trace(Trace.load(Path(outcome.trace))) == [] and outcome.details["replay"]["engine"] == "reproduced"


@pytest.mark.parametrize(("name", "change", "says"), [
    ("flow1_cwnd_3", 1, r"cwnd\(3\)"), ("flow1_E_2", -1, "no flow loses more|the flows lose"), ("flow0_S_4", 3, "sample 4"),
    ("flow0_S_0", 1, "sample 0"), ("G_3", 2, "at sample"),
])  # fmt: skip
def test_exact_replayer_of_several_flows_refuses_changed_models(name: str, change: int, says: str) -> None:
    query = aimd_query(Fraction(16), 6)
    values = Verifier(60).decide(query).values
    replay(query.setting, values, frozenset(), 1, query.sender.decider(), 2)
    with pytest.raises(ReplayError, match=says):
        replay(query.setting, values | {name: values[name] + change}, frozenset(), 1, query.sender.decider(), 2)


def test_exact_replayer_refuses_bytes_out_of_order() -> None:
    """Both flows get what they ask for in the end, but one of them overtakes a whole step of the other."""
    setting = Setting("ccac", "infinite", 4)
    sent = {"flow0": [0, 1, 0, 1], "flow1": [0, 1, 1, 1]}
    served = {"flow0": [0, 1, 1, 1], "flow1": [0, 0, 1, 2]}
    numbers = {"alpha": Fraction(1, 10)} | {f"G_{t}": Fraction(t) for t in range(4)}
    for flow, sizes in sent.items():
        numbers |= {f"{flow}_rate_{t}": Fraction(x) for t, x in enumerate(sizes)}
        numbers |= {f"{flow}_E_{t}": Fraction(x) for t, x in enumerate(itertools.accumulate(sizes))}
        numbers |= {f"{flow}_S_{t}": Fraction(x) for t, x in enumerate(served[flow])}

    def as_told(run: Run, t: int, state: dict[str, Any]) -> Decision:
        rate = run.values[f"rate_{t}"]
        return Decision(rate, rate, state)

    assert len(replay(setting, numbers, frozenset(), 1, as_told, 2).flows) == 2
    swapped = {"flow0_S_2": Fraction(0), "flow1_S_2": Fraction(2)}
    with pytest.raises(ReplayError, match="first in, first out"):
        replay(setting, numbers | swapped | {"flow0_S_1": Fraction(0), "flow1_S_1": Fraction(1)}, frozenset(), 1, as_told, 2)


def test_several_flows_take_what_has_a_meaning_for_a_share() -> None:
    for sender, setting in (("cc_probe_slow", Setting(samples=5)), ("aimd", Setting(samples=5, past_steps=2))):
        with pytest.raises(CcenvError, match="several flows"):
            encode(setting, smt_sender(sender), flows=2)


def test_two_flow_counterexamples_must_violate_the_property() -> None:
    """A solver that answers another question is noticed: here every pair of windows is said to break the ratio."""
    honest = aimd_query(Fraction(32), 5)
    asked: list[bool] = []

    def holds(view):
        asked.append(True)
        return False if len(asked) == 1 else honest.claim.holds(view)  # first for the encoding, then for the numbers

    with pytest.raises(ReplayError, match="does not violate"):
        Verifier(60).decide(replace(honest, claim=replace(honest.claim, holds=holds)))


def test_fairness_on_the_command_line(tmp_path, capsys) -> None:
    arguments = ["verify", "fairness", "aimd", "--T", "6", "--json", "--out", str(tmp_path)]
    assert main([*arguments, "--at-most", "32"]) == 0 and json.loads(capsys.readouterr().out)["bound"] == 32
    assert main([*arguments, "--at-most", "16"]) == 1
    refuted = json.loads(capsys.readouterr().out)
    assert refuted["bound"] is None and refuted["replay"]["engine"] == "reproduced"
    assert main(["trace", "replay", refuted["trace"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reproduced"] is True


@pytest.mark.parametrize(
    ("model", "samples", "verdict"), [("ccac", 6, "verified"), ("cbr_delay", 5, "verified"), ("cbr_delay", 6, "refuted")]
)
def test_algorithm_1_goes_beyond_s_where_each_flow_is_delayed_apart(model: str, samples: int, verdict: str) -> None:
    """[Starvation] s.6.3 with s = 2: one delay element for all flows keeps them 2 apart in such cycles, their own do not."""
    result = Verifier(60).decide(algorithm1_query(Fraction(2), samples, model=model))
    assert result.verdict == verdict
    if result.view is not None:
        slow, fast = (flow.S[-1] - flow.S[1] for flow in result.view.flows)
        assert fast > 2 * slow > 0 and all(flow.late[1] == flow.late[-1] for flow in result.view.flows)


def test_theorem_6_1_takes_linear_time_with_constant_and_logarithmic_with_proportional_loss() -> None:
    """f = const: F(k) = C_0 + k * const / beta_s, so F^-1(C) = (C - C_0) * beta_s / const; f = C * beta_s doubles each RTT."""
    assert rtts_to_reach(1e6, lambda rate: 3000.0, 1e5, 0.04) == math.ceil((1e6 - 1e5) * 0.04 / 3000.0)
    assert convergence_time_s(1e6, lambda rate: 3000.0, 1e5, 0.04, 0.05) == pytest.approx(12 * 0.09)
    buffer_s = 0.02
    values = list(itertools.islice(ramp(lambda rate: rate * buffer_s, 1000.0, buffer_s), 5))
    assert values == pytest.approx([1000.0, 2000.0, 4000.0, 8000.0, 16000.0])
    assert rtts_to_reach(1000.0 * 2**20, lambda rate: rate * buffer_s, 1000.0, buffer_s) == 20


@pytest.mark.parametrize("arguments", [(0.0, 0.1), (1.0, 0.0), (1.0, float("nan"))])
def test_theorem_6_1_refuses_bad_numbers(arguments) -> None:
    with pytest.raises(InputError):
        next(ramp(lambda rate: 1.0, *arguments))


def relu_file(tmp_path, layers, **more) -> str:
    data = {"format": "ccenv-relu", "version": 1, "name": "net", "inputs": ["C_L", "C_U", "MSS/Rm"], "layers": layers, **more}
    file = tmp_path / "net.relu.json"
    file.write_text(json.dumps(data))
    return str(file)


def test_relu_policy_equal_to_a_constant_multiple_of_C_L(tmp_path) -> None:
    """A net that outputs 2 C_L + MSS/Rm gets the verdicts of the program that says so."""
    net = smt_sender(relu_file(tmp_path, [[[1, 0, 0], [0, 0, 1]], [[2, 1]]]))
    (query,) = build_claim("utilisation", Setting(samples=5), net, Thresholds(Fraction(1, 2)))
    assert Verifier(60).decide(query).reason in ("", STEP_FAILS)
    (greedy,) = build_claim("inflight", Setting(samples=5), net, Thresholds(None, Fraction(5)))
    assert Verifier(60).decide(greedy).reason == STEP_FAILS


def test_biases_count_segments_and_their_counterexamples_replay(tmp_path) -> None:
    """A bias of one is a weight of one on MSS/Rm: the same verdict, and the exact net reproduces the trace."""
    weight = relu_file(tmp_path, [[[1, 0, 0], [0, 0, 1]], [[2, -1]]])
    (query,) = build_claim("inflight", Setting(samples=5), smt_sender(weight), Thresholds(None, Fraction(5)))
    by_weight = Verifier(60).decide(query)
    bias = smt_sender(relu_file(tmp_path, [[[1, 0, 0], [0, 0, 0]], [[2, -1]]], biases=[[0, 1], [0]]))
    (query,) = build_claim("inflight", Setting(samples=5), bias, Thresholds(None, Fraction(5)))
    by_bias = Verifier(60).decide(query)
    assert by_weight.reason == by_bias.reason == STEP_FAILS
    view = by_bias.view
    assert all(view.rate[t] == max(view.alpha, 2 * view.C_L[t - 1] - view.alpha) for t in range(1, 5))
    with pytest.raises(InputError, match="biases"):
        smt_sender(relu_file(tmp_path, [[[1, 0, 0]]], biases=[[1, 2]]))


@pytest.mark.parametrize("layers", [[], [[[1, 0]]], [[[1, 0, 0], [0, 1, 0]]], [[[0.5, 0, 0]]]])
def test_damaged_relu_policies_are_refused(layers, tmp_path) -> None:
    with pytest.raises(InputError):
        smt_sender(relu_file(tmp_path, layers))
