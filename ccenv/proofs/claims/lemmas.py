"""Lemma suites: a transition system as YAML, each lemma one or more queries ([CCmatic] s.5.2, App. F).

A suite names states, constants and lemmas. A lemma says: from a premise on the state at sample 0 follows a conclusion at the end
of the trace or about all of it. Conclusions in a list are proved one by one, which solvers prefer to one conjunction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from ccenv.base.config import StrictModel, find_data, validate
from ccenv.base.errors import InputError, unknown_name
from ccenv.base.foreign import read_yaml, resolve_inside
from ccenv.proofs.claims.properties import (
    Property,
    bounds_of,
    cases_of,
    compile_formula,
    conjuncts_of,
    joined,
    names_in,
    read_number,
    text_of,
)
from ccenv.proofs.claims.verifier import Query, Verdict
from ccenv.proofs.formulas.encode import Needs, SmtSender
from ccenv.proofs.formulas.setting import SETTINGS, TIMEOUT_PRESETS, BeliefRules, Setting, named_setting
from ccenv.proofs.senders.catalog import smt_sender
from ccenv.proofs.solver.terms import all_of

SUITES = "ccenv.configs.verify"
Formula = Annotated[Any, BeforeValidator(joined)]


class Search(StrictModel):
    """How the best value of a constant is looked for.

    Attributes:
        best: whether a larger or a smaller number is the stronger claim.
        low: smallest value tried.
        high: largest value tried.
        precision: largest distance between the proved value and the refuted one.
    """

    best: Literal["largest", "smallest"]
    low: float
    high: float
    precision: float = Field(gt=0)


class Constant(StrictModel):
    """A number in lemmas.

    Attributes:
        value: what is used.
        paper: the paper's number.
        search: how to bisect it, if at all.
    """

    value: float | str | dict[str, float | str]
    paper: float | None = None
    search: Search | None = None


class Lemma(StrictModel):
    """One lemma; a file calls its premise ``if`` and its conclusion ``then``, as theorems do.

    Attributes:
        name: e.g. ``F.3``.
        text: one line.
        premise: formula on the state at sample 0 and on the trace.
        conclusion: formulas; each is a query of its own.
        given: earlier lemmas whose conclusions are assumed too; this one is verified only if they are.
        bound: the constant that is reported and bisected.
        timeout: whether beliefs may time out at the last sample.
        timeout_preset: other constants of the time-out than the suite's.
        expect: ``refuted`` for statements of the paper that do not hold here.
        settings: the settings in which the lemma is claimed; empty: in all.
        buffer: another buffer than the suite's.
        paper: the paper's number, if not that of the bound.
        note: premise or deviation in words.
    """

    name: str
    text: str
    premise: Formula = Field(alias="if")
    conclusion: list[Formula] = Field(alias="then", min_length=1)
    given: tuple[str, ...] = ()
    bound: str | None = None
    timeout: bool = True
    timeout_preset: str | None = None
    expect: Literal["verified", "refuted"] = "verified"
    settings: tuple[str, ...] = ()
    buffer: str | None = None
    paper: float | str | None = None
    note: str = ""

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, data: Any) -> Any:
        """Name the keys that replace those of before."""
        for older, key in (("premise", "if"), ("conclusion", "then")):
            if isinstance(data, dict) and older in data:
                raise ValueError(f"{older!r} is written {key!r}, as in theorems")
        return data


class AtLength(StrictModel):
    """What is different at one trace length: constants are tied to it, and some lemmas need longer traces.

    Attributes:
        values: constants that differ from the suite's, each a number or a mapping by setting.
        refuted: lemma -> settings in which it does not hold at this length.
    """

    values: dict[str, float | str | dict[str, float | str]] = Field(default_factory=dict)
    refuted: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class Suite(StrictModel):
    """A transition system with its lemmas.

    Attributes:
        name: of the suite.
        source: paper and section.
        sender: registered name or program file beside the suite.
        model: network model.
        buffer: buffer of all lemmas that name none.
        default_T: trace length if none is given.
        timeout_preset: constants of the belief time-out.
        settle: Rm at the start of each trace that utilisation does not count; traces are that much longer than T.
        lambda_extra_steps: how C_L_lambda reads delays off the grid.
        states: named formulas.
        constants: named numbers.
        at_T: trace length -> what differs there; the constants hold for the default length and, as far as tried, longer ones.
        properties: names under which ``ccenv verify steady NAME --property`` finds lemmas, with their best constant.
        lemmas: in order.
    """

    name: str
    source: str
    sender: str
    model: str
    buffer: str
    default_T: int = 10
    default_setting: str = "history"
    timeout_preset: str | None = None
    settle: int = Field(default=0, ge=0, le=8)
    lambda_extra_steps: int = 1
    states: dict[str, Formula] = Field(default_factory=dict)
    constants: dict[str, Constant] = Field(default_factory=dict)
    at_T: dict[int, AtLength] = Field(default_factory=dict)
    properties: dict[str, str] = Field(default_factory=dict)
    lemmas: list[Lemma]


@dataclass(frozen=True)
class LoadedSuite:
    """A suite with its sender."""

    suite: Suite
    sender: SmtSender
    file: FilePath


def load_suite(name: str) -> LoadedSuite:
    """Read a suite by the name of its sender or the path of a YAML file, and check every formula in it.

    Raises:
        UnknownNameError: if no such suite exists.
        InputError: for unknown keys, conditions or constants.
    """
    file = find_data(SUITES, name, ".yaml", "lemma suite")
    suite = validate(Suite, read_yaml(file), file.name)
    in_file = suite.sender.endswith(".json")
    sender = smt_sender(str(resolve_inside(file.parent, suite.sender, f"{file.name}: sender")) if in_file else suite.sender)
    loaded = LoadedSuite(suite, sender, file)
    _check_formulas(suite, file.name)
    for lemma in suite.lemmas:  # all of them, before one asks another for its bound
        if lemma.bound is not None and lemma.bound not in suite.constants:
            raise InputError(f"{file.name}: lemma {lemma.name}: {unknown_name('constant', lemma.bound, suite.constants)}")
    for lemma in suite.lemmas:
        check_given(loaded, lemma)
        lemma_queries(loaded, lemma, suite_setting(loaded, "sound", 3), constants_of(suite, "sound"))
    _check_lengths(suite, file.name)
    return loaded


def _check_formulas(suite: Suite, file: str) -> None:
    """Compile every formula, before anything takes one apart."""
    numbers = constants_of(suite, "sound")
    parts = [(name, formula) for name, formula in suite.states.items()]
    for lemma in suite.lemmas:
        parts += [(lemma.name, formula) for formula in (lemma.premise, *lemma.conclusion)]
    for name, formula in parts:
        compile_formula(formula, f"{file}: {name}", numbers, suite.states)


def _check_lengths(suite: Suite, file: str) -> None:
    lemmas = [lemma.name for lemma in suite.lemmas]
    for samples, special in suite.at_T.items():
        for kind, names, known in (("constant", special.values, list(suite.constants)), ("lemma", special.refuted, lemmas)):
            for name in names:
                if name not in known:
                    raise InputError(f"{file}: at_T.{samples}: {unknown_name(kind, name, known)}")


def given_lemmas(suite: Suite, lemma: Lemma) -> list[Lemma]:
    """Return the lemmas that a lemma rests on, directly."""
    by_name = {other.name: other for other in suite.lemmas}
    return [by_name[name] for name in lemma.given]


def check_given(loaded: LoadedSuite, lemma: Lemma) -> None:
    """Refuse a lemma that assumes what was not proved of its own traces.

    A given lemma stands earlier (no circles), its premise is a part of this one's, and both are about the same network without
    time-outs. Then premise => given and (premise and given) => conclusion make premise => conclusion.
    """
    suite, where = loaded.suite, f"{loaded.file.name}: {lemma.name}: given"
    earlier = [other.name for other in suite.lemmas[: suite.lemmas.index(lemma)]]
    for name in lemma.given:
        if name not in earlier:
            raise InputError(f"{where}: {unknown_name('earlier lemma', name, earlier)}")
    setting, numbers = suite_setting(loaded, "sound", 3), constants_of(suite, "sound")
    for other in given_lemmas(suite, lemma):
        if not conjuncts_of(other.premise, suite.states) <= conjuncts_of(lemma.premise, suite.states):
            raise InputError(f"{where}: the premise of {other.name!r} is no part of this lemma's")
        asked = {query.setting for x in (lemma, other) for query in lemma_queries(loaded, x, setting, numbers)}
        if (
            len(asked) > 1
            or next(iter(asked)).beliefs.timeout is not None
            or not set(lemma_settings(lemma)) <= set(lemma_settings(other))
        ):
            raise InputError(f"{where}: {other.name!r} is about another network, or beliefs may time out")
        if (
            lemma.bound is not None
            and suite.constants[lemma.bound].search is not None
            and uses_constant(loaded, other, lemma.bound)
        ):
            raise InputError(f"{where}: {other.name!r} depends on {lemma.bound!r}, which is searched here")


def lemma_settings(lemma: Lemma) -> tuple[str, ...]:
    """Return the settings in which a lemma is claimed."""
    return lemma.settings or SETTINGS


def suite_setting(loaded: LoadedSuite, name: str, samples: int) -> Setting:
    """Return the network setting of a suite under one of the named settings."""
    suite = loaded.suite
    preset = suite.timeout_preset
    if preset is not None and preset not in TIMEOUT_PRESETS:
        raise InputError(f"{loaded.file.name}: {unknown_name('timeout_preset', preset, TIMEOUT_PRESETS)}")
    timeout = None if preset is None else TIMEOUT_PRESETS[preset]
    rules = BeliefRules(lambda_extra_steps=suite.lambda_extra_steps, timeout=timeout)
    base = Setting(suite.model, suite.buffer, samples + suite.settle, beliefs=rules, settle_steps=suite.settle)
    return named_setting(name, base, loaded.sender.largest_rate())


def expected_of(suite: Suite, lemma: Lemma, setting: str, samples: int) -> Verdict:
    """Return the verdict that the suite states for a lemma at a trace length."""
    special = suite.at_T.get(samples, AtLength())
    return "refuted" if setting in special.refuted.get(lemma.name, ()) else lemma.expect


def constants_of(suite: Suite, setting: str, samples: int | None = None) -> dict[str, Fraction]:
    """Return the values of all constants.

    Args:
        suite: the suite.
        setting: one that depends on the setting is given as a mapping with ``default``.
        samples: T, where the suite gives other values for some trace lengths; None: the suite's own.
    """
    out = {}
    special = suite.at_T.get(suite.default_T if samples is None else samples, AtLength())
    for name, constant in suite.constants.items():
        value = special.values.get(name, constant.value)
        if isinstance(value, dict):
            if setting not in value and "default" not in value:
                raise InputError(f"{suite.name}: constant {name!r} has no value for setting {setting!r}")
            value = value.get(setting, value.get("default", 0))
        out[name] = read_number(value, f"{suite.name}.constants.{name}", {})
    return out


def lemma_queries(loaded: LoadedSuite, lemma: Lemma, setting: Setting, numbers: Mapping[str, Fraction]) -> list[Query]:
    """Return the queries of a lemma, one per conclusion.

    What a conclusion does not read is not encoded: without C_U and time-outs at the end, premises about C_U are dropped (they
    leave a value for C_U in every trace, so nothing is gained or lost), which is most of the speed.
    """
    states = loaded.suite.states
    queries = []
    cases = cases_of(lemma.premise, states)
    for number, part in enumerate(lemma.conclusion, start=1):
        for letter, case in zip("abcdefghijklmnopqrstuvwxyz", cases, strict=False):
            name = lemma.name
            if len(lemma.conclusion) > 1 or len(cases) > 1:
                name += f" ({number if len(lemma.conclusion) > 1 else ''}{letter if len(cases) > 1 else ''})"
            queries.append(_lemma_query(name, loaded, lemma, setting, numbers, case, part))
    return queries


def _lemma_query(
    name: str,
    loaded: LoadedSuite,
    lemma: Lemma,
    setting: Setting,
    numbers: Mapping[str, Fraction],
    case: Any,
    part: Any,
) -> Query:
    states = loaded.suite.states
    where = f"{loaded.file.name}: {lemma.name}"
    premise = compile_formula(case, where, numbers, states)
    conclusion = compile_formula(part, where, numbers, states)
    granted = [one for other in given_lemmas(loaded.suite, lemma) for one in other.conclusion]
    told = {"all": [case, *granted]} if granted else case
    assumed = compile_formula({"all": granted}, where, numbers, states)
    needed = bounds_of(part, states) | _negated_bounds(case, states) | bounds_of({"all": granted}, states)
    chosen = setting if lemma.timeout and bounds_of(part, states) & {"C_L", "C_U"} else setting.without_timeout()
    if lemma.timeout_preset is not None and chosen.beliefs.timeout is not None:
        chosen = replace(chosen, beliefs=replace(chosen.beliefs, timeout=TIMEOUT_PRESETS[lemma.timeout_preset]))
    if lemma.buffer is not None:
        chosen = replace(chosen, buffer=lemma.buffer)
    if not _obeys_its_rate(loaded, case):
        chosen = replace(chosen, sent_before_at_most=None)
    claim = Property(
        lemma.name,
        f"{text_of(told, numbers, states)} => {text_of(part, numbers, states)}",
        lambda v: conclusion(v, v.last),
        Needs(needed, probe_window=loaded.sender.needs(setting).probe_window),
        lambda v: all_of([premise(v, 0), assumed(v, v.last)]),
    )
    return Query(name, chosen, loaded.sender, claim)


def _obeys_its_rate(loaded: LoadedSuite, premise: Any) -> bool:
    """Return whether a premise says that what the sender's largest rate rests on is true: else it may have sent more before."""
    read = loaded.sender.needs(Setting(loaded.suite.model)).bounds & {"C_L", "C_L_lambda"}
    return {f'"{bound}_true"' for bound in read} <= conjuncts_of(premise, loaded.suite.states)


def uses_constant(loaded: LoadedSuite, lemma: Lemma, name: str) -> bool:
    """Return whether a lemma depends on a constant, directly or through a state."""
    seen = names_in(lemma.premise) | names_in(lemma.conclusion)
    while True:
        grown = seen | set().union(set(), *(names_in(loaded.suite.states[s]) for s in seen if s in loaded.suite.states))
        if grown == seen:
            return name in seen
        seen = grown


def _negated_bounds(premise: Any, states: Mapping[str, Any]) -> frozenset[str]:
    """Return the beliefs under a ``not`` or ``any`` of a premise: those premises must not be dropped."""
    if isinstance(premise, str):
        return _negated_bounds(states[premise], states) if premise in states else frozenset()
    ((key, value),) = premise.items()
    if key == "all":
        return frozenset().union(*(_negated_bounds(part, states) for part in value))
    return bounds_of(premise, states) if key in ("any", "not") else frozenset()
