"""The shipped belief programs against [CCmatic] Listing 2."""

from fractions import Fraction

import pytest

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.programs import decide, parse_program, pseudo_code, to_json
from ccenv.agents.synthesized import shipped_program
from ccenv.base.errors import InputError
from ccenv.base.registry import load_target

LISTING_2 = {
    "cc_qdel": """
if qdel_L > 0:
    rate = 1/2 C_L
else:
    rate = 2 C_L""",
    "cc_probe_fast": """
if C_U < 2 C_L:
    rate = C_L
else:
    rate = 2 C_L""",
    "cc_probe_drain": """
if C_U > 2 C_L - 2 MSS/Rm:
    rate = 2 C_L + MSS/Rm
else:
    rate = C_L - MSS/Rm""",
    "cc_probe_slow": """
if q_U > MSS:
    rate = C_L_lambda - q_U/Rm
else:
    rate = 2 C_L_lambda + MSS/Rm""",
    "cc_probe_qdel": """
if C_U < 3/2 C_L:
    if qdel_L > Rm:
        rate = MSS/Rm
    else:
        rate = C_L
else:
    if C_U > 2 C_L:
        rate = 2 C_L + MSS/Rm
    else:
        rate = C_L""",
}


def test_all_synthesized_agents_are_in_the_listing():
    assert sorted(AGENTS.names("synthesized")) == sorted(LISTING_2)


@pytest.mark.parametrize("name", LISTING_2)
def test_printed_program_has_the_shape_of_listing_2(name):
    sender = make_sender(name)
    lines = pseudo_code(sender.program).splitlines()
    assert lines[0].startswith(f"# {name} ([CCmatic] Listing 2")
    assert lines[1:-1] == LISTING_2[name].strip().splitlines() and lines[-1] == "rate = max(rate, MSS/Rm)"


@pytest.mark.parametrize("name", LISTING_2)
def test_shipped_file_is_canonical(name):
    program = shipped_program(name)
    assert program.name == name and parse_program(to_json(program)) == program


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("alpha_mss", [1, 5])
def test_probe_sends_what_section_6_2_1_asks_for(k, alpha_mss):
    """Over T* = k*Rm the probe sends C_L_lambda * (T* + D) + alpha, with D = Rm."""
    program = make_sender(f"cc_probe_slow:k={k},alpha_mss={alpha_mss}").program
    c, rm, mss = Fraction(7), Fraction(1, 3), Fraction(1, 100)
    inputs = {"C_L_lambda": c, "MSS/Rm": mss / rm, "MSS": mss, "q_U": alpha_mss * mss, "q_U/Rm": alpha_mss * mss / rm}
    rate, hold = decide(program, inputs)
    assert hold == k == program.probe_window_rtts and rate * hold * rm == c * (k * rm + rm) + alpha_mss * mss


@pytest.mark.parametrize(
    ("f", "allowances"),  # at C_L_lambda Rm = 1, 3, 5, 60, 4100 segments, for alpha = 2
    [("const", (2,) * 5), ("log", (2, 2, 4, 6, 14)), ("sqrt", (2, 2, 4, 8, 128)), ("linear", (2.25, 2.75, 3.25, 17, 1027))],
)
def test_a_probe_risks_the_loss_allowance(f, allowances):
    """[CCmatic] s.6.2.1: alpha becomes f(C_L_lambda); the probe waits until no more than f may be queued."""
    program = make_sender(f"cc_probe_slow:alpha_mss=2,f={f}").program
    for c, allowed in zip((1, 3, 5, 60, 4100), map(Fraction, allowances), strict=True):
        for queue, rate in ((allowed, 2 * c + allowed), (allowed + 1, c - allowed - 1)):
            inputs = {"C_L_lambda": Fraction(c), "MSS/Rm": 1, "MSS": 1, "q_U": queue, "q_U/Rm": queue}
            assert decide(program, inputs).rate == max(rate, 1)
    assert parse_program(to_json(program)) == program


def test_probe_slow_drains_by_its_queue_bound():
    program = make_sender("cc_probe_slow:k=2").program
    inputs = {"C_L_lambda": 10, "MSS/Rm": 1, "MSS": 1, "q_U": 4, "q_U/Rm": 4}
    assert decide(program, inputs) == (6, 1)


def test_table_3_cycle():
    """[CCmatic] Table 3, path P1 with T* = D = Rm: sent C*2Rm + alpha, then alpha, then C*Rm - 2 alpha; q_U back to 0."""
    program = make_sender("cc_probe_slow").program
    c, alpha, queue, sent = Fraction(100), Fraction(1), Fraction(0), []
    for _ in range(3):
        rate = decide(program, {"C_L_lambda": c, "MSS/Rm": alpha, "MSS": alpha, "q_U": queue, "q_U/Rm": queue}).rate
        sent.append(rate)
        queue = max(Fraction(0), queue + rate - c)
    assert sent == [2 * c + alpha, alpha, c - 2 * alpha] and queue == 0


def test_a_path_of_a_program_is_a_sender(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(to_json(shipped_program("cc_qdel")).replace('"cc_qdel"', '"mine"'))
    sender = make_sender(str(file))
    assert sender.name == "mine" and sender.program.rule == shipped_program("cc_qdel").rule


def test_probe_slow_stands_still_at_the_smallest_rate_as_published():
    """C_L_lambda = MSS/Rm and q_U > MSS: line 7 of Listing 1 sends what the bound drains, and q_U stays. At 2 MSS/Rm it falls."""
    program = shipped_program("cc_probe_slow")
    one = Fraction(1)
    for c_l_lambda, stands in ((one, True), (2 * one, False)):
        q_u, rates = Fraction(3, 2) + c_l_lambda, []
        for _ in range(10):
            rates.append(decide(program, {"C_L_lambda": c_l_lambda, "q_U": q_u, "q_U/Rm": q_u, "MSS": one, "MSS/Rm": one})[0])
            q_u = max(Fraction(0), q_u + rates[-1] - c_l_lambda)
        assert (set(rates) == {one}) == stands and (max(rates) == 2 * c_l_lambda + one) != stands


@pytest.mark.parametrize("taker", ["ccenv.proofs.senders.catalog:smt_sender", "ccenv.leaderboard.submission.pack:_payload"])
def test_what_takes_one_program_refuses_one_that_starts_with_another(taker):
    with pytest.raises(InputError, match="starts with another program"):
        load_target(taker)("cc_probe_slow_k")
