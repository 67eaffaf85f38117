"""Export of a belief program or shield as one C file for the kernel, and its compilation.

The C is a template with the program's names, fixed-point constants and rule. Only objects need a compiler for BPF.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from importlib import resources
from importlib.util import find_spec
from pathlib import Path as FilePath
from typing import NamedTuple

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.programs import Branch, Expression, Program, Rule, pseudo_code, to_json
from ccenv.agents.sender import ClassicSender, PolicySender, ProgramSender, ShieldSender
from ccenv.base.errors import CcenvError, shown
from ccenv.base.provenance import VERSION
from ccenv.engine.compiled.beliefs import MOVED_RATIO, BeliefSettings
from ccenv.engine.packet.beliefs import STEPS_PER_RTT
from ccenv.live.export.policy import WholePolicy

LONGEST_NAME = 15  # of a congestion control, in the kernel
MAX_COEFFICIENT_BITS = 28  # of the sum of an expression's coefficients over their common denominator
SUM_BITS = 62
VALUE_BITS = 22  # before the point: of a queue in packets; rates have 20
MAX_FRACTION_BITS = 24
MAX_JITTER_STEPS = 16 * STEPS_PER_RTT
MAX_JITTER_S = 10.0
MAX_RTT_S = 1000.0
LOSS_LAG_STEPS = 2  # a loss is found by later packets, so C_U also uses windows that end this much earlier
MAX_STEPS = 64  # taken at one ACK
POSITION_BITS = 16  # of a position inside a shield's interval: 0 is its lower end, 1 << POSITION_BITS its upper one
POSITIONS = {"lo": 0, "middle": 1 << POSITION_BITS - 1, "hi": 1 << POSITION_BITS}
USER = "user"  # a chooser outside the kernel
COMPILED = "policy"  # compiled in
UNANSWERED = "middle"  # position without an answer
_NAME = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
_NOT_IN_COMMENTS = re.compile(r"\*(?=/)|/(?=\*)|\?(?=\?)")  # ends, beginnings and trigraphs

# C of each numeric input: rates in packets per step, amounts in packets, times in 1/STEPS_PER_RTT us.
_INPUTS = {
    "C_L": "(s64)f->C_L",
    "C_U": "(s64)f->C_U",
    "C_L_lambda": "(s64)f->C_L_lambda",
    "MSS/Rm": "(s64)MIN_RATE",
    "rate": "(s64)f->rate",
    "q_U/Rm": "(s64)(f->q_U / STEPS_PER_RTT)",
    "qdel_L": "(s64)(f->qdel_L_steps * f->rtt_us)",
    "qdel_U": "(s64)f->qdel_U",
    "Rm": "(s64)STEPS_PER_RTT * f->rtt_us",
    "q_U": "(s64)f->q_U",
    "MSS": "(s64)ONE",
}


class ExportError(CcenvError):
    """A program, or an assumption about the path, that cannot be exported."""

    def __init__(self, message: str) -> None:
        super().__init__(f"export: {message}")


@dataclass(frozen=True)
class Constants:
    """The numbers of an export."""

    fraction_bits: int  # bits after the point of rates and amounts
    rtt_us: int  # Rm at the start; 0: measured
    jitter_us: int  # D
    shortest_rtt_us: int  # a smaller RTT counts as this one, so that D has at most MAX_JITTER_STEPS steps
    probe_steps: int  # T*
    window_steps: int  # longest window of C_L and C_U
    period_steps: int
    ring: int  # steps of history, a power of two
    tight: Fraction  # a time-out requires C_U <= tight C_L
    expand: Fraction  # factor by which C_U grows
    moved: Fraction  # factor beyond which a bound has moved far


def export_bpf(
    program: Program,
    *,
    name: str | None = None,
    rtt_s: float | None = None,
    jitter_s: float = 0.0,
    chooser: str | PolicySender | None = None,
) -> str:
    """Write a belief program as one C file for a BPF struct_ops congestion control.

    Raises ExportError if the kernel cannot have the name, 64 bits cannot hold the sums, a delay is out of range, or the chooser
    does not fit the program; PolicyDoesNotFit if a policy cannot be compiled in.

    Args:
        program: the program, or a shield.
        name: of the congestion control in the kernel, at most 15 letters, digits and _; by default that of the program.
        rtt_s: Rm if known, at most 1,000 s; None: the smallest RTT measured. A smaller measured RTT lowers it.
        jitter_s: D that the beliefs assume, at most 10 s: every delay of feedback, ACK policies included.
        chooser: of a shield, and only of one: ``lo``, ``middle``, ``hi``; ``user``, a process that answers in a map (the
            middle without an answer); or a small policy, which is compiled in.

    Returns:
        str: C, the same for the same arguments and version of ccenv.
    """
    require_chooser(program, chooser)
    constants = export_constants(program, rtt_s=rtt_s, jitter_s=jitter_s)
    name = kernel_name(program.name if name is None else name)
    template = resources.files(__package__).joinpath("belief.bpf.c.in").read_text(encoding="utf-8")
    policy = "" if chooser is None or isinstance(chooser, str) else WholePolicy.of(chooser).text() + "\n"
    for mark, text in (
        ("@CONSTANTS@", _constants_text(constants, name, chooser)),
        ("@PROGRAM@", _program_text(program)),
        ("@POLICY@\n", policy),
    ):
        template = template.replace(mark, text)
    return _head(program, name, constants) + expand_kernel(template)


def export_template(template: str, name: str, about: str, constants: str) -> str:
    """Return a congestion control from a template of this folder; lines of ``about`` after the first begin as comments do."""
    name, (first, line, rest) = kernel_name(name), about.partition("\n")
    head = (
        "// SPDX-License-Identifier: MIT OR GPL-2.0-only\n/*\n"
        f" * Congestion control {name}: {first}, written by ccenv {VERSION}.\n{rest}{line} */\n"
    )
    text = resources.files(__package__).joinpath(f"{template}.bpf.c.in").read_text(encoding="utf-8")
    return head + expand_kernel(text.replace("@CONSTANTS@", f'#define {template.upper()}\n#define NAME "{name}"\n{constants}'))


def load_classic(spec: str, *names: str) -> ClassicSender | None:
    """Return the sender of a spec if it is one of ours with such a name. Raises UnknownNameError for an unknown name."""
    sender = make_sender(spec)
    return sender if isinstance(sender, ClassicSender) and sender.name in names and not sender.source_sha256 else None


def expand_kernel(template: str) -> str:
    """Put in the kernel's types and the hooks that all congestion controls have."""
    for name in ("kernel_types", "sender_state", "kernel_hooks"):
        text = resources.files(__package__).joinpath(f"{name}.c.in").read_text(encoding="utf-8")
        template = template.replace(f"@{name.upper()}@\n", text)
    return template


