"""The claims about a distilled program: a lemma suite in the form of [CCmatic] App. F with the program's own constants.

A belief time-out lets C_L fall to what the last trace shows, so converged beliefs stay converged only above a lower C_L than
without time-outs, and guarantee less utilisation. Both constants are searched before the whole suite is decided.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any

import yaml

from ccenv.agents.programs import Program
from ccenv.base.config import validate
from ccenv.base.errors import InputError, unknown_name
from ccenv.proofs.claims.claims import Thresholds, build_claim
from ccenv.proofs.claims.lemma_run import LemmaRun, run_lemma
from ccenv.proofs.claims.lemmas import LoadedSuite, Suite, constants_of, lemma_queries, suite_setting
from ccenv.proofs.claims.verifier import Query
from ccenv.proofs.formulas.setting import TIMEOUT_PRESETS, Setting, named_setting
from ccenv.proofs.senders.program import ProgramSmtSender

SETTING = "history"
MODEL, BUFFER = "ccac", "large"
SAMPLES = 11
INVARIANT = "invariant (5.3)"
LOWEST = 0.2  # lower end of the search for constants of a suite with time-outs


@dataclass(frozen=True)
class ClaimNumbers:
    """Constants of the lemmas."""

    utilisation: Fraction = Fraction(27, 50)  # least fraction of the link used, in steady state and while beliefs do not converge
    inflight: Fraction = Fraction(7, 2)  # largest bytes in flight, in C (Rm + D)
    queue_high: Fraction = Fraction(2)  # queue to which the sender returns, in C (Rm + D)
    # gamma_L: beliefs are converged if C_L >= gamma_L C; about one over the program's outermost C_U / C_L
    C_L_low: Fraction = Fraction(11, 20)
    C_U_high: Fraction = Fraction(3)  # gamma_U: and C_U <= gamma_U C
    drain: Fraction = Fraction(1, 4)  # decrease of a larger queue per trace, in C Rm
    shrink: Fraction = Fraction(51, 50)  # factor by which unconverged beliefs shrink per trace

    def __post_init__(self) -> None:
        for name, value in (("utilisation", self.utilisation), ("C_L_low", self.C_L_low)):
            if not 0 < value < 1:
                raise InputError(f"{name} is {float(value)}; it must lie between 0 and 1")

    def as_tuple(self) -> tuple[Fraction, ...]:
        """Return the numbers in the order of the fields."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def stricter(self, by: Fraction = Fraction(1, 200)) -> ClaimNumbers:
        """Return constants with a margin for the search: what holds with it on many traces is likelier to hold on all."""
        return replace(self, utilisation=self.utilisation + by, inflight=self.inflight - by, queue_high=self.queue_high - by)


def numbers_for(utilisation: float) -> ClaimNumbers:
    """Return the constants for a utilisation to prove, with gamma_L just above it."""
    exact = Fraction(str(utilisation))
    return ClaimNumbers(utilisation=exact, C_L_low=exact + Fraction(1, 100))


def require_timeouts(preset: str | None) -> None:
    """Raise UnknownNameError for an unknown preset of belief time-outs (None: beliefs do not time out)."""
    if preset is not None and preset not in TIMEOUT_PRESETS:
        raise unknown_name("preset of time-outs", preset, TIMEOUT_PRESETS)


