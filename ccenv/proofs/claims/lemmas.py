"""Lemma sets: a transition system as YAML, each lemma one or more queries ([CCmatic] s.5.2, App. F).

A set defines states, constants and lemmas. In a lemma a premise on the state at sample 0 implies a conclusion at the end of the
trace or about all of it. Conclusions in a list are proved one by one, which is faster than their conjunction.
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
    collect_bounds,
    collect_names,
    compile_formula,
    describe_formula,
    expand_lists,
    read_number,
    split_cases,
    split_conjuncts,
)
from ccenv.proofs.claims.verifier import Query, Verdict
from ccenv.proofs.formulas.encode import Needs, SmtSender
from ccenv.proofs.formulas.setting import SETTINGS, TIMEOUT_PRESETS, BeliefRules, Setting, named_setting
from ccenv.proofs.senders.catalog import smt_sender
from ccenv.proofs.solver.terms import all_of

SUITES = "ccenv.configs.verify"
Formula = Annotated[Any, BeforeValidator(expand_lists)]


class Search(StrictModel):
    """Bisection for the best value of a constant, between ``low`` and ``high``.

    Attributes:
        best: whether a larger or a smaller number is the stronger claim.
        precision: largest distance between the proved value and the refuted one.
    """

    best: Literal["largest", "smallest"]
    low: float
    high: float
    precision: float = Field(gt=0)


class Constant(StrictModel):
    """A number in lemmas, with the paper's value and the search for the best one, if any."""

    value: float | str | dict[str, float | str]
    paper: float | None = None
    search: Search | None = None


class Lemma(StrictModel):
    """One lemma; files write its premise as ``if`` and its conclusion as ``then``, as in theorems.

    Attributes:
        name: e.g. ``F.3``.
        premise: formula on the state at sample 0 and on the trace.
        conclusion: formulas, one query each.
        given: earlier lemmas whose conclusions are assumed too; this one is verified only if they are.
        bound: the constant that is reported and bisected.
        timeout: whether beliefs may time out at the last sample.
        timeout_preset: constants of the time-out that replace the set's, as ``buffer`` replaces its buffer.
        expect: ``refuted`` for statements of the paper that do not hold here.
        settings: the settings in which the lemma is claimed; empty: in all.
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
    def _refuse_old_keys(cls, data: Any) -> Any:
        """Refuse the former keys with their replacements."""
        for older, key in (("premise", "if"), ("conclusion", "then")):
            if isinstance(data, dict) and older in data:
                raise ValueError(f"{older!r} is written {key!r}, as in theorems")
        return data


class AtLength(StrictModel):
    """Differences at one trace length, which constants depend on and which is too short for some lemmas.

    Attributes:
        values: constants that differ from the set's, each a number or a mapping by setting.
        refuted: lemma -> settings in which it does not hold at this length.
    """

    values: dict[str, float | str | dict[str, float | str]] = Field(default_factory=dict)
    refuted: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class Suite(StrictModel):
    """A transition system with its lemmas.

    Attributes:
        source: paper and section.
        sender: registered name, or program file beside this one.
        buffer: of all lemmas without their own.
        timeout_preset: constants of the belief time-out.
        settle: Rm at the start of each trace that utilisation does not count; traces are that much longer than T.
        lambda_extra_steps: how C_L_lambda reads delays off the grid.
        states: named formulas.
        at_T: trace length -> differences; the constants hold for the default length and, as far as tried, longer ones.
        properties: names under which ``ccenv verify property NAME --property`` finds lemmas, with their best constant.
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
    """A lemma set with its sender."""

    suite: Suite
    sender: SmtSender
    file: FilePath