def require_chooser(program: Program, chooser: str | PolicySender | None) -> None:
    """Raise ExportError for a shield without a chooser, a program with one, or an unknown chooser."""
    choosers = ", ".join([*POSITIONS, USER, COMPILED])
    if program.is_shield and chooser is None:
        raise ExportError(f"{program.name} is a shield: somebody must choose inside its intervals; give -s chooser={choosers}")
    if not program.is_shield and chooser is not None:
        chooser_name = chooser if isinstance(chooser, str) else chooser.name
        raise ExportError(f"{program.name} is no shield: there is nothing to choose for {shown(chooser_name)}")
    if isinstance(chooser, str) and chooser not in (*POSITIONS, USER):
        raise ExportError(f"unknown chooser {shown(chooser)}; it must be one of {choosers}")


def kernel_name(name: str) -> str:
    """Return the name of a congestion control. Raises ExportError if the kernel cannot have it."""
    if not _NAME.fullmatch(name):
        raise ExportError(f"the kernel takes names of letters, digits and _, not {shown(name)}; give -s name=...")
    if len(name) > LONGEST_NAME:
        raise ExportError(
            f"the kernel takes names of at most {LONGEST_NAME} characters, {shown(name)} has {len(name)}; give -s name=..."
        )
    return name


def export_constants(program: Program, *, rtt_s: float | None = None, jitter_s: float = 0.0) -> Constants:
    """Return the numbers of an export. Raises ExportError as :func:`export_bpf`."""
    if rtt_s is not None and not 1e-6 <= rtt_s <= MAX_RTT_S:
        raise ExportError(f"an RTT of {rtt_s:g} s; it must be from 1 us to {MAX_RTT_S:g} s")
    if not 0 <= jitter_s <= MAX_JITTER_S:
        raise ExportError(f"a jitter of {jitter_s:g} s; it must be from 0 to {MAX_JITTER_S:g} s")
    jitter_us = math.ceil(round(jitter_s * 1e6, 3))
    rtt_us = 0 if rtt_s is None else round(rtt_s * 1e6)
    shortest_rtt_us = max(1, math.ceil(Fraction(STEPS_PER_RTT * jitter_us, MAX_JITTER_STEPS)))
    if rtt_us and rtt_us < shortest_rtt_us:
        longest_s = rtt_us * MAX_JITTER_STEPS / STEPS_PER_RTT / 1e6
        raise ExportError(f"a jitter of {jitter_s:g} s; beside an RTT of {rtt_s:g} s it must be at most {longest_s:g} s")
    settings = BeliefSettings()
    window_steps = settings.window_rtts * STEPS_PER_RTT
    probe_steps = program.probe_window_rtts * STEPS_PER_RTT
    # The history that may be read: from the newest step sent, over the steps of an ACK, D, and a window.
    history = 2 * MAX_STEPS + 2 * STEPS_PER_RTT + (MAX_JITTER_STEPS if jitter_us else 1)
    history += max(window_steps + LOSS_LAG_STEPS, probe_steps)
    return Constants(
        fraction_bits=min(MAX_FRACTION_BITS, SUM_BITS - VALUE_BITS - _coefficient_bits(program)),
        rtt_us=rtt_us,
        jitter_us=jitter_us,
        shortest_rtt_us=shortest_rtt_us,
        probe_steps=probe_steps,
        window_steps=window_steps,
        period_steps=math.ceil(settings.period_rtts * STEPS_PER_RTT),
        ring=1 << (history - 1).bit_length(),
        tight=Fraction(str(settings.tight_ratio)),
        expand=Fraction(str(settings.expand_ratio)),
        moved=Fraction(str(MOVED_RATIO)),
    )


