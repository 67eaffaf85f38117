"""What is claimed of a distilled program: a lemma suite in the shape of [CCmatic] App. F, with constants of its own."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any

import yaml

from ccenv.config import validate
from ccenv.errors import InputError
from ccenv.programs import Program
from ccenv.smt.claims import Thresholds, build_claim
from ccenv.smt.lemmas import LoadedSuite, Suite, constants_of, lemma_queries, suite_setting
from ccenv.smt.senders import ProgramSmtSender
from ccenv.smt.setting import Setting, named_setting
from ccenv.smt.verifier import Query

SETTING = "history"
MODEL, BUFFER = "ccac", "large"
SAMPLES = 11
INVARIANT = "invariant (5.3)"
STEADY = ["true_beliefs", "converged", "queue_bounded"]


@dataclass(frozen=True)
class ClaimNumbers:
    """Constants of the lemmas.

    Attributes:
        utilisation: smallest fraction of the link used, in steady state and while beliefs do not converge.
        inflight: largest bytes in flight, in C (Rm + D).
        queue_high: queue that the sender returns to, in C (Rm + D).
        C_L_low: gamma_L: beliefs are converged if C_L >= gamma_L C; about one over the program's outermost C_U / C_L.
        C_U_high: gamma_U: and C_U <= gamma_U C.
        drain: by how much a larger queue falls per trace, in C Rm.
        shrink: factor by which beliefs that are not converged shrink per trace.
    """

    utilisation: Fraction = Fraction(27, 50)
    inflight: Fraction = Fraction(7, 2)
    queue_high: Fraction = Fraction(2)
    C_L_low: Fraction = Fraction(11, 20)
    C_U_high: Fraction = Fraction(3)
    drain: Fraction = Fraction(1, 4)
    shrink: Fraction = Fraction(51, 50)

    def __post_init__(self) -> None:
        """Refuse numbers that no proof could use."""
        if not 0 < self.utilisation < self.C_L_low < 1:
            raise InputError(
                f"utilisation {float(self.utilisation)} must lie above 0 and below C_L_low {float(self.C_L_low)} < 1"
            )

    def as_tuple(self) -> tuple[Fraction, ...]:
        """Return the numbers in the order of the fields."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def stricter(self, by: Fraction = Fraction(1, 200)) -> ClaimNumbers:
        """Return numbers with a margin, for the search: what holds with them on many traces is likelier to hold on all."""
        return replace(self, utilisation=self.utilisation + by, inflight=self.inflight - by, queue_high=self.queue_high - by)


def numbers_for(utilisation: float) -> ClaimNumbers:
    """Return the constants for a utilisation to prove: gamma_L lies just above it."""
    exact = Fraction(str(utilisation))
    return ClaimNumbers(utilisation=exact, C_L_low=exact + Fraction(1, 100))


def suite_data(program_file: str, name: str, numbers: ClaimNumbers) -> dict[str, Any]:
    """Return the suite of a program as data for a YAML file beside the program."""
    progress = {"any": ["converged", "shrinks", "objectives"]}

    def lemma(title: str, text: str, premise: list[Any], conclusion: Any, bound: str | None = None) -> dict[str, Any]:
        head = {"name": title, "text": text, "premise": {"all": premise}, "conclusion": [conclusion]}
        return head if bound is None else head | {"bound": bound}

    return {
        "name": name,
        "source": "the lemmas of [CCmatic] App. F for a distilled program, without belief time-outs",
        "sender": program_file,
        "model": MODEL,
        "buffer": BUFFER,
        "default_T": SAMPLES,
        "default_setting": SETTING,
        "states": {
            "true_beliefs": {"all": ["C_L_true", "C_U_true"]},
            "converged": {"all": [{"C_L_at_least": "C_L_low"}, {"C_U_at_most": "C_U_high"}]},
            "queue_bounded": {"queue_at_most": "queue_high"},
            "shrinks": {"any": [{"C_L_rises_by": "shrink"}, {"C_U_falls_by": "shrink"}]},
            "objectives": {"all": [{"utilisation_at_least": "utilisation"}, {"inflight_at_most": "inflight"}]},
        },
        "constants": {field.name: {"value": str(getattr(numbers, field.name))} for field in fields(numbers)},
        "properties": {"steady_utilisation": "F.7 utilisation", "steady_inflight": "F.7 inflight"},
        "lemmas": [
            lemma(
                "F.7 utilisation", "utilisation in steady state", STEADY, {"utilisation_at_least": "utilisation"}, "utilisation"
            ),
            lemma(
                "F.4", "beliefs converge, or shrink, or nothing is lost by it", ["true_beliefs", {"not": "converged"}], progress
            ),
            lemma(
                "F.6",
                "a large queue drains",
                ["true_beliefs", "converged", {"not": "queue_bounded"}],
                {"any": ["queue_bounded", {"queue_falls_by": "drain"}]},
                "drain",
            ),
            lemma("F.5", "a small queue stays small", STEADY, "queue_bounded", "queue_high"),
            lemma("F.7 loss", "nothing is lost in steady state", STEADY, {"lossy_steps_at_most": 0}),
            lemma("F.7 inflight", "bytes in flight in steady state", STEADY, {"inflight_at_most": "inflight"}, "inflight"),
            lemma("F.1 C_L", "a true C_L stays true", ["true_beliefs"], "C_L_true"),
            lemma("F.1 C_U", "a true C_U stays true", ["true_beliefs"], "C_U_true"),
        ],
    }


def claim_queries(program: Program, numbers: ClaimNumbers) -> list[tuple[str, list[Query]]]:
    """Return the queries of every claim in the order in which wrong programs fail: (lemma, its queries)."""
    sender = ProgramSmtSender(program)
    suite = validate(Suite, suite_data("program.json", program.name, numbers), program.name)
    loaded = LoadedSuite(suite, sender, FilePath("lemmas.yaml"))
    setting = suite_setting(loaded, SETTING, SAMPLES)
    values = constants_of(suite, SETTING)
    out = [(lemma.name, lemma_queries(loaded, lemma, setting, values)) for lemma in suite.lemmas]
    base = named_setting(SETTING, Setting(MODEL, BUFFER, SAMPLES), sender.largest_rate())
    return [*out, (INVARIANT, build_claim("invariant", base, sender, Thresholds()))]


def write_suite(folder: FilePath, program: Program, numbers: ClaimNumbers) -> FilePath:
    """Write the suite beside program.json, for ``ccenv verify lemmas``."""
    file = folder / "lemmas.yaml"
    file.write_text(yaml.safe_dump(suite_data("program.json", program.name, numbers), sort_keys=False), encoding="utf-8")
    return file