def load_suite(name: str) -> LoadedSuite:
    """Read a lemma set by the name of its sender or the path of a YAML file, and check its formulas.

    Raises UnknownNameError if no such set exists; InputError for unknown keys, conditions or constants.
    """
    file = find_data(SUITES, name, ".yaml", "lemma suite")
    suite = validate(Suite, read_yaml(file), file.name)
    in_file = suite.sender.endswith(".json")
    sender = smt_sender(str(resolve_inside(file.parent, suite.sender, f"{file.name}: sender")) if in_file else suite.sender)
    loaded = LoadedSuite(suite, sender, file)
    _check_formulas(suite, file.name)
    for lemma in suite.lemmas:  # all of them, before one reads another's bound
        if lemma.bound is not None and lemma.bound not in suite.constants:
            raise InputError(f"{file.name}: lemma {lemma.name}: {unknown_name('constant', lemma.bound, suite.constants)}")
    for lemma in suite.lemmas:
        check_given(loaded, lemma)
        lemma_queries(loaded, lemma, suite_setting(loaded, "sound", 3), constants_of(suite, "sound"))
    _check_lengths(suite, file.name)
    return loaded


def _check_formulas(suite: Suite, file: str) -> None:
    """Compile every formula, before any is split."""
    numbers = constants_of(suite, "sound")
    parts = [(name, formula) for name, formula in suite.states.items()]
    for lemma in suite.lemmas:
        parts += [(lemma.name, formula) for formula in (lemma.premise, *lemma.conclusion)]
    for name, formula in parts:
        compile_formula(formula, f"{file}: {name}", numbers, suite.states)


def _check_lengths(suite: Suite, file: str) -> None:
    lemmas = [lemma.name for lemma in suite.lemmas]
    for samples, special in suite.at_T.items():
        for noun, names, defined in (("constant", special.values, list(suite.constants)), ("lemma", special.refuted, lemmas)):
            for name in names:
                if name not in defined:
                    raise InputError(f"{file}: at_T.{samples}: {unknown_name(noun, name, defined)}")


def find_given(suite: Suite, lemma: Lemma) -> list[Lemma]:
    """Return the lemmas that a lemma assumes directly."""
    by_name = {other.name: other for other in suite.lemmas}
    return [by_name[name] for name in lemma.given]


def check_given(loaded: LoadedSuite, lemma: Lemma) -> None:
    """Refuse a lemma that assumes what was not proved of its own traces.

    A given lemma comes earlier (no circles), its premise is a part of this one's, and both are about the same network without
    time-outs. Then premise => given and (premise and given) => conclusion imply premise => conclusion.
    """
    suite, where = loaded.suite, f"{loaded.file.name}: {lemma.name}: given"
    earlier = [other.name for other in suite.lemmas[: suite.lemmas.index(lemma)]]
    for name in lemma.given:
        if name not in earlier:
            raise InputError(f"{where}: {unknown_name('earlier lemma', name, earlier)}")
    setting, numbers = suite_setting(loaded, "sound", 3), constants_of(suite, "sound")
    for other in find_given(suite, lemma):
        if not split_conjuncts(other.premise, suite.states) <= split_conjuncts(lemma.premise, suite.states):
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
    """Return the network setting of a lemma set under one of the named settings."""
    suite = loaded.suite
    preset = suite.timeout_preset
    if preset is not None and preset not in TIMEOUT_PRESETS:
        raise InputError(f"{loaded.file.name}: {unknown_name('timeout_preset', preset, TIMEOUT_PRESETS)}")
    timeout = None if preset is None else TIMEOUT_PRESETS[preset]
    rules = BeliefRules(lambda_extra_steps=suite.lambda_extra_steps, timeout=timeout)
    base = Setting(suite.model, suite.buffer, samples + suite.settle, beliefs=rules, settle_steps=suite.settle)
    return named_setting(name, base, loaded.sender.largest_rate())


def expected_of(suite: Suite, lemma: Lemma, setting: str, samples: int) -> Verdict:
    """Return the expected verdict of a lemma at a trace length."""
    special = suite.at_T.get(samples, AtLength())
    return "refuted" if setting in special.refuted.get(lemma.name, ()) else lemma.expect