def unanswered_position(chooser: str | PolicySender) -> int:
    """Return the position that is taken without an answer."""
    return POSITIONS[chooser if isinstance(chooser, str) and chooser in POSITIONS else UNANSWERED]


def whole_terms(expression: Expression) -> tuple[tuple[tuple[str, int], ...], int]:
    """Return an expression's coefficients as integers over their common denominator, and that denominator."""
    denominator = math.lcm(*(coefficient.denominator for _, coefficient in expression.terms))
    return tuple((name, int(coefficient * denominator)) for name, coefficient in expression.terms), denominator


def rounding_slack(expression: Expression) -> int:
    """Return the value that the sum over ``whole_terms`` must exceed: rates and amounts are rounded, times are exact."""
    return 0 if expression.unit == "s" else 2 * sum(abs(coefficient) for _, coefficient in whole_terms(expression)[0])


def _coefficient_bits(program: Program) -> int:
    widest = 0
    for rule in program.rules():
        for expression in (rule.condition,) if isinstance(rule, Branch) else rule.ends:
            if isinstance(expression, Expression):
                terms, denominator = whole_terms(expression)
                widest = max(widest, denominator.bit_length(), sum(abs(coefficient) for _, coefficient in terms).bit_length())
    if widest > MAX_COEFFICIENT_BITS:
        raise ExportError(
            f"{program.name}: coefficients need {widest} bits over their common denominator; "
            f"at most {MAX_COEFFICIENT_BITS} fit 64-bit integers exactly"
        )
    return widest


def _head(program: Program, name: str, constants: Constants) -> str:
    """Return the comment about the origin of the file. No text of the program can end the comment."""
    document = to_json(program)
    rtt = f"{constants.rtt_us} us" if constants.rtt_us else "the smallest RTT measured"
    lines = [
        f"Congestion control {name}: belief program {program.name}, written by ccenv {VERSION}.",
        f"Program: sha256 {hashlib.sha256(document.encode()).hexdigest()}",
        f"Source: {program.source or 'not given'}",
        f"Assumed: Rm is {rtt}; D is {constants.jitter_us} us; a lost packet found a full queue.",
        "",
        *pseudo_code(program).splitlines()[1:],
    ]
    text = "\n".join(f" * {line}".rstrip() for line in lines)
    text = _NOT_IN_COMMENTS.sub(r"\g<0> ", text).encode("ascii", "backslashreplace").decode("ascii")
    return f"// SPDX-License-Identifier: MIT OR GPL-2.0-only\n/*\n{text}\n */\n"


