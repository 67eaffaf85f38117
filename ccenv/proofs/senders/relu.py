"""Small ReLU policies for the solver, with exact weights, inputs in one unit and biases in MSS/Rm.

Such a net over rates (C_L, C_U, C_L_lambda, the last rate, MSS/Rm) is positively homogeneous: twice the rates, twice the output.
The output is the sending rate, at least MSS/Rm. Sizes up to about [8] at T = 5 or [16] at T = 4 are practical; larger ones end in
``unknown``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import InputError, unknown_name
from ccenv.base.files import Format
from ccenv.base.foreign import parse_fraction
from ccenv.proofs.formulas.encode import Needs, Variables
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import DecideStep, Decision, Run, number
from ccenv.proofs.senders.window import RateSender, require_oracle
from ccenv.proofs.solver.terms import Formula, Term, larger

FORMAT = Format("ccenv-relu", 1, "a ReLU policy")
RATE_INPUTS = ("C_L", "C_U", "C_L_lambda", "rate", "MSS/Rm")
MAX_UNITS = 64

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class ReluPolicy:
    """A ReLU net over rates."""

    name: str
    inputs: tuple[str, ...]  # names among RATE_INPUTS
    # weights, one matrix (n_out rows of n_in) per layer; ReLU between them, the last one linear with one output
    layers: tuple[Matrix, ...]
    biases: tuple[tuple[Fraction, ...], ...] = ()  # one vector (n_out) per layer, in MSS/Rm; empty: none

    def __post_init__(self) -> None:
        for name in self.inputs:
            if name not in RATE_INPUTS:
                raise unknown_name("input of a ReLU policy", name, RATE_INPUTS)
        width = len(self.inputs)
        for depth, layer in enumerate(self.layers):
            if not layer or len(layer) > MAX_UNITS or any(len(row) != width for row in layer):
                raise InputError(f"{self.name}: layer {depth} needs 1 to {MAX_UNITS} rows of {width} weights")
            width = len(layer)
        if self.biases and [len(row) for row in self.biases] != [len(layer) for layer in self.layers]:
            raise InputError(f"{self.name}: biases need one number per row of each layer")
        if not self.layers or width != 1:
            raise InputError(f"{self.name}: the last layer needs one output, not {width}")

    def sums(self, depth: int, values: list[Any], mss_rate: Any) -> list[Any]:
        """Return the pre-activations of a layer, for terms or numbers; mss_rate is MSS/Rm."""
        biases = self.biases[depth] if self.biases else (Fraction(0),) * len(self.layers[depth])
        rows = zip(self.layers[depth], biases, strict=True)
        return [_dot(row, values) + bias * mss_rate if bias else _dot(row, values) for row, bias in rows]

    def output(self, values: list[Any], mss_rate: Any) -> Any:
        for depth in range(len(self.layers) - 1):
            values = [larger(0, total) for total in self.sums(depth, values, mss_rate)]
        return self.sums(len(self.layers) - 1, values, mss_rate)[0]


@dataclass(frozen=True)
class ReluSender(RateSender):
    """A ReLU policy as a sender for the solver."""

    policy: ReluPolicy

    @property
    def name(self) -> str:
        return self.policy.name

    def needs(self, setting: Setting) -> Needs:
        require_oracle(setting, self.name)
        return Needs(frozenset(set(self.policy.inputs) & {"C_L", "C_U", "C_L_lambda"}))

    def declare(self, view: View, make: Variables) -> None:
        """Declare the rate and one variable per hidden unit and step (shared terms need names)."""
        super().declare(view, make)
        for depth, layer in enumerate(self.policy.layers[:-1]):
            for unit in range(len(layer)):
                view.extra[f"hidden_{depth}_{unit}"] = make.series(f"hidden_{depth}_{unit}", view.setting.samples)

    def sends(self, view: View) -> Iterator[Formula]:
        yield view.rate[0] >= view.alpha
        for t in range(1, view.setting.samples):
            values: list[Term] = [_read(view, name, t - 1) for name in self.policy.inputs]
            for depth, layer in enumerate(self.policy.layers[:-1]):
                hidden = [view.extra[f"hidden_{depth}_{unit}"][t] for unit in range(len(layer))]
                for unit, total in zip(hidden, self.policy.sums(depth, values, view.alpha), strict=True):
                    yield unit == larger(0, total)
                values = hidden
            last = len(self.policy.layers) - 1
            yield view.rate[t] == larger(view.alpha, self.policy.sums(last, values, view.alpha)[0])
            yield view.sent[t] == view.rate[t]

    def decider(self) -> DecideStep:
        """Return the exact step."""

        def step(run: Run, t: int, state: dict[str, Any]) -> Decision:
            scalars = {"rate": run.rate[t - 1], "MSS/Rm": run.alpha}
            values = [scalars[name] if name in scalars else run.beliefs[name][t - 1] for name in self.policy.inputs]
            rate = max(number(run.values, "alpha"), Fraction(self.policy.output(values, run.alpha)))
            return Decision(rate, rate, state)

        return step


def load_relu(file: FilePath) -> ReluSender:
    """Read a policy: a JSON object with format ``ccenv-relu``, version 1, name, inputs, layers as nested lists, biases if any.

    Numbers are integers or texts such as "1/2" or "0.25", so that they are exact. Raises InputError for any other file.
    """
    data = FORMAT.read(file)
    try:
        layers = tuple(tuple(tuple(_weight(w) for w in row) for row in layer) for layer in data["layers"])
        biases = tuple(tuple(_weight(b) for b in row) for row in data.get("biases", []))
        return ReluSender(ReluPolicy(str(data["name"]), tuple(data["inputs"]), layers, biases))
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise InputError(f"{file.name}: damaged ({type(error).__name__}: {error})") from None


def _weight(value: Any) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"weight {value!r} is neither an integer nor a text")
    return parse_fraction(value, "weight")


def _dot(row: tuple[Fraction, ...], values: list[Any]) -> Any:
    return sum((w * x for w, x in zip(row, values, strict=True) if w != 0), start=Fraction(0))


def _read(view: View, name: str, t: int) -> Term:
    if name == "MSS/Rm":
        return view.alpha
    return getattr(view, name)[t]
