"""Theorems whose truth is known without a solver: 50 true and 50 false claims about senders at a*C_L, each with its reason.

Units: C = Rm = D = 1; traces of n = 4 Rm. The sender sends a*C_L (or MSS/Rm, below 1/5), C_L is true and never falls.

- Utilisation f, from C_L >= c: true up to a*c - 1/n. After the last step that wasted tokens, t, G(n) >= E(t) + n - t; at least
  a*c*t were sent by then, and E(0) >= G(0) - 1. False above a*c: with C_L = c the sender may send, and the link deliver,
  a*c per Rm for ever, and no window says more than C_L >= a*c*t/(t+1).
- Loss l per Rm, a buffer of 1: true from a - 1 on, since a step with loss wastes no token. False below:
  C_L = 1 and a full buffer.
- Inflight, a < 1: a queue above r falls by n(1 - a) or to r; at r or below it stays, and at most 1 more is undelivered. False
  below a: with C_L = 1 every byte may be held for D.
"""

from dataclasses import dataclass
from fractions import Fraction as F
from typing import Any

from ccenv.agents.programs import parse_program
from ccenv.proofs.certificates.theorem import Theorem
from ccenv.proofs.theorems.theorem import LoadedTheorem, read_theorem

RTTS = 4


@dataclass(frozen=True)
class Planted:
    name: str
    true: bool
    loaded: LoadedTheorem


def _theorem(name: str, a: F, buffer: str, start: str, lemmas: list[dict[str, Any]], claims: dict[str, Any]) -> LoadedTheorem:
    rule = {"rate": {"C_L": str(a)}}
    program = {"format": "ccenv-program", "version": 1, "name": "planted", "source": "a test", "rule": rule}
    always = [
        {"name": "true", "text": "C_L stays true", "if": "known", "then": ["C_L' <= 1"]},
        {"name": "grows", "text": "C_L never falls", "if": "known", "then": ["C_L' >= C_L"]},
    ]
    name = name.replace(" ", "-").replace("/", "_")
    data: dict[str, Any] = {"name": name, "source": "a test", "sender": "planted", "model": "ccac", "buffer": buffer}
    data |= {"T": RTTS + 1, "past": "history", "states": {"known": ["C_L <= 1", start]}, "start": "known", "invariant": "known"}
    data |= {"lemmas": always + lemmas, "claims": claims}
    return read_theorem(Theorem.model_validate(data), parse_program(program), name)


def _utilisation(a: F, c: F, f: F) -> LoadedTheorem:
    uses = {"name": "uses", "text": "the link is used", "if": "known", "then": [f"served >= {f} * rtts"]}
    return _theorem(f"utilisation {a} {c} {f}", a, "infinite", f"C_L >= {c}", [uses], {"utilisation": {"bound": str(f)}})


def _loss(a: F, most: F) -> LoadedTheorem:
    loses = {"name": "loses", "text": "a step loses little", "if": "known", "then": [f"peak_loss <= {most}"]}
    return _theorem(f"loss {a} {most}", a, "1", "C_L >= MSS", [loses], {"loss_per_rtt": {"bound": str(most)}})


def _inflight(a: F, rest: F, most: F) -> LoadedTheorem:
    step = RTTS * (1 - a)
    lemmas = [
        {"name": "drains", "text": "a large queue falls", "if": ["known", f"queue > {rest}"],
         "then": [{"any": [f"queue' <= {rest}", f"queue' <= queue - {step}"]}]},
        {"name": "rests", "text": "a small one stays", "if": ["known", f"queue <= {rest}"],
         "then": [f"queue' <= {rest}", f"peak_inflight <= {2 * most}"]},
    ]  # fmt: skip
    rank = [{"of": "queue", "minus": str(step), "until": str(rest)}]
    claims = {"inflight_bdp": {"bound": str(most), "rank": rank}}
    return _theorem(f"inflight {a} {rest} {most}", a, "infinite", "C_L >= MSS", lemmas, claims)


def planted() -> list[Planted]:
    """Return all 100 claims, true and false in turn."""
    true, false = [], []
    pairs = [(a, c) for a in (F(1), F(7, 8)) for c in (F(1, 2), F(5, 8), F(3, 4), F(7, 8), F(1))]
    true += [_utilisation(a, c, a * c - F(1, RTTS)) for a, c in pairs]
    true += [_utilisation(a, c, (a * c - F(1, RTTS)) / 2) for a, c in pairs[:7]]
    false += [_utilisation(a, c, a * c + F(1, 20)) for a, c in pairs]
    false += [_utilisation(a, c, 2 * a * c) for a, c in pairs[:7]]
    factors = [F(5, 4) + F(k, 4) for k in range(8)]
    true += [_loss(a, a - 1) for a in factors] + [_loss(a, a - F(7, 8)) for a in factors]
    false += [_loss(a, a - F(11, 10)) for a in factors] + [_loss(a, (a - 1) / 2) for a in factors]
    shares = [(a, r) for r in (F(0), F(1), F(2)) for a in (F(1, 4), F(3, 8), F(1, 2), F(5, 8), F(3, 4), F(7, 8))][:17]
    true += [_inflight(a, r, (r + 1) / 2) for a, r in shares]
    false += [_inflight(a, r, a / 2 - F(1, 20)) for a, r in shares]
    return [
        one
        for good, bad in zip(true, false, strict=True)
        for one in (Planted(good.theorem.name, True, good), Planted(bad.theorem.name, False, bad))
    ]