def _constants_text(c: Constants, name: str, chooser: str | PolicySender | None) -> str:
    hidden = "0" if c.rtt_us else "((f)->jitter + 1)"
    values = {
        "NAME": f'"{name}"',
        "STEPS_PER_RTT": STEPS_PER_RTT,
        "FRACTION_BITS": c.fraction_bits,
        "RTT_US": f"{c.rtt_us}U",
        "JITTER_US": f"{c.jitter_us}ULL",
        "SHORTEST_RTT_US": f"{c.shortest_rtt_us}U",
        "HIDDEN_STEPS(f)": f"{hidden} /* the smallest RTT may hold D and a step of the flow's own burst */",
        "PROBE_STEPS": c.probe_steps,
        "WINDOW_STEPS": c.window_steps,
        "PERIOD_STEPS": c.period_steps,
        "LOSS_LAG_STEPS": f"{LOSS_LAG_STEPS} /* C_U looks back by so much, too: a loss is found by packets sent after it */",
        "RING": c.ring,
    }
    for prefix, ratio in (("TIGHT", c.tight), ("EXPAND", c.expand), ("MOVED", c.moved)):
        values[f"{prefix}_NUMERATOR"], values[f"{prefix}_DENOMINATOR"] = ratio.numerator, ratio.denominator
    values["MAX_STEPS"] = f"{MAX_STEPS} /* taken at an ACK; after more the history starts anew */"
    if chooser is not None:
        values["SHIELD"] = "/* the program allows intervals; a chooser decides */"
        values["POSITION_BITS"] = POSITION_BITS
        values["WHOLE"] = "(1U << POSITION_BITS)"
        values["POSITION"] = unanswered_position(chooser)
    if chooser == USER:
        values["ASKED"] = "/* a process answers; POSITION holds where it does not */"
    if isinstance(chooser, PolicySender):
        values["POLICY"] = "/* a policy decides here */"
    return "\n".join(f"#define {key} {value}" for key, value in values.items())


def _program_text(program: Program) -> str:
    lines = ["/* The program: sets for how many Rm its rate holds. */", "static u64 decide(struct flow *f)", "{"]
    return "\n".join([*lines, *_rule_lines(program.rule, "\t"), "}"])


def _rule_lines(rule: Rule, indent: str) -> list[str]:
    if isinstance(rule, Branch):
        return [
            f"{indent}if ({_condition_text(rule.condition)}) {{",
            *_rule_lines(rule.then, indent + "\t"),
            f"{indent}}} else {{",
            *_rule_lines(rule.otherwise, indent + "\t"),
            f"{indent}}}",
        ]
    hold = f"{indent}f->hold = {rule.hold_rtts};"
    upper = [] if rule.most is None else [f"{indent}f->hi = {_rate_text(rule.most)};"]
    return [hold, *upper, f"{indent}return {_rate_text(rule.rate)};"]


def _rate_text(expression: Expression) -> str:
    terms, denominator = whole_terms(expression)
    rate = f"rate_of({_sum_text(terms)}, {denominator})"
    sign = dict(terms).get("C_U", 0)
    return f"f->C_U == UNBOUNDED ? {'RATE_LIMIT' if sign > 0 else 'MIN_RATE'} : {rate}" if sign else rate


def _condition_text(condition: Expression | str) -> str:
    if isinstance(condition, str):
        return f"f->{condition}"
    terms, _ = whole_terms(condition)
    text = f"{_sum_text(terms)} > {rounding_slack(condition)}LL"
    sign = dict(terms).get("C_U", 0)
    if sign:
        text = f"f->C_U == UNBOUNDED || {text}" if sign > 0 else f"f->C_U != UNBOUNDED && {text}"
    return text


def _sum_text(terms: tuple[tuple[str, int], ...]) -> str:
    return " + ".join(f"{coefficient}LL * {_INPUTS[name]}" for name, coefficient in terms)


class Exported(NamedTuple):
    """The exportable part of a sender."""

    program: Program
    chooser: str | PolicySender | None = None  # of a shield, see `export_bpf`
    shield: ShieldSender | None = None  # of a shield, the sender with the policy that may answer outside the kernel


