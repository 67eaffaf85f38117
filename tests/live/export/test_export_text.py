"""Exported programs: their text, and their twin against the plain reference."""

import hashlib
import itertools
import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from acks import equal_states, host_states, random_acks, random_program, recorded_acks
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.policies import mlp_action_reference
from twin_reference import TwinBesideReference

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.programs import UNIT_OF, Branch, Expression, Leaf, Program, to_json
from ccenv.agents.sender import PolicySender, ProgramSender, ShieldSender
from ccenv.agents.synthesized import shipped_program
from ccenv.agents.wrapped import load_shield
from ccenv.base.provenance import VERSION
from ccenv.cli import main as cli
from ccenv.live.export import ExportError, export_bpf
from ccenv.live.export import bpf as compiling
from ccenv.live.export.bpf import export_constants, whole_terms
from ccenv.live.export.policy import PolicyDoesNotFit, WholePolicy
from ccenv.live.export.twin import STATE_DTYPE, UNBOUNDED, Twin
from ccenv.live.export.window import export_window


def expression(**terms: str) -> Expression:
    return Expression(tuple((name.replace("_per_", "/"), Fraction(value)) for name, value in terms.items()))


EVERY_INPUT = Program(
    "every_input",
    Branch(
        expression(C_L="-3/2", C_U="1", C_L_lambda="1/4", MSS_per_Rm="2", rate="1", q_U_per_Rm="-1/3"),
        Branch(
            expression(qdel_L="1", qdel_U="1/2", Rm="-1"),
            Leaf(expression(C_U="1/2", C_L="1"), 3),
            Branch("loss", Leaf(expression(C_L="2", C_U="-1")), Leaf(expression(C_L_lambda="9/10"))),
        ),
        Branch("utilised", Branch(expression(q_U="1", MSS="-2"), Leaf(expression(rate="1")), Leaf(expression(C_L="1"))),
               Leaf(expression(C_L="2", MSS_per_Rm="1"))),
    ),
    "a test",
)  # fmt: skip
EVERY_INPUT_C = """\
/* The program: sets for how many Rm its rate holds. */
static u64 decide(struct flow *f)
{
	if (f->C_U == UNBOUNDED || -18LL * (s64)f->C_L + 12LL * (s64)f->C_U + 3LL * (s64)f->C_L_lambda + 24LL * (s64)MIN_RATE + \
12LL * (s64)f->rate + -4LL * (s64)(f->q_U / STEPS_PER_RTT) > 146LL) {
		if (2LL * (s64)(f->qdel_L_steps * f->rtt_us) + 1LL * (s64)f->qdel_U + -2LL * (s64)STEPS_PER_RTT * f->rtt_us > 0LL) {
			f->hold = 3;
			return f->C_U == UNBOUNDED ? RATE_LIMIT : rate_of(2LL * (s64)f->C_L + 1LL * (s64)f->C_U, 2);
		} else {
			if (f->loss) {
				f->hold = 1;
				return f->C_U == UNBOUNDED ? MIN_RATE : rate_of(2LL * (s64)f->C_L + -1LL * (s64)f->C_U, 1);
			} else {
				f->hold = 1;
				return rate_of(9LL * (s64)f->C_L_lambda, 10);
			}
		}
	} else {
		if (f->utilised) {
			if (1LL * (s64)f->q_U + -2LL * (s64)ONE > 6LL) {
				f->hold = 1;
				return rate_of(1LL * (s64)f->rate, 1);
			} else {
				f->hold = 1;
				return rate_of(1LL * (s64)f->C_L, 1);
			}
		} else {
			f->hold = 1;
			return rate_of(2LL * (s64)f->C_L + 1LL * (s64)MIN_RATE, 1);
		}
	}
}
"""


def test_every_input_has_its_c() -> None:
    parts = [rule.condition if isinstance(rule, Branch) else rule.rate for rule in EVERY_INPUT.rules()]
    assert {name for part in parts if isinstance(part, Expression) for name, _ in part.terms} == set(UNIT_OF)
    assert EVERY_INPUT_C in export_bpf(EVERY_INPUT)