def suite_data(
    program_file: str,
    name: str,
    numbers: ClaimNumbers,
    timeouts: str | None = None,
    settle: int = 0,
    grows: Fraction | None = None,
) -> dict[str, Any]:
    """Return the suite of a program as data for a YAML file beside the program.

    ``timeouts`` is a preset of belief time-outs (None: beliefs do not time out); utilisation does not count the first ``settle``
    Rm of a trace. With ``grows``, without time-outs only, a trace must tighten beliefs while C_L is low, or put this much more in
    flight, in C_L Rm; without it a trace that meets the objectives suffices, and bytes in flight do not count.
    """
    objectives = {"all": [{"utilisation_at_least": "utilisation"}, {"inflight_at_most": "inflight"}]}
    constants: dict[str, dict[str, Any]] = {field.name: {"value": str(getattr(numbers, field.name))} for field in fields(numbers)}
    if grows is not None:
        constants["grows"] = {"value": str(grows)}
    if timeouts is not None:
        for constant in ("C_L_low", "utilisation"):
            high = float(getattr(numbers, constant))
            constants[constant]["search"] = {"best": "largest", "low": LOWEST, "high": high, "precision": 0.01}
    return {
        "name": name,
        "source": f"the lemmas of [CCmatic] App. F for a distilled program, {'with' if timeouts else 'without'} belief time-outs",
        "sender": program_file,
        "model": MODEL,
        "buffer": BUFFER,
        "default_T": SAMPLES,
        "default_setting": SETTING,
        **({} if settle == 0 else {"settle": settle}),
        **({} if timeouts is None else {"timeout_preset": timeouts}),
        "states": {
            "true_beliefs": {"all": ["C_L_true", "C_U_true"]},
            "converged": {"all": [{"C_L_at_least": "C_L_low"}, {"C_U_at_most": "C_U_high"}]},
            "queue_bounded": {"queue_at_most": "queue_high"},
            "shrinks": {"any": [{"C_L_rises_by": "shrink"}, {"C_U_falls_by": "shrink"}]},
            "objectives": objectives,
        },
        "constants": constants,
        "properties": {"steady_utilisation": "F.7 utilisation", "steady_inflight": "F.7 inflight"},
        "lemmas": _lemmas(timeouts is not None, grows is not None),
    }


def _lemmas(timeouts: bool, ranked: bool) -> list[dict[str, Any]]:
    """Return the lemmas. Most assume that C_L stays true inside a trace, which makes them several times easier to decide."""
    C_L = "F.1 C_L"
    steady = ["true_beliefs", "converged", "queue_bounded"]
    unbounded = ["true_beliefs", "converged", {"not": "queue_bounded"}]
    drains = {"any": ["queue_bounded", {"queue_falls_by": "drain"}]}
    used, sent = {"utilisation_at_least": "utilisation"}, {"inflight_at_most": "inflight"}
    inside = {"timeout": False} if timeouts else {}
    lemmas = [
        _lemma(C_L, "a true C_L stays true", ["C_L_true"] if timeouts else ["true_beliefs"], "C_L_true", **inside),
        _lemma("F.7 utilisation", "utilisation in steady state", steady, used, given=[C_L], bound="utilisation"),
        *([] if timeouts else _ranking_lemmas() if ranked else _converging_lemmas()),
        _lemma("F.6", "a large queue drains", unbounded, drains, given=[C_L], bound="drain"),
        _lemma("F.7 loss", "nothing is lost in steady state", steady, {"lossy_steps_at_most": 0}, given=[C_L]),
        _lemma("F.5", "a small queue stays small", steady, "queue_bounded", given=[C_L], bound="queue_high"),
        _lemma("F.7 inflight", "bytes in flight in steady state", steady, sent, given=[C_L], bound="inflight"),
    ]
    return [
        *lemmas,
        *(_timeout_lemmas() if timeouts else [_lemma("F.1 C_U", "a true C_U stays true", ["true_beliefs"], "C_U_true")]),
    ]


def _lemma(title: str, text: str, premise: list[Any], conclusion: Any, **more: Any) -> dict[str, Any]:
    return {"name": title, "text": text, "if": {"all": premise}, "then": [conclusion], **more}


def _converging_lemmas() -> list[dict[str, Any]]:
    progress = {"any": ["converged", "shrinks", "objectives"]}
    return [
        _lemma("F.4", "beliefs converge, or shrink, or nothing is lost by it", ["true_beliefs", {"not": "converged"}], progress)
    ]


def _ranking_lemmas() -> list[dict[str, Any]]:
    """Return F.4 as a ranking: a bounded quantity moves by a least amount in each trace, so C_L converges in finitely many.

    C_L does not fall, C_U does not rise, and the buffer bounds the bytes in flight; no trace is exempt for ever.
    """
    low, high = {"C_L_at_least": "C_L_low"}, {"C_U_at_most": "C_U_high"}
    more = {"any": [low, "shrinks", {"inflight_rises_by": "grows"}]}
    return [
        _lemma("F.4 C_L", "a low C_L converges, or beliefs shrink, or more is in flight", ["true_beliefs", {"not": low}], more),
        _lemma(
            "F.4 C_U",
            "a high C_U converges, or beliefs shrink, or nothing is lost by it",
            ["true_beliefs", low, {"not": high}],
            {"any": [high, "shrinks", "objectives"]},
        ),
    ]