def constants_of(suite: Suite, setting: str, samples: int | None = None) -> dict[str, Fraction]:
    """Return the values of all constants in a setting, at T samples (None: the set's default).

    A constant that depends on the setting is a mapping with ``default``.
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
    """Return the queries of a lemma, one per conclusion and case of the premise.

    Beliefs that a conclusion does not read are not encoded: without C_U and time-outs at the end, premises about C_U are dropped
    (they allow a value for C_U in every trace, so the claim is unchanged), which gives most of the speed.
    """
    states = loaded.suite.states
    queries = []
    cases = split_cases(lemma.premise, states)
    for number, part in enumerate(lemma.conclusion, start=1):
        for letter, case in zip("abcdefghijklmnopqrstuvwxyz", cases, strict=False):
            name = lemma.name
            if len(lemma.conclusion) > 1 or len(cases) > 1:
                name += f" ({number if len(lemma.conclusion) > 1 else ''}{letter if len(cases) > 1 else ''})"
            queries.append(_lemma_query(name, loaded, lemma, setting, numbers, case, part))
    return queries


def _lemma_query(
    name: str, loaded: LoadedSuite, lemma: Lemma, setting: Setting, numbers: Mapping[str, Fraction], case: Any, part: Any
) -> Query:
    states = loaded.suite.states
    where = f"{loaded.file.name}: {lemma.name}"
    premise = compile_formula(case, where, numbers, states)
    conclusion = compile_formula(part, where, numbers, states)
    granted = [one for other in find_given(loaded.suite, lemma) for one in other.conclusion]
    assumptions = {"all": [case, *granted]} if granted else case
    assumed = compile_formula({"all": granted}, where, numbers, states)
    needed = collect_bounds(part, states) | _negated_bounds(case, states) | collect_bounds({"all": granted}, states)
    chosen = setting if lemma.timeout and collect_bounds(part, states) & {"C_L", "C_U"} else setting.without_timeout()
    if lemma.timeout_preset is not None and chosen.beliefs.timeout is not None:
        chosen = replace(chosen, beliefs=replace(chosen.beliefs, timeout=TIMEOUT_PRESETS[lemma.timeout_preset]))
    if lemma.buffer is not None:
        chosen = replace(chosen, buffer=lemma.buffer)
    if not _obeys_its_rate(loaded, case):
        chosen = replace(chosen, sent_before_at_most=None)
    claim = Property(
        lemma.name,
        f"{describe_formula(assumptions, numbers, states)} => {describe_formula(part, numbers, states)}",
        lambda v: conclusion(v, v.last),
        Needs(needed, probe_window=loaded.sender.needs(setting).probe_window),
        lambda v: all_of([premise(v, 0), assumed(v, v.last)]),
    )
    return Query(name, chosen, loaded.sender, claim)


def _obeys_its_rate(loaded: LoadedSuite, premise: Any) -> bool:
    """Return whether a premise makes the beliefs true that bound the sender's rate: else it may have sent more before."""
    read = loaded.sender.needs(Setting(loaded.suite.model)).bounds & {"C_L", "C_L_lambda"}
    return {f'"{bound}_true"' for bound in read} <= split_conjuncts(premise, loaded.suite.states)


def uses_constant(loaded: LoadedSuite, lemma: Lemma, name: str) -> bool:
    """Return whether a lemma depends on a constant, directly or through a state."""
    seen = collect_names(lemma.premise) | collect_names(lemma.conclusion)
    while True:
        grown = seen | set().union(set(), *(collect_names(loaded.suite.states[s]) for s in seen if s in loaded.suite.states))
        if grown == seen:
            return name in seen
        seen = grown


def _negated_bounds(premise: Any, states: Mapping[str, Any]) -> frozenset[str]:
    """Return the beliefs under a ``not`` or ``any`` of a premise, which must not be dropped."""
    if isinstance(premise, str):
        return _negated_bounds(states[premise], states) if premise in states else frozenset()
    ((key, value),) = premise.items()
    if key == "all":
        return frozenset().union(*(_negated_bounds(part, states) for part in value))
    return collect_bounds(premise, states) if key in ("any", "not") else frozenset()