def test_the_head_says_where_the_file_comes_from() -> None:
    program = shipped_program("cc_probe_drain")
    head = export_bpf(program, jitter_s=0.01).split("*/")[0]
    assert head == (
        "// SPDX-License-Identifier: MIT OR GPL-2.0-only\n/*\n"
        f" * Congestion control cc_probe_drain: belief program cc_probe_drain, written by ccenv {VERSION}.\n"
        f" * Program: sha256 {hashlib.sha256(to_json(program).encode()).hexdigest()}\n"
        " * Source: [CCmatic] Listing 2, G3, CCA3\n"
        " * Assumed: Rm is the smallest RTT measured; D is 10000 us; a lost packet found a full queue.\n"
        " *\n * if C_U > 2 C_L - 2 MSS/Rm:\n *     rate = 2 C_L + MSS/Rm\n * else:\n *     rate = C_L - MSS/Rm\n"
        " * rate = max(rate, MSS/Rm)\n "
    )


def test_the_text_is_the_same_in_every_process(tmp_path: Path) -> None:
    text = export_bpf(shipped_program("cc_probe_qdel"), name="same", rtt_s=0.04, jitter_s=0.02)
    code = (
        "from ccenv.cli.main import main; import sys;"
        "sys.exit(main('export cc_probe_qdel -s name=same -s rtt_s=40ms -s jitter_s=20ms -o same.c'.split()))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "wrote same.c\n" and (tmp_path / "same.c").read_text(encoding="ascii") == text
    assert not re.search(r"@[A-Z]+@", text)


@pytest.mark.parametrize("source", [
    "*/ int x; /*", "end with \\", "??/", "???/", "end with ?\\", "// */", "\u00e9 \u4e2d", "/* /* */ */", "*//*/", "**//",
    '"; #error "',
])  # fmt: skip
def test_no_source_leaves_its_comment(source: str) -> None:
    """The text of a foreign program must not become code; the host compiler would refuse each of these if it did."""
    program = replace(shipped_program("cc_qdel"), source=source)
    plain = export_bpf(replace(program, source=""))
    text = export_bpf(program)
    assert text.isascii() and text.split("\n */\n", 1)[1] == plain.split("\n */\n", 1)[1]
    assert text.split("\n */\n", 1)[0].count("*/") == 0 and len(host_states(program, random_acks(1, 50))) == 50


WIDE = expression(C_L="999999937/999999929", MSS_per_Rm="1")


def test_coefficients_that_just_fit_are_exact_and_wider_ones_refused_in_one_line(tmp_path, refused) -> None:
    """28 bits are taken with 12 bits after the point; one more is refused."""
    (tmp_path / "wide.json").write_text(to_json(Program("wide", Leaf(WIDE))), encoding="utf-8")
    arguments = ["export", str(tmp_path / "wide.json"), "-o", str(tmp_path / "wide.c")]
    refused(arguments, "wide: coefficients need 31 bits over their common denominator; at most 28")
    assert not (tmp_path / "wide.c").exists()
    just = Program("just", Leaf(expression(C_L=str(2**28 - 1))))
    assert export_constants(just).fraction_bits == 12 and export_constants(shipped_program("cc_qdel")).fraction_bits == 24
    assert whole_terms(expression(C_L="3/4", C_U="-1/6")) == ((("C_L", 9), ("C_U", -2)), 12)
    with pytest.raises(ExportError, match="need 29 bits"):
        export_bpf(Program("over", Leaf(expression(C_L=str(2**28)))))


@pytest.mark.parametrize("jitter_s", [0.0, 0.01, 10.0])
@pytest.mark.parametrize("probe_rtts", [1, 64])
def test_the_history_holds_what_is_read_back(jitter_s: float, probe_rtts: int) -> None:
    """An ACK's 64 steps, D, the longest window, and what is in flight; BPF storage of a socket has less than 64 KB."""
    c = export_constants(replace(shipped_program("cc_qdel"), probe_window_rtts=probe_rtts), jitter_s=jitter_s)
    assert c.ring & (c.ring - 1) == 0 and c.ring >= 2 * 64 + 16 + (128 if jitter_s else 1) + max(82, c.probe_steps)
    assert 16 * c.ring + 600 < 65_000


needs_clang = pytest.mark.skipif(compiling.find_compiler() is None, reason=f"no compiler for BPF: {compiling.ADVICE}")


@needs_clang
@pytest.mark.parametrize("sender", ["random.json", "fourcp_auto:pftk=1", "ever_delay:rm_ms=40"])
def test_clang_compiles_for_bpf(sender: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "random.bpf.o"
    (tmp_path / "random.json").write_text(to_json(random_program(2)), encoding="utf-8")
    assert cli.main(["export", sender, "-o", str(target)]) == 0
    content = target.read_bytes()
    assert content[:4] == b"\x7fELF" and int.from_bytes(content[18:20], "little") == 247  # EM_BPF
    assert b".struct_ops" in content and b"struct_ops/cong_control" in content


@needs_clang
def test_an_object_is_the_same_in_every_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Debug information names the compiler's folder, and an object is part of what an emulated kernel boots with."""
    text = export_window("host")
    here = compiling.compile_bpf(text)
    monkeypatch.chdir(tmp_path)
    assert compiling.compile_bpf(text) == here and bytes(tmp_path) not in here


def test_without_a_compiler_an_object_is_refused(monkeypatch, refused, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    refused(["export", "cc_qdel", "-o", str(tmp_path / "a.o")], "an object needs a compiler for BPF; apt install clang")
    assert cli.main(["export", "cc_qdel", "-o", str(tmp_path / "a.c")]) == 0


@pytest.mark.parametrize(("version", "targets"), [("11.0.1", "bpf  - BPF"), ("14.0.6", "x86-64 - X86")])
def test_a_compiler_that_cannot_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, targets: str) -> None:
    clang = tmp_path / "clang"
    clang.write_text(f"#!/bin/sh\necho 'clang version {version}'\necho '{targets}'\n", encoding="ascii")
    clang.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    assert compiling.find_compiler() is None


def test_the_package_ziglang_stands_in_for_clang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package that stands for it notes its arguments; what it keeps lies in a folder that goes."""
    package = tmp_path / "ziglang"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(
        "import os, sys\n"
        "if '--version' in sys.argv:\n"
        "    print('clang version 19.1.0')\n"
        "else:\n"
        "    assert os.path.isdir(os.environ['ZIG_GLOBAL_CACHE_DIR'])\n"
        "    words = ' '.join(sys.argv[1:]) + ' ' + sys.stdin.read(3)\n"
        "    open(sys.argv[sys.argv.index('-o') + 1], 'w').write(words)\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    found = compiling.find_compiler()
    assert found is not None and (found.name, found.version) == ("ziglang", 19)
    words = compiling.compile_bpf("abcdef", record=True).decode()
    assert re.fullmatch(r"cc -target bpfe[lb]-freestanding-none -O2 -g .* -DRECORD -x c -c - -o \S+ abc", words)
    assert not Path(words.split()[-2]).parent.exists()


@pytest.mark.slow
def test_the_real_ziglang_compiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    monkeypatch.setenv("PATH", str(tmp_path))
    content = compiling.compile_bpf(export_bpf(shipped_program("cc_qdel")))
    assert content[:4] == b"\x7fELF" and b".struct_ops" in content


def test_the_answer_is_strict_json(answer, tmp_path: Path) -> None:
    target = tmp_path / "a.c"
    told = answer(["export", "cc_qdel", "-o", str(target), "--json"])
    assert (told["file"], told["target"], told["bytes"]) == (str(target), "bpf", target.stat().st_size)


MSS_BYTES = 1500.0
BUFFER_PACKETS = 8  # at least: docs/live.md
SHIPPED = [name for name in AGENTS.names() if name.startswith(("cc_", "learned_")) and name != "cc_probe_slow_k"]


SHIELD = load_shield("learned_shield_u80")
PROGRAMS = {name: sender.program for name in SHIPPED if isinstance(sender := make_sender(name), ProgramSender)}


def scenario(sender: str, rate_Bps: float, buffer_bdp: float, **flow: Any) -> dict[str, Any]:
    flow = {"sender": sender, "rtt_s": 0.04, **flow}
    buffer_bytes = max(BUFFER_PACKETS * MSS_BYTES, buffer_bdp * rate_Bps * flow["rtt_s"])
    return {"duration_s": 2.0, "links": [{"rate_Bps": rate_Bps, "buffer_bytes": buffer_bytes}], "flows": [flow]}


def batches(jitter_s: float) -> dict[str, Any]:
    return {"jitter": {"kind": "batch", "max_s": jitter_s}} if jitter_s else {}


def assert_equal(program: Program, acks: np.ndarray, **options: Any) -> np.ndarray:
    return equal_states(Twin(program, **options).run(acks), export_bpf(program, name="host", **options), acks)


def test_all_shipped_programs_are_here() -> None:
    assert len(PROGRAMS) >= 11
    assert {"cc_qdel", "cc_probe_slow", "learned_nominal_u54", "learned_nominal_u78", "learned_robust_d4"} <= set(PROGRAMS)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_c_equals_twin_on_recorded_acks(name: str) -> None:
    """Each program on its own ACKs: a shallow buffer with losses, and a deep one behind jitter."""
    for buffer_bdp, jitter_s in ((0.4, 0.0), (3.0, 0.04)):
        acks = recorded_acks(scenario(name, 3e6, buffer_bdp, **batches(jitter_s)))
        states = assert_equal(PROGRAMS[name], acks, jitter_s=jitter_s)
        assert len(states) > 200 and len(np.unique(states["rate"])) > 3


@settings(max_examples=8)
@given(program=st.integers(0, 10**6), history=st.integers(0, 10**6), setting=st.integers(0, 3))
def test_c_equals_twin_on_random_acks(program: int, history: int, setting: int) -> None:
    options = ({}, {"jitter_s": 0.013}, {"rtt_s": 0.02}, {"rtt_s": 0.05, "jitter_s": 0.1})[setting]
    for seed in range(history, history + 4):
        assert_equal(random_program(program), random_acks(seed), **options)


@settings(max_examples=8)
@given(program=st.integers(0, 10**6), history=st.integers(0, 10**6), chooser=st.sampled_from(["lo", "middle", "hi", "user"]))
def test_no_answer_leaves_the_interval(program: int, history: int, chooser: str) -> None:
    """Shields: the C equals its twin whatever is answered and when, and the rate lies between the ends of the interval."""
    shield = random_program(program, shield=True)
    for seed in range(history, history + 4):
        states = assert_equal(shield, random_acks(seed), chooser=chooser, jitter_s=0.013)
        decided = states[states["asked"] > 0]
        assert (decided["lo"] <= decided["rate"]).all() and (decided["rate"] <= decided["hi"]).all()
        assert chooser == "user" or len(np.unique(states["position"])) == 1


@settings(max_examples=8)
@given(history=st.integers(0, 10**6), seed=st.integers(0, 10**6), relu=st.booleans())
def test_a_policy_that_is_compiled_in_equals_its_twin(history: int, seed: int, relu: bool) -> None:
    """Random policies with weights of all sizes, in random shields, on random ACKs."""
    rng = np.random.default_rng(seed)
    widths = [10, *rng.integers(1, 33, int(rng.integers(0, 3))), 1]
    weights = tuple(rng.normal(0, 10.0 ** rng.uniform(-2, 2), shape) for shape in itertools.pairwise(widths))
    policy = PolicySender("p", weights, tuple(rng.normal(0, 1, n) for n in widths[1:]), "relu" if relu else "tanh")
    shield = random_program(seed, shield=True)
    for number in range(history, history + 3):
        assert_equal(shield, random_acks(number), chooser=policy, jitter_s=0.013)


def test_the_shipped_policy_decides_as_in_floating_point() -> None:
    sender = make_sender("learned_shield_u80")
    assert isinstance(sender, ShieldSender) and sender.policy is not None
    acks = recorded_acks(scenario("cc_probe_drain", 3e6, 2.0))
    states = assert_equal(SHIELD, acks, chooser=sender.policy)
    assert len(np.unique(states["position"])) > 10
    whole = WholePolicy.of(sender.policy)
    rng = np.random.default_rng(0)
    for _ in range(200):
        x = rng.uniform([0, 0, 0, 0, -2, 0, -2, 0, 0, 0], [8, 2, 2, 0.1, 2, 1, 2, 4, 1, 4])
        exact = 0.5 * (mlp_action_reference(sender.policy, x) + 1)
        assert whole.position([round(v * 65_536) for v in x]) / 65_536 == pytest.approx(exact, abs=2e-4)


@pytest.mark.parametrize(("change", "words"), [
    ({"head": "squashed"}, "its head is squashed; mean fits"),
    ({"weights": (np.zeros((10, 33)), np.zeros((33, 1))), "biases": (np.zeros(33), np.zeros(1))}, "a layer has 33 outputs"),
    ({"weights": (np.full((10, 1), 5e3),), "biases": (np.zeros(1),)}, "a weight is 5000; below 4096 fit"),
])  # fmt: skip
def test_a_policy_that_does_not_fit_is_refused(change: dict[str, Any], words: str) -> None:
    plain = PolicySender("p", (np.zeros((10, 1)),), (np.zeros(1),), "tanh")
    with pytest.raises(PolicyDoesNotFit, match=words):
        export_bpf(SHIELD, name="p", chooser=replace(plain, **change))


def answered(acks: np.ndarray, answers: dict[int, int]) -> np.ndarray:
    """Return ACKs with answers: positions by the number of the decision, seen from the next ACK on."""
    acks = acks.copy()
    asked = Twin(SHIELD, chooser="user").run(acks)["asked"].astype(np.int64)
    for row in range(1, len(acks)):
        if asked[row - 1] in answers:
            acks["answer"][row] = (asked[row - 1] << 32) + answers[int(asked[row - 1])]
    return acks


def test_a_chooser_that_falls_silent_leaves_the_middle() -> None:
    """The last answer holds until a decision stays without one; from the next decision on it is the middle."""
    acks = recorded_acks(scenario("cc_probe_drain", 3e6, 2.0))
    states = assert_equal(SHIELD, answered(acks, {1: 0, 2: 65_536, 3: 2**31}), chooser="user")
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


@settings(max_examples=15)
@given(
    sender=st.sampled_from(SENDERS), bdp_packets=st.floats(12, 200), rtt_s=st.floats(0.01, 0.1), buffer_bdp=st.floats(0.05, 6),
    jitter=st.sampled_from([("none", 0.0), ("batch", 0.5), ("batch", 1.0), ("constant", 1.0), ("adversary", 1.0)]),
    known=st.booleans(),
)  # fmt: skip
def test_bounds_hold(sender, bdp_packets, rtt_s, buffer_bdp, jitter, known):
    """C_L <= C <= C_U at every ACK, whoever sends, with jitter up to one packet per window; Rm known or measured."""
    kind, share = jitter
    rate_Bps, jitter_s = bdp_packets * MSS_BYTES / rtt_s, share * rtt_s
    box = {"kind": kind, "max_s": jitter_s, **({"adversary": "square"} if kind == "adversary" else {})}
    acks = recorded_acks(scenario(sender, rate_Bps, buffer_bdp, rtt_s=rtt_s, **({"jitter": box} if share else {})))
    told_s = rtt_s + MSS_BYTES / rate_Bps if known else None
    lower, upper, by_sending = bounds_of(acks, rate_Bps, jitter_s=jitter_s, rtt_s=told_s)
    packet = 1 + (1 / bdp_packets if share else 0) + 1e-6
    assert lower <= packet and upper >= 1 / packet
    assert by_sending <= 1 + 1 / bdp_packets + 1e-6 or not (known or kind == "none")


@pytest.mark.parametrize(("buffer_bdp", "jitter_s"), [(0.3, 0.0), (1.0, 0.0), (4.0, 0.04)])
@pytest.mark.parametrize("sender", ["cc_probe_drain", "cc_probe_fast"])
def test_upper_bounds_are_found(sender: str, buffer_bdp: float, jitter_s: float) -> None:
    """Bounds that hold because they say nothing would be of no use: losses and delays prove that the link was busy."""
    acks = recorded_acks(scenario(sender, 6e6, buffer_bdp, **batches(jitter_s)))
    lower, upper, _ = bounds_of(acks, 6e6, jitter_s=jitter_s)
    assert lower > 0.9 and upper < 1.6


@pytest.mark.parametrize(("sender", "rate_Bps", "buffer_bdp", "jitter_s"), [
    ("cc_probe_drain", 3e6, 0.4, 0.0), ("cc_probe_drain", 3e6, 2.0, 0.04), ("cc_probe_fast", 6e6, 0.2, 0.0),
    ("cc_qdel", 3e6, 4.0, 0.02), ("cc_probe_slow", 1.5e6, 3.0, 0.04), ("learned_nominal_u70", 3e6, 1.0, 0.0),
    ("learned_robust_d4", 3e6, 3.0, 0.01), ("cc_probe_qdel", 12e6, 1.0, 0.005),
])  # fmt: skip
def test_bounds_are_those_of_the_reference(sender: str, rate_Bps: float, buffer_bdp: float, jitter_s: float) -> None:
    acks = recorded_acks(scenario(sender, rate_Bps, buffer_bdp, **batches(jitter_s)))
    twin = TwinBesideReference(PROGRAMS[sender], jitter_s=jitter_s)
    twin.run(acks)
    ours, theirs = (np.array([pair[side] for pair in twin.pairs]) for side in (0, 1))
    assert len(ours) > 300 and len(np.unique(ours[:, 1:], axis=0)) > 10
    np.testing.assert_allclose(ours[:, :2], theirs[:, :2], rtol=0, atol=3e-7)
    assert (ours[:, 2] <= theirs[:, 2] + 3e-7).all()
    window_steps = twin.constants.probe_steps + twin.jitter
    if acks["lost"][-1] == 0:
        assert (ours[:, 2] >= theirs[:, 2] - 1 / window_steps - 3e-7).all()