def _timeout_lemmas() -> list[dict[str, Any]]:
    """Return the lemmas about beliefs at the end of a trace, where they time out.

    Each bound has its own: a time-out loosens both, so requiring that neither gets worse would be too strong. While one bound
    stands still the other may move towards C, which cannot go on for ever.
    """
    low, high = {"C_L_at_least": "C_L_low"}, {"C_U_at_most": "C_U_high"}
    C_L_rises, C_U_falls = {"C_L_rises_by": "shrink"}, {"C_U_falls_by": "shrink"}
    C_L_falls, C_U_rises = {"C_L_falls_by": "shrink"}, {"C_U_rises_by": "shrink"}
    right = "becomes true, or beliefs move towards C, or nothing is lost by it"
    near = "converges, or beliefs move towards C, or nothing is lost by it"
    true = ["true_beliefs", "converged"]
    C_L_wrong, C_U_wrong = [{"not": "C_L_true"}, "C_U_true"], ["C_L_true", {"not": "C_U_true"}]
    return [
        _lemma("F.1 C_L at a time-out", "a true C_L stays true", ["C_L_true"], "C_L_true"),
        _lemma("F.1 C_U at a time-out", "a true C_U stays true", ["C_U_true"], "C_U_true"),
        _lemma("F.2 C_L", f"a wrong C_L {right}", C_L_wrong, {"any": ["C_L_true", C_L_falls, C_U_falls, "objectives"]}),
        _lemma("F.2 C_U", f"a wrong C_U {right}", C_U_wrong, {"any": ["C_U_true", C_U_rises, C_L_rises, "objectives"]}),
        _lemma("F.3 C_L", "a converged C_L stays converged", true, low, bound="C_L_low"),
        _lemma("F.3 C_U", "a converged C_U stays converged", true, high, bound="C_U_high"),
        _lemma("F.4 C_L", f"a low C_L {near}", ["true_beliefs", {"not": low}], {"any": [low, C_L_rises, "objectives"]}),
        _lemma("F.4 C_U", f"a high C_U {near}", ["true_beliefs", {"not": high}], {"any": [high, "shrinks", "objectives"]}),
    ]


def claim_queries(program: Program, numbers: ClaimNumbers) -> list[tuple[str, list[Query]]]:
    """Return (lemma, its queries) of every claim, in the order in which wrong programs fail."""
    sender = ProgramSmtSender(program)
    suite = validate(Suite, suite_data("program.json", program.name, numbers), program.name)
    loaded = LoadedSuite(suite, sender, FilePath("lemmas.yaml"))
    setting = suite_setting(loaded, SETTING, SAMPLES)
    values = constants_of(suite, SETTING)
    out = [(lemma.name, lemma_queries(loaded, lemma, setting, values)) for lemma in suite.lemmas]
    base = named_setting(SETTING, Setting(MODEL, BUFFER, SAMPLES), sender.largest_rate())
    return [*out, (INVARIANT, build_claim("invariant", base, sender, Thresholds()))]


def write_suite(folder: FilePath, program: Program, numbers: ClaimNumbers, timeouts: str | None = None) -> FilePath:
    """Write a suite beside program.json, for ``ccenv verify lemmas``."""
    file = folder / ("lemmas.yaml" if timeouts is None else "lemmas-timeouts.yaml")
    file.write_text(suite_text(suite_data("program.json", program.name, numbers, timeouts)), encoding="utf-8")
    return file


def suite_text(data: dict[str, Any]) -> str:
    """Return a suite as YAML without anchors and aliases."""
    return yaml.safe_dump(json.loads(json.dumps(data)), sort_keys=False, width=120)


SEARCHED_CONSTANTS = (("C_L_low", "F.3 C_L"), ("utilisation", "F.7 utilisation"))


def weaken_constants(
    folder: FilePath, program: Program, numbers: ClaimNumbers, preset: str, make_run: Callable[[FilePath], LemmaRun]
) -> ClaimNumbers:
    """Return the strongest constants found with which converged beliefs stay converged and utilisation holds under time-outs.

    ``numbers`` were proved without time-outs; a constant for which nothing is proved stays, and its lemma then fails. The suite
    is written beside the program.
    """
    for constant, lemma in SEARCHED_CONSTANTS:
        suite = write_suite(folder, program, numbers, preset)
        bound = run_lemma(replace(make_run(suite), bisect=True, recheck=None), lemma).bound
        if bound is not None:
            numbers = replace(numbers, **{constant: Fraction(str(bound))})
    return numbers
