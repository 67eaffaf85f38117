"""Histories without a first cut, and lassos that go on for ever."""

import json
from fractions import Fraction

import pytest

from ccenv.attacks.run import attack
from ccenv.cli.main import main
from ccenv.leaderboard.store import records
from ccenv.network.laws import check_trace
from ccenv.proofs.claims import endless
from ccenv.proofs.claims.claims import CLAIMS, EXCUSED, Thresholds, build_claim, full_invariant
from ccenv.proofs.claims.envelope import METRICS, envelope_query
from ccenv.proofs.claims.lemma_run import bisect
from ccenv.proofs.claims.verifier import STEP_FAILS, Query, Verifier
from ccenv.proofs.formulas.moves import REPLAY_TOLERANCE, engine_replay
from ccenv.proofs.formulas.setting import Setting, named_setting
from ccenv.proofs.formulas.view import as_trace
from ccenv.proofs.senders.catalog import smt_sender

pytest.importorskip("z3")


LOW = {"MSS/Rm": 1}
BOUNDED = {"C_L": 4, "rate": -1}  # a rate that grows by a factor is not read without it
EMPTY_PROMISES = {
    "crawls by MSS/1000": {"rate": {"rate": 1, "MSS/Rm": "1/1000"}},
    "crawls by MSS/100": {"rate": {"rate": 1, "MSS/Rm": "1/100"}},
    "crawls by a ten-thousandth": {"if": BOUNDED, "then": {"rate": {"rate": "10001/10000"}}, "else": {"rate": LOW}},
    "never sends": {"rate": {"MSS/Rm": "1/1000"}},
    "oscillates": {"if": {"rate": 1, "MSS/Rm": "-3/2"}, "then": {"rate": LOW}, "else": {"rate": {"MSS/Rm": 2}}},
    "waits for time-outs": {"if": {"C_L": -2, "C_U": 1}, "then": {"rate": {"C_L": 2}}, "else": {"rate": LOW}},
    "rises and falls": {
        "if": {"qdel_L": 1},
        "then": {"rate": LOW},
        "else": {"if": BOUNDED, "then": {"rate": {"rate": 2}}, "else": {"rate": LOW}},
    },
    "rises until used": {"if": "utilised", "then": {"rate": LOW}, "else": {"rate": {"rate": 1, "MSS/Rm": 1}}},
    "holds": {"rate": {"rate": 1}},
}


def program(folder, rule) -> str:
    file = folder / "empty.json"
    file.write_text(json.dumps({"format": "ccenv-program", "version": 1, "name": "empty", "source": "test", "rule": rule}))
    return str(file)


def setting_of(name: str, model: str = "ccac", buffer: str = "infinite", samples: int = endless.SAMPLES) -> Setting:
    largest = smt_sender(name).largest_rate()
    return named_setting("sound" if largest is None else "history", Setting(model, buffer, samples), largest)


def decide(metric: str, name: str, value: Fraction, **where) -> str:
    query = envelope_query(METRICS[metric], value, setting_of(name, **where), smt_sender(name))
    return told(query)


def told(query: Query) -> str:
    """Return the verdict, and where it is unknown its reason."""
    result = Verifier(60).decide(query)
    assert (result.view is not None) == (result.verdict == "refuted" or result.reason == STEP_FAILS)
    return result.reason or result.verdict


@pytest.mark.parametrize("model", ["ideal", "cbr_delay", "ccac"])
@pytest.mark.parametrize("trick", EMPTY_PROMISES)
def test_what_only_looks_like_progress_earns_no_utilisation(trick: str, model: str, tmp_path) -> None:
    name = program(tmp_path, EMPTY_PROMISES[trick])
    assert decide("utilisation", name, METRICS["utilisation"].low, model=model) == STEP_FAILS


@pytest.mark.parametrize("trick", ["crawls by MSS/1000", "oscillates", "holds"])
def test_any_rise_or_fall_excuses_the_claims_about_one_trace(trick: str, tmp_path) -> None:
    """Where the excuse suffices these are verified by it alone; their names say so and the board shows no bound."""
    assert {"invariant", "full_invariant", "utilisation_or_rise"} == EXCUSED
    sender = smt_sender(program(tmp_path, EMPTY_PROMISES[trick]))
    (query,) = build_claim("utilisation_or_rise", Setting(samples=7), sender, Thresholds(Fraction(1)))
    assert told(query) == ("verified" if trick.startswith("crawls") else STEP_FAILS)


def test_holding_a_queue_or_losing_for_ever_is_no_bound(tmp_path) -> None:
    name = program(tmp_path, EMPTY_PROMISES["holds"])
    assert decide("inflight", name, METRICS["inflight"].high) == STEP_FAILS
    assert decide("loss per Rm", name, METRICS["loss per Rm"].high, buffer="large") == STEP_FAILS


