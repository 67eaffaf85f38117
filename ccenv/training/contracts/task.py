"""What is widened, and what is asked of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.config import validate
from ccenv.training.contracts.boxes import Levels, most_inside, widened
from ccenv.training.distill.claims import SAMPLES, SETTING, ClaimNumbers, numbers_for, require_timeouts, suite_data
from ccenv.base.errors import InputError
from ccenv.agents.programs import Program
from ccenv.proofs.claims.lemma_run import lemmas_of
from ccenv.proofs.claims.lemmas import (LoadedSuite, Suite, constants_of, expected_of, lemma_queries, load_suite, suite_setting)
from ccenv.proofs.claims.verifier import Query
from ccenv.proofs.senders.program import ProgramSmtSender

CALL_S = 120.0
"""Limit of a solver call."""

LEFT_BY_TIMEOUT = Fraction(87, 100)
"""gamma_L over the utilisation, where beliefs time out: a link that holds up to D shows less in a period than was sent."""


@dataclass(frozen=True)
class Widening:
    """What to widen.

    Attributes:
        program: the point program, or a contract that is to become wider.
        utilisation: constant to keep.
        budget_s: of wall time.
        lemmas: a suite whose other constants and lemmas are kept, as data; None: those of :mod:`ccenv.training.distill.claims`, with
            gamma_L one per cent above the utilisation.
        settle: Rm at the start of each trace that utilisation does not count.
        samples: T.
        call_s: limit of a solver call.
        seed: of the solver.
        inside: a contract that the widened one stays inside, such as the hull of a query's solutions; None: any.
        timeouts: preset of the belief time-outs that the lemmas are to hold with; None: beliefs do not time out. Of own lemmas
            the suite says it.
    """

    program: Program
    utilisation: float
    budget_s: float
    lemmas: dict[str, Any] | None = None
    settle: int = 0
    samples: int = SAMPLES
    call_s: float = CALL_S
    seed: int = 0
    inside: Program | None = None
    timeouts: str | None = None

    def __post_init__(self) -> None:
        """Refuse a bound that is none, a budget that nothing can be done in, and a program outside what it is to stay inside."""
        if not 0 < self.utilisation < 1:
            raise InputError(f"utilisation is {self.utilisation:g}; it must be between 0 and 1")
        if not self.budget_s > 0:
            raise InputError(f"budget is {self.budget_s:g} s; it must be above 0")
        require_timeouts(self.timeouts)
        if self.timeouts is not None and self.lemmas is not None:
            raise InputError("a suite of lemmas says itself whether beliefs time out; leave the preset of time-outs away")
        most_inside(self.program, self.inside)

    def suite(self, name: str, program_file: str) -> dict[str, Any]:
        """Return the lemmas whose constants are kept, as data for a YAML file beside the contract."""
        numbers = numbers_for(self.utilisation)
        if self.lemmas is not None:
            constants = self.lemmas["constants"] | {"utilisation": {"value": str(numbers.utilisation)}}
            return self.lemmas | {"name": name, "sender": program_file, "settle": self.settle, "constants": constants}
        if self.timeouts is not None:
            numbers = _with_timeouts(numbers)
        data = suite_data(program_file, name, numbers, self.timeouts, self.settle)
        timing = "without" if self.timeouts is None else "with"
        return data | {"source": f"the lemmas of [CCmatic] App. F for a contract, {timing} belief time-outs"}

    @property
    def rule_of_timeouts(self) -> str | None:
        """Return the preset of the time-outs that the lemmas hold with, the suite's where there is one."""
        preset: str | None = self.timeouts if self.lemmas is None else self.lemmas.get("timeout_preset")
        return preset

    def queries(self, levels: Levels) -> dict[str, Query]:
        """Return the queries about the contract of a vector of levels, by name: of all lemmas that the suite says hold."""
        contract = widened(self.program, levels, f"{self.program.name}.contract")
        suite = validate(Suite, self.suite(contract.name, "contract.json"), contract.name)
        loaded = LoadedSuite(suite, ProgramSmtSender(contract), FilePath("lemmas.yaml"))
        setting, values = suite_setting(loaded, SETTING, self.samples), constants_of(suite, SETTING)
        kept = [lemma for lemma in lemmas_of(loaded, SETTING) if expected_of(suite, lemma, SETTING, self.samples) == "verified"]
        asked = [query for lemma in kept for query in lemma_queries(loaded, lemma, setting, values)]
        return {query.name: query for query in asked}


def _with_timeouts(numbers: ClaimNumbers) -> ClaimNumbers:
    """Return constants with the gamma_L that time-outs leave, in hundredths."""
    return replace(numbers, C_L_low=round(LEFT_BY_TIMEOUT * numbers.utilisation, 2))


def suite_to_keep(name: str) -> dict[str, Any]:
    """Return the data of a suite for :class:`Widening`.

    Raises:
        UnknownNameError: if no such suite exists.
        InputError: for a damaged suite, or one without a constant ``utilisation``.
    """
    data: dict[str, Any] = load_suite(name).suite.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if "utilisation" not in data.get("constants", {}):
        raise InputError(f"suite {name!r} has no constant 'utilisation', which a widening keeps")
    return {"settle": 0, "default_T": SAMPLES} | data
