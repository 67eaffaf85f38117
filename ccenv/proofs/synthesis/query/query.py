"""Synthesis queries in YAML: network, objectives, template and limits, with checked types and units."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Literal

from pydantic import Field, model_validator

from ccenv.agents.programs import UNIT_OF
from ccenv.base.config import StrictModel, find_data, validate
from ccenv.base.errors import InputError
from ccenv.base.foreign import read_yaml
from ccenv.proofs.formulas.setting import TIMEOUT_PRESETS, BeliefRules, Setting
from ccenv.proofs.synthesis.query.classes import (
    CONDITION_FIELDS,
    LARGEST_SPACE,
    LARGEST_SUM,
    LINK,
    MOST_SAMPLES,
    PAST,
    RATE_FIELDS,
    check_four,
    count_classes,
)
from ccenv.proofs.synthesis.query.objectives import Bytes, Number, Objectives
from ccenv.proofs.synthesis.query.template import Space, Template, build_space

PACKAGE = "ccenv.configs.synth"

MOST_SECONDS = 1e6
"""Largest limit, since solvers count milliseconds in 32 bits."""

LARGEST_BUFFER = 1000
"""Of a buffer given as a number, in C*Rm."""

Choices = dict[str, list[Number]]


class NetworkSpec(StrictModel):
    """The network model.

    Attributes:
        model: ideal, cbr_delay or ccac.
        buffer: infinite, small (C*D/2), large (at least 3C(Rm+D)), arbitrary, or a number of C*Rm.
        delay_rule: sound, or artefact: the published rule, which excludes legal traces.
        sent_before: most bytes sent in each of the three steps before the trace, or null for any.
    """

    model: Literal["ideal", "cbr_delay", "ccac"] = "ccac"
    buffer: Literal["infinite", "small", "large", "arbitrary"] | Number = "infinite"
    delay_rule: Literal["sound", "artefact"] = "sound"
    sent_before: Bytes | None = None


class BeliefSpec(StrictModel):
    """How beliefs are computed.

    Attributes:
        timeouts: none; paper or artefact: bounds may time out at the last sample ([CCmatic] s.5.1.2).
        start: consistent, or any: bounds may be wrong at the start, and must become consistent.
        lambda_delay: in windows of C_L_lambda a late first byte counts until another byte arrives (kept), or only in the step
            that delivers it (seen: the published code).
        windows: paper: those of [CCmatic] s.5.1.1; exact: C_U by all windows in which no token can have been wasted;
            tighter: these, and C_L and C_U also by bytes sent and lost (docs/engine.md).
    """

    timeouts: Literal["none", "paper", "artefact"] = "none"
    start: Literal["consistent", "any"] = "consistent"
    lambda_delay: Literal["kept", "seen"] = "kept"
    windows: Literal["paper", "exact", "tighter"] = "paper"


class TemplateSpec(StrictModel):
    """The programs: number of rates, and coefficient choices."""

    rates: int = Field(ge=1, le=4)
    rate: Choices
    conditions: list[Choices] = Field(default_factory=list)


class LimitSpec(StrictModel):
    """Limits.

    Attributes:
        call_s: seconds per solver call, after which the answer is unknown.
        budget_s: CPU seconds for the whole run, after which candidates are unknown.
        classes: most classes that may be listed; of four rates, most programs that may survive simulation.
    """

    call_s: float = Field(default=120.0, gt=0, le=MOST_SECONDS)
    budget_s: float = Field(default=3600.0, gt=0, le=MOST_SECONDS)
    classes: int = Field(default=LARGEST_SPACE, ge=1, le=LARGEST_SPACE)


class Query(StrictModel):
    """One synthesis query.

    Attributes:
        title: one line.
        source: paper and row.
        flows: 1, or 2 flows of the same program on one link ([Starvation] App. C).
        T: samples of a trace, one Rm apart.
        template: the search space.
        seed: of repertoire and solver.
        paper_keys: the paper's count, for the report.
    """

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")
    title: str
    source: str = ""
    network: NetworkSpec = NetworkSpec()
    flows: int = Field(default=1, ge=1, le=2)
    T: int = Field(ge=3, le=MOST_SAMPLES)
    beliefs: BeliefSpec = BeliefSpec()
    template: TemplateSpec
    objectives: Objectives = Objectives()
    limits: LimitSpec = LimitSpec()
    seed: int = Field(default=0, ge=0)
    paper_keys: str = ""

    @model_validator(mode="after")
    def _check(self) -> Query:
        if self.network.buffer == "infinite":
            o = self.objectives
            if o.large_loss is not None or o.lossy_steps is not None or o.loss is not None or o.transient != "none":
                raise ValueError("objectives on losses need a finite buffer; network.buffer is infinite")
        if self.objectives.transient != "none" and self.objectives.large_loss is None:
            raise ValueError("objectives.transient needs objectives.large_loss, e.g. '3 MSS'")
        if self.objectives.transient_buffer is not None and self.objectives.transient == "none":
            raise ValueError("objectives.transient_buffer needs objectives.transient, e.g. falls")
        if self.beliefs.windows != "paper" and (self.flows == 2 or self.beliefs.timeouts != "none"):
            raise ValueError(
                f"beliefs.windows {self.beliefs.windows} is for one flow whose beliefs do not time out; it must be paper here"
            )
        if self.beliefs.start == "any" and self.beliefs.timeouts == "none":
            raise ValueError("beliefs.start any needs beliefs.timeouts: without time-outs wrong bounds never become right")
        used = {name for group in (self.template.rate, *self.template.conditions) for name in group}
        if self.beliefs.timeouts != "none" and used & {"C_L_lambda", "q_U/Rm"}:
            raise ValueError("belief time-outs are those of C_L and C_U; templates with C_L_lambda or q_U have none")
        if self.network.sent_before is not None and self.network.delay_rule != "sound":
            raise ValueError("network.sent_before needs network.delay_rule sound: the published rule knows no past")
        buffer = self.network.buffer
        if isinstance(buffer, Fraction) and not (0 < buffer <= LARGEST_BUFFER and (buffer * LINK).denominator == 1):
            raise ValueError(
                f"network.buffer is {buffer} C*Rm; it must be above 0, at most {LARGEST_BUFFER}, and a multiple of 1/{LINK}"
            )
        return self

    @model_validator(mode="after")
    def _check_flows(self) -> Query:
        if (self.objectives.fairness is not None) != (self.flows == 2):
            raise ValueError("two flows need objectives.fairness, e.g. 2, and one flow has none")
        if self.flows == 1 and any("rate" in group for group in (self.template.rate, *self.template.conditions)):
            raise ValueError("input 'rate' is for queries about two flows: beliefs are all that programs of one flow remember")
        return self

    def setting(self) -> Setting:
        timeout = None if self.beliefs.timeouts == "none" else TIMEOUT_PRESETS[self.beliefs.timeouts]
        past = self.network.sent_before
        jitter = 0 if self.network.model == "ideal" else 1
        before = None if past is None else (past.bdp * (1 + jitter) + past.rtt, past.mss)
        return Setting(
            self.network.model,
            self.network.buffer,
            self.T,
            self.network.delay_rule,
            before,
            BeliefRules(
                upper="paper" if self.beliefs.windows == "paper" else "exact",
                lambda_delay=self.beliefs.lambda_delay,
                timeout=timeout,
                tighter=self.beliefs.windows == "tighter",
            ),
        )

    def space(self) -> Space:
        """Return the template's lists and classes. Raises InputError for coefficients beyond the simulator's integers."""
        spec = self.template
        template = Template(
            spec.rates,
            {name: tuple(values) for name, values in spec.rate.items()},
            tuple({name: tuple(values) for name, values in group.items()} for group in spec.conditions),
        )
        for where, group in [("rate", spec.rate), *(("conditions", group) for group in spec.conditions)]:
            for name, values in group.items():
                if any((2 * value).denominator != 1 for value in values):
                    raise InputError(f"template.{where}.{name}: coefficients are multiples of 1/2, got {_list_values(values)}")
                if len(set(values)) != len(values):
                    raise InputError(f"template.{where}.{name}: a coefficient is given twice: {_list_values(values)}")
                self._check_searched(where, name)
            if sum(max(map(abs, values), default=Fraction(0)) for values in group.values()) > LARGEST_SUM:
                raise InputError(f"template.{where}: the largest coefficients of a group sum up to at most {LARGEST_SUM}")
        for group in spec.conditions:
            steps = [value for value in group.get("qdel_L", []) if value]
            # With a known past one more sample bounds the delay of the oldest byte.
            most = PAST - 2 - (self.network.sent_before is not None)
            if self.network.delay_rule == "artefact":
                most = min(most, self.T - 1 - self.setting().jitter_steps)
            if any(abs(value / step) > most for value in group.get("Rm", []) for step in steps):
                raise InputError(
                    f"template.conditions: delays are told apart up to {most} Rm, got qdel_L {_list_values(steps)} with Rm"
                    f" {_list_values(group['Rm'])}"
                )
        return build_space(template, self.largest_delay, ordered=self.beliefs.start == "consistent")

    @property
    def largest_delay(self) -> int:
        """Largest qdel_L in Rm that a trace can show; by the sound rule bytes may be as old as the known past."""
        return self.T if self.network.delay_rule == "artefact" else self.T + PAST

    def _check_searched(self, where: str, name: str) -> None:
        fields = RATE_FIELDS if where == "rate" else CONDITION_FIELDS
        if self.flows == 1 and name in UNIT_OF and name not in fields:
            raise InputError(f"template.{where}: {name} is not searched over; {', '.join(sorted(fields))} are")

    def check_size(self, space: Space) -> None:
        """Raise InputError, before any work, for a template with too many classes."""
        if self.template.rates == 4:
            check_four(space, self.name)
            return
        classes = count_classes(space)
        if classes > self.limits.classes:
            raise InputError(
                f"query {self.name!r}: {space.template.size():.3g} candidates in up to {classes:.3g} classes, limits.classes is"
                f" {self.limits.classes}; fewer rates, conditions ({len(space.condition_of)}) or coefficients would shrink it"
            )

    def fingerprint(self) -> str:
        """Return a hash of everything that the answer depends on (limits excepted)."""
        data = self.model_dump(mode="python", exclude={"name", "title", "source", "limits", "paper_keys"})
        return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _list_values(values: list[Fraction]) -> str:
    return ", ".join(str(value) for value in values)


def load_query(name: str) -> Query:
    """Read a shipped query by name, or a file by path.

    Raises UnknownNameError if there is neither; InputError for a field that is missing, unknown or of the wrong unit.
    """
    file: FilePath = find_data(PACKAGE, name, ".yaml", "query")
    return validate(Query, read_yaml(file), str(file.name))