def load_exported(spec: str, chooser: str | None = None) -> Exported:
    """Return the program, or the shield, of a registered sender or a ``.json`` file.

    Raises ExportError if it is no belief program, or two programs, or its chooser cannot be exported; UnknownNameError for an
    unknown name.

    Args:
        spec: of the sender.
        chooser: of a shield, instead of its own; ``user`` is its policy or its random choices in a process, ``policy`` its
            policy compiled in.
    """
    sender = make_sender(spec)
    if isinstance(sender, ShieldSender):
        own_chooser = sender.chooser if sender.chooser in POSITIONS else USER
        if sender.chooser == "external":
            raise ExportError(f"{spec!r}: an environment chooses; choosers are {', '.join([*POSITIONS, 'policy', 'random'])}")
        if chooser == COMPILED:
            if sender.policy is None:
                raise ExportError(f"{spec!r} has no policy that could be compiled in; its chooser is {sender.chooser}")
            return Exported(sender.program, sender.policy, sender)
        return Exported(sender.program, chooser or own_chooser, sender)
    if not isinstance(sender, ProgramSender):
        names = [name for tag in ("synthesized", "distilled", "shield") for name in AGENTS.names(tag)]
        raise ExportError(f"{spec!r} is no belief program; programs: {', '.join(names)}")
    if sender.start is not None:
        raise ExportError(f"{spec!r} is two programs, first {sender.start.name}, then {sender.program.name}; export one of them")
    return Exported(sender.program, chooser)


OLDEST_CLANG = 12
ADVICE = f"apt install clang (version {OLDEST_CLANG} or newer), or pip install ziglang"
_VERSION = re.compile(r"clang version (\d+)")
_OPTIONS = ("-O2", "-g", "-Wall", "-Werror")
_CLANG, _ZIG = "clang", "ziglang"
_TARGETS = {_CLANG: "bpf", _ZIG: f"bpf{'el' if sys.byteorder == 'little' else 'eb'}-freestanding-none"}
_TIME_LIMIT_S = 120.0


class Compiler(NamedTuple):
    """A clang with the BPF target."""

    name: str  # `clang`, or `ziglang` for that of the Python package
    command: tuple[str, ...]
    version: int  # major version of clang


def find_compiler() -> Compiler | None:
    """Return the clang on PATH if it is recent enough and has the BPF target, else that of the package ziglang, else None."""
    path = shutil.which("clang")
    if path is not None:
        version = _clang_version((path,))
        if version >= OLDEST_CLANG and "bpf " in _read_output([path, "--print-targets"]):
            return Compiler(_CLANG, (path,), version)
    if find_spec("ziglang") is None:
        return None
    command = (sys.executable, "-m", "ziglang", "cc")
    version = _clang_version(command)
    return Compiler(_ZIG, command, version) if version >= OLDEST_CLANG else None


def _clang_version(command: tuple[str, ...]) -> int:
    match = _VERSION.search(_read_output([*command, "--version"]))
    return int(match[1]) if match else 0


def _read_output(command: list[str]) -> str:
    try:
        return _run(command).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""


def compile_bpf(text: str, record: bool = False) -> bytes:
    """Compile the C of ``export_bpf``; return the BPF object with its type information. Leaves no file.

    With ``record`` it records inputs and decisions at each ACK, for ``ccenv.live``. Raises ExportError if there is no compiler,
    or it refuses the text.
    """
    compiler = find_compiler()
    if compiler is None:
        raise ExportError(f"an object needs a compiler for BPF; {ADVICE}, or write C: -o NAME.c")
    # Some compilers cannot write to standard output; their caches are in this folder, too.
    with tempfile.TemporaryDirectory(prefix="ccenv-bpf-") as folder:
        object_file = FilePath(folder, "program.o")
        command = [*compiler.command, "-target", _TARGETS[compiler.name], *_OPTIONS, *(["-DRECORD"] if record else [])]
        try:
            process = _run([*command, "-x", "c", "-c", "-", "-o", str(object_file)], text.encode("ascii"), folder)
            content = object_file.read_bytes() if process.returncode == 0 else b""
        except (OSError, subprocess.SubprocessError) as error:
            raise ExportError(f"{compiler.name} did not compile: {error}") from None
    if process.returncode != 0:
        raise ExportError(f"{compiler.name} refused the text: {process.stderr.decode(errors='replace').strip()}")
    return content


def _run(command: list[str], stdin: bytes = b"", cache: str = "") -> subprocess.CompletedProcess[bytes]:
    cache_variables = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache} if cache else {}
    return subprocess.run(
        command, input=stdin, capture_output=True, timeout=_TIME_LIMIT_S, check=False, env={**os.environ, **cache_variables},
        cwd="/",  # debug information names the folder
    )  # fmt: skip
