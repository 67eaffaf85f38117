"""``ccenv.verify``: from names and numbers to a verdict, for Python and the command line."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import InputError, did_you_mean, require_extra, shown, unknown_name
from ccenv.base.foreign import parse_fraction
from ccenv.base.results import TableResult
from ccenv.base.units import SECONDS, positive
from ccenv.base.workers import Workers
from ccenv.proofs.claims.claims import DEFAULT_SAMPLES, SAMPLES, Thresholds, build_claim
from ccenv.proofs.claims.endless import ramp
from ccenv.proofs.claims.report import about_run, decide_claim
from ccenv.proofs.claims.verifier import Verifier
from ccenv.proofs.formulas.setting import BUFFERS, BeliefRules, Setting, named_setting
from ccenv.proofs.senders.catalog import smt_sender
from ccenv.proofs.senders.thinned import thin
from ccenv.proofs.solver.solvers import Store

COLUMNS = ("name", "claim", "verdict", "seconds")  # of a query, in tables


class Answer(TableResult, dict[str, Any]):
    """A verdict with its evidence, as the command line prints it with ``--json``."""

    @property
    def verified(self) -> bool:
        """Whether the property was proved."""
        return bool(self["verdict"] == "verified")

    def _rows(self) -> list[dict[str, Any]]:
        return [{key: query[key] for key in COLUMNS} for query in self["queries"]]

    def __repr__(self) -> str:
        bound = f", bound {self['bound']}" if self["bound"] is not None else ""
        return f"Answer({self['name']} of {self['sender']} on {self['model']}: {self['verdict']}{bound}, {self['seconds']:.1f} s)"


def verify(
    sender: str,
    prop: str = "invariant",
    *,
    model: str = "ccac",
    buffer: str | float = "infinite",
    samples: int | None = None,
    setting: str | None = None,
    at_least: str | float | None = None,
    at_most: str | float | None = None,
    time_limit: str | float = "10min",
    seed: int = 0,
    jobs: int = 1,
    out: FilePath | str = "runs/verify",
) -> Answer:
    """Prove a property of a sender on a network model, or find a trace that breaks it, or at which the argument fails.

    Args:
        sender: a belief program, by name or file, or a published encoding (``copa``).
        prop: ``invariant``, ``utilisation``, ``inflight``, ``queue``, ``rtt``, ``loss``, ... (docs/verification.md).
        model: ``ideal``, ``cbr_delay`` or ``ccac``.
        buffer: ``infinite``, ``small``, ``large``, ``arbitrary``, or a number of C*Rm.
        samples: T, length of the trace in samples one Rm apart; by default that of the property.
        setting: what came before the trace: ``history``, ``sound`` or ``artefact``; by default history where possible.
        at_least: threshold of utilisation, in [0, 1].
        at_most: threshold of the other properties, >= 0.
        time_limit: per solver call; a number is in seconds. What takes longer is unknown, never a yes.
        seed: of the solver.
        jobs: workers.
        out: folder for traces of counterexamples.

    Returns:
        Answer: ``verdict`` is verified, refuted (``trace`` repeats for ever) or unknown (``reason``, such as "step fails").

    Raises:
        UnknownNameError: for an unknown name.
        InputError: for a number that is not allowed.
        NoEncodingError: for a sender without an encoding.
        MissingExtraError: without the solver.
    """
    require_extra("z3", "verify")
    if not isinstance(sender, str):
        raise InputError(f"verify: {shown(sender)} is no name; give a belief program by name or file (.json)")
    limits = Thresholds(fraction(at_least, "at_least", most=1), fraction(at_most, "at_most"))
    limit_s = positive("time_limit", time_limit, SECONDS)
    with Workers(jobs) as workers:
        verifier = Verifier(limit_s, seed, store=Store(), workers=workers)
        answer = ask(sender, prop, limits, model, str(buffer), samples, setting, verifier, FilePath(out))
    return Answer(answer | {"buffer": buffer})


def ask(
    sender: str,
    prop: str,
    thresholds: Thresholds,
    model: str,
    buffer: str,
    samples: int | None,
    setting: str | None,
    verifier: Verifier,
    out: FilePath,
    *,
    rules: tuple[str, str, str] = ("paper", "paper", "oracle"),
    sent_share: Fraction | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Answer:
    """Decide a property.

    ``rules`` are those of :func:`setting_of`; of what the sender decides at least ``sent_share`` enters the queue; ``say`` gets a
    line before the solver begins.
    """
    smt, T = thin(smt_sender(sender), sent_share), samples or SAMPLES.get(prop, DEFAULT_SAMPLES)
    network, chosen = setting_of(smt, model, buffer, T, setting, rules)
    queries = build_claim(prop, network, smt, thresholds)
    say(f"{smt.name} on {model}, buffer {buffer}, {prop}, T = {T}, setting {chosen}")
    outcome = decide_claim(prop, queries, verifier, out)
    verified, at_least = outcome.verdict == "verified", thresholds.at_least
    threshold = at_least if at_least is not None else thresholds.at_most
    outcome.bound = float(threshold) if verified and threshold is not None else None
    about: dict[str, Any] = {"sender": smt.name, "model": model, "buffer": buffer, "property": prop}
    if verified and prop in ("utilisation", "utilisation_with_timeouts") and at_least is not None:
        about["ramp"] = ramp(queries[0].setting, smt, at_least)
    about |= {"setting_name": chosen, "encoding": str(type(smt).__doc__).split("\n", 1)[0]}
    return Answer(outcome.to_dict() | about | about_run(network))


def fraction(text: str | float | None, option: str, most: int | None = None) -> Fraction | None:
    """Return a threshold of at least 0 as an exact number, or None. Raises InputError with the option's name."""
    if text is None:
        return None
    try:
        value = parse_fraction(text, option)
    except InputError:
        raise InputError(f"{option} is {text!r}; a number such as 0.5 or 1/2 is needed") from None
    if value < 0:
        raise InputError(f"{option} is {text}; it must not be negative")
    if most is not None and value > most:
        raise InputError(f"{option} is {text}; it must be at most {most}")
    return value


def _buffer(text: str) -> Any:
    if text in BUFFERS:
        return text
    try:
        return fraction(text, "--buffer")
    except InputError:
        raise InputError(f"unknown buffer {text!r}.{did_you_mean(text, BUFFERS)} A number of C*Rm is allowed too.") from None


def setting_of(
    sender: Any, model: str, buffer: str, samples: int, name: str | None, rules: tuple[str, str, str]
) -> tuple[Setting, str]:
    """Return the setting of some options and its name, by default ``history`` if the sender's rate is bounded, else sound."""
    upper, lambda_form, loss_detection = rules
    for option, value, allowed in (("upper", upper, ("paper", "exact")), ("lambda_form", lambda_form, ("paper", "grid"))):
        if value not in allowed:
            raise unknown_name(f"value of {option}", value, allowed)
    beliefs = BeliefRules(upper=upper, lambda_extra_steps=int(lambda_form == "grid"))  # type: ignore[arg-type]
    base = Setting(model, _buffer(buffer), samples, loss_detection=loss_detection, beliefs=beliefs)  # type: ignore[arg-type]
    bound = sender.largest_rate()
    chosen = name or ("history" if bound is not None else "sound")
    return named_setting(chosen, base, bound), chosen