@pytest.mark.parametrize(("name", "model", "holds", "beyond"), [
    ("cc_qdel", "ccac", Fraction(13, 16), Fraction(27, 32)), ("cc_probe_drain", "ccac", Fraction(7, 16), Fraction(15, 32)),
    ("cc_probe_slow", "cbr_delay", Fraction(9, 32), Fraction(5, 16)),
])  # fmt: skip
def test_programs_that_grow_keep_their_bound(name: str, model: str, holds: Fraction, beyond: Fraction) -> None:
    assert decide("utilisation", name, holds, model=model) == "verified"
    assert decide("utilisation", name, beyond, model=model) == STEP_FAILS


@pytest.mark.parametrize(("name", "model", "bound"), [("cc_qdel", "ccac", 13 / 16), ("cc_probe_drain", "ccac", 7 / 16)])
def test_no_search_in_the_engine_breaks_a_bound(name: str, model: str, bound: float) -> None:
    """The panel in proof timing: what is delivered and what a run may owe once are at least the bound of the window."""
    result = attack(name, timing="smt", model=model, budget_flow_steps=400_000, warmup_rtts=60, window_rtts=120)
    assert result.legal
    owed_bdp = endless.MARK_IN_RTTS + 1
    for finding in result.by_adversary.values():
        trace = finding.trace
        bdp = trace.header.path.link_rate_Bps * trace.header.dt_s
        used_bdp = float((trace.S[-1] - trace.S[60]).sum()) / bdp
        assert used_bdp + owed_bdp >= bound * (trace.n_steps - 60)


def test_a_cold_start_reaches_its_goal_in_the_stated_time() -> None:
    """cc_qdel from MSS/Rm: C_L at .406 C within the stated round trips against every corner and search."""
    goal = endless.goal_of(Fraction(13, 16), "factor")
    result = attack("cc_qdel", timing="smt", budget_flow_steps=400_000, warmup_rtts=60, window_rtts=120)
    for finding in result.by_adversary.values():
        trace = finding.trace
        bdp = trace.header.path.link_rate_Bps * trace.header.dt_s
        segments = int(bdp / trace.header.path.mss_bytes)
        rtts = endless.rtts_to_reach(goal, "factor", endless.SAMPLES, segments)
        reached = trace.beliefs["C_L"][:, 0] >= float(goal) * trace.header.path.link_rate_Bps
        assert reached[: rtts + 1].any()


def test_the_board_knows_the_same_promises_and_excuses() -> None:
    """The board reads records without the extra verify, so it has these by itself."""
    assert records.EXCUSED == EXCUSED and records.ENDLESS == endless.VERSION
    assert set(CLAIMS) == records.EXCUSED | records.OF_RUNS and records.STEP_FAILS == STEP_FAILS


@pytest.mark.parametrize(("claim", "weak", "strong"), [("inflight", 6, 2), ("queue", 5, 1)])
def test_bounds_that_hold_for_ever(claim: str, weak: int, strong: int) -> None:
    setting = endless.endless_setting(setting_of("cc_qdel"), smt_sender("cc_qdel"))
    seen = []
    for value in (weak, strong):
        (query,) = build_claim(claim, setting, smt_sender("cc_qdel"), Thresholds(None, Fraction(value)))
        seen.append(told(query))
    assert seen == ["verified", STEP_FAILS]


def test_time_to_reach_by_hand() -> None:
    """T = 9: a third per trace of eight Rm. 1, 4/3, 16/9, 64/27, 256/81, 1024/243 >= 4; and 3 segments at a third each: 9."""
    assert endless.growth_per_trace(9) == Fraction(1, 3)
    assert endless.rtts_to_reach(Fraction(1, 25), "factor", 9, 100) == 5 * 8
    assert endless.rtts_to_reach(Fraction(1, 25), "segments", 9, 100) == 9 * 8
    assert endless.rtts_to_reach(Fraction(1, 200), "factor", 9, 100) == 0


def test_an_undecided_value_is_no_bound_and_does_not_end_the_search() -> None:
    def answer(x: Fraction):
        verdict = "unknown" if x == Fraction(1, 2) else "verified" if x <= Fraction(3, 8) else "refuted"
        return verdict, None

    bracket = bisect(answer, "largest", Fraction(1, 16), Fraction(1), Fraction(1, 16))
    assert bracket.proved == Fraction(3, 8) and bracket.undecided == [Fraction(1, 2)] and bracket.refuted == Fraction(7, 16)


def test_command_line_tells_the_way_to_the_bound(tmp_path, monkeypatch, answer) -> None:
    monkeypatch.setenv("CCENV_CACHE", str(tmp_path))
    shown = answer(["verify", "property", "cc_qdel", "--property", "utilisation", "--at-least", "3/4", "--json"])
    assert shown["T"] == endless.SAMPLES and shown["ramp"]["goal"] == 0.375
    assert shown["ramp"]["rtts_to_reach"]["100"] == endless.rtts_to_reach(Fraction(3, 8), "factor", 9, 100)


def verdicts(name: str, samples: int, setting: str = "history", buffer: str = "infinite", claim: str = "invariant") -> list[str]:
    sender = smt_sender(name)
    chosen = named_setting(setting, Setting(samples=samples, buffer=buffer), sender.largest_rate())
    results = [Verifier(60).decide(query) for query in build_claim(claim, chosen, sender, Thresholds())]
    return [result.reason or result.verdict for result in results]


@pytest.mark.parametrize(
    ("name", "samples", "buffer", "proved"),
    [
        ("cc_qdel", 4, "infinite", False),  # Table 2, G1: no solution at T = 4
        ("cc_qdel", 5, "infinite", True),
        ("cc_qdel", 7, "infinite", True),
        ("cc_probe_drain", 7, "infinite", False),  # needs a longer trace
        ("cc_probe_fast", 7, "small", True),  # G2
        ("cc_qdel", 7, "small", False),
    ],
)
def test_invariant_verdicts(name: str, samples: int, buffer: str, proved: bool) -> None:
    seen = verdicts(name, samples, buffer=buffer)
    assert seen[0] == "verified"  # belief bounds are sound for any sender
    assert seen[-1] == ("verified" if proved else STEP_FAILS)


def drains_by(tmp_path, mss: int) -> str:
    """Write cc_qdel with the drain rate C_L/2 + mss * MSS/Rm and return the file."""
    drain = {"rate": {"C_L": "1/2"} | ({"MSS/Rm": mss} if mss else {})}
    rule = {"if": {"qdel_L": 1}, "then": drain, "else": {"rate": {"C_L": 2}}}
    return program(tmp_path, rule)


@pytest.mark.parametrize(("mss", "samples", "proved"), [(-1, 4, False), (-1, 5, True), (0, 5, False), (0, 6, True)])
def test_invariant_under_the_published_delay_rule(mss: int, samples: int, proved: bool, tmp_path) -> None:
    """Table 2, G1 (4 solutions at T = 5, none at T = 4): they count constants, so the drain rate is C_L/2 - MSS/Rm there."""
    assert verdicts(drains_by(tmp_path, mss), samples, "artefact")[-1] == ("verified" if proved else STEP_FAILS)


@pytest.mark.parametrize(("name", "samples"), [("cc_qdel", 5), ("cc_probe_drain", 5), ("cc_qdel", 4), ("cc_probe_fast", 5)])
def test_static_reduction_agrees_with_moving_beliefs(name: str, samples: int) -> None:
    sender = smt_sender(name)
    setting = named_setting("history", Setting(samples=samples), sender.largest_rate())
    reduced = {Verifier(60).decide(q).reason for q in build_claim("invariant", setting, sender, Thresholds())}
    full = [Verifier(60).decide(q).reason for q in full_invariant(setting, sender, Thresholds())]
    assert (STEP_FAILS in reduced) == (full == [STEP_FAILS])


def test_counterexample_is_legal_and_the_engine_reproduces_it() -> None:
    sender = smt_sender("cc_probe_drain")
    for buffer in ("infinite", "small", "arbitrary"):
        setting = named_setting("sound", Setting(samples=7, buffer=buffer))
        result = [Verifier(60).decide(q) for q in build_claim("invariant", setting, sender, Thresholds())][-1]
        assert (result.verdict, result.reason) == ("unknown", STEP_FAILS) and result.view is not None
        trace = as_trace(result.view, sender.name)
        assert check_trace(trace) == [] and engine_replay(trace)[1] <= REPLAY_TOLERANCE


def test_time_limit_is_unknown_and_never_a_yes() -> None:
    sender = smt_sender("cc_qdel")
    query = build_claim("invariant", Setting(samples=12), sender, Thresholds())[-1]
    result = Verifier(0.02).decide(query)
    assert result.verdict == "unknown" and "time limit" in result.reason


def test_command_line(tmp_path, monkeypatch, capsys, answer) -> None:
    monkeypatch.setenv("CCENV_CACHE", str(tmp_path / "cache"))
    folder = str(tmp_path / "out")
    proved = answer(["verify", "property", "cc_qdel", "--T", "5", "--json", "--recheck", "yices", "--out", folder])
    assert proved["verdict"] == "verified" and proved["sanity"]["satisfiable"] is True
    assert proved["recheck"]["confirmed"] is True and proved["trace"] is None
    assert main(["verify", "property", "cc_probe_drain", "--T", "7", "--json", "--out", folder]) == 3
    failed = json.loads(capsys.readouterr().out)
    assert (failed["verdict"], failed["reason"]) == ("unknown", STEP_FAILS)
    assert failed["shows"]["utilisation"] > 0.5 and "fails" in failed and "violates" not in failed
    assert failed["replay"]["engine"] == "reproduced" and main(["trace", "check", failed["trace"]]) == 0
    assert main(["trace", "replay", failed["trace"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out.split("\n", 1)[1])["reproduced"] is True
