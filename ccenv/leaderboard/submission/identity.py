"""Canonical hashes of players, reserved names, and the unique claims of entries on a board.

Entries are identified by content hashes; names are for people, so no name may look like another one. The canonical form of a
player ignores differences in notation. Programs: zero terms, scaled conditions, branches with equal ends, conditions decided
above, an unread window. Networks: negative zeros, the order of hidden units, equal or unread units, signs of tanh units; with
recurrent cells negative zeros only. Interfaces: the order of signals, parameters at their defaults. Moves: negative zeros and
repeated periods.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import gcd
from typing import Any

import numpy as np

from ccenv.adversaries import ADVERSARIES, make_adversary
from ccenv.agents import AGENTS, make_sender
from ccenv.agents.identity import adversary_hash, sender_hash
from ccenv.agents.interface.actions import action
from ccenv.agents.interface.signals import SIGNAL_NUMBERS
from ccenv.agents.programs import Branch
from ccenv.agents.sender import ClassicSender, ExternalSender, HeldSender, PolicySender, ProgramSender, Sender, ShieldSender
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import hash_value
from ccenv.leaderboard.submission.document import fold_text
from ccenv.leaderboard.submission.weights import quantise_player
from ccenv.network.adversary import Adversary, MlpAdversary, RecordedAdversary

Layers = tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]


def canonical_hash(player: Sender | Adversary) -> str:
    """Return the hash of a player's canonical form."""
    if isinstance(player, ProgramSender) and player.start is None:
        return hash_value({"kind": "program", **_program(player.program)})
    if isinstance(player, ShieldSender):
        policy = "" if player.policy is None else canonical_hash(player.policy)
        return hash_value({"kind": "contract", **_program(player.program), "chooser": player.chooser, "policy": policy})
    if isinstance(player, PolicySender) and not player.is_first_version:
        player = _policy(player)
    if isinstance(player, MlpAdversary) or (isinstance(player, PolicySender) and set(player.stage_kinds) == {"dense"}):
        weights, biases = _network(player.weights, player.biases, odd=player.activation == "tanh")
        player = replace(player, weights=weights, biases=biases)
    if isinstance(player, RecordedAdversary):
        player = replace(player, moves=_shortest_period(player.moves + 0.0) if player.periodic else player.moves + 0.0)
    if isinstance(player, (ClassicSender, ProgramSender, PolicySender, HeldSender, ExternalSender)):
        return sender_hash(player)
    return adversary_hash(player)


def _policy(player: PolicySender) -> PolicySender:
    """Return a policy with signals in the order of the table, and with all parameters of its action or none."""
    interface = player.interface
    order = sorted(range(len(interface.signals)), key=lambda place: SIGNAL_NUMBERS[interface.signals[place]])
    rows = [interval * len(order) + place for interval in range(interface.history) for place in order]
    row = action(interface.action).parameters
    parameters = {name: float(interface.parameters.get(name, default)) for name, (default, _, _) in row.items()}
    is_default = all(parameters[name] == default for name, (default, _, _) in row.items())
    changes = {"signals": tuple(interface.signals[place] for place in order), "parameters": {} if is_default else parameters}
    return replace(
        player,
        interface=interface.model_copy(update=changes),
        weights=(player.weights[0][rows] + 0.0, *(array + 0.0 for array in player.weights[1:])),
        biases=tuple(array + 0.0 for array in player.biases),
        hidden_weights=tuple(array + 0.0 for array in player.hidden_weights),
        hidden_biases=tuple(array + 0.0 for array in player.hidden_biases),
    )


def _program(program: Any) -> dict[str, Any]:
    reads = {"C_L_lambda"} & program.inputs()
    return {"rule": _rule(program.rule, {}), "probe_window_rtts": program.probe_window_rtts if reads else 1}


def _rule(rule: Any, decided: dict[str, bool]) -> Any:
    """Return the canonical form of a rule; ``decided`` holds the conditions above it with their outcomes."""
    if not isinstance(rule, Branch):
        upper = {} if rule.most is None else {"most": _terms(rule.most, scale=False)}
        return {"rate": _terms(rule.rate, scale=False), "hold": rule.hold_rtts, **upper}
    condition = rule.condition if isinstance(rule.condition, str) else _terms(rule.condition, scale=True)
    key = str(condition)
    if key in decided:
        return _rule(rule.then if decided[key] else rule.otherwise, decided)
    then = _rule(rule.then, {**decided, key: True})
    otherwise = _rule(rule.otherwise, {**decided, key: False})
    return then if then == otherwise else {"if": condition, "then": then, "else": otherwise}


def _terms(expression: Any, *, scale: bool) -> list[list[str]]:
    terms = sorted((name, Fraction(c)) for name, c in expression.terms if c != 0)
    if scale and terms:  # e > 0 and 2 e > 0 are one condition
        numerators = gcd(*(c.numerator for _, c in terms))
        unit = Fraction(numerators, int(np.lcm.reduce(np.array([c.denominator for _, c in terms], dtype=object))))
        terms = [(name, c / unit) for name, c in terms]
    return [[name, str(c)] for name, c in terms]


def _network(weights: tuple[np.ndarray, ...], biases: tuple[np.ndarray, ...], *, odd: bool) -> Layers:
    """Return a network with hidden units in canonical order, equal units merged and unread units removed.

    With an ``odd`` activation a unit and its mirror image are equivalent. Weights are (n_in, n_out) per layer.
    """
    w, b = [array + 0.0 for array in weights], [array + 0.0 for array in biases]
    for i in range(len(w) - 1, 0, -1):  # from the end, so that what only unread units read is unread too
        read = np.any(w[i] != 0, axis=1)
        w[i - 1], b[i - 1], w[i] = w[i - 1][:, read], b[i - 1][read], w[i][read]
    for i in range(1, len(w)):
        units = np.vstack([w[i - 1], b[i - 1]])
        if odd and units.size:
            first = np.argmax(units != 0, axis=0)
            sign = np.where(units[first, np.arange(units.shape[1])] < 0, -1.0, 1.0)
            units, w[i] = units * sign + 0.0, w[i] * sign[:, None] + 0.0
        kinds, place = np.unique(units, axis=1, return_inverse=True)
        joined = np.zeros((kinds.shape[1], w[i].shape[1]))
        np.add.at(joined, np.ravel(place), w[i])
        w[i - 1], b[i - 1], w[i] = kinds[:-1], kinds[-1], joined + 0.0
    return tuple(w), tuple(b)


def _shortest_period(moves: np.ndarray) -> np.ndarray:
    n = len(moves)
    for period in (p for p in range(1, n // 2 + 1) if n % p == 0):
        if np.array_equal(moves[period:], moves[:-period]):
            return moves[:period]
    return moves


PROJECT = "ccenv"


@cache
def registered_names() -> dict[str, str]:
    """Return folded name -> name of all registered agents and adversaries."""
    return {fold_text(name): name for name in (*AGENTS.names(), *ADVERSARIES.names(aliases=True))}


@cache
def registered_hash(name: str) -> str | None:
    """Return the canonical hash of a registered player with quantised weights; None for one driven by an environment."""
    try:
        return canonical_hash(quantise_player(make_sender(name) if name in AGENTS else make_adversary(name)))
    except CcenvError:
        return None


def check_reserved(name: str, author: str, player: Sender | Adversary) -> None:
    """Raise InputError for a registered name, or an author with the project's name, of another player."""
    registered_name = registered_names().get(fold_text(name))
    is_own = registered_name == name and registered_hash(name) == canonical_hash(player)
    if registered_name is not None and not is_own:
        raise InputError(f"the name {name!r} is kept for ccenv's own {registered_name!r}, which this is not: choose another one")
    if PROJECT in fold_text(author) and not is_own:
        raise InputError(f"the author {author!r} is kept for what comes with ccenv, which this is not: name a person or group")


def name_claim(name: str) -> str:
    """Return the claim of an entry on all names that look like its own."""
    return f"name/{fold_text(name)}"


def make_claims(name: str, player: Sender | Adversary) -> tuple[str, str]:
    """Return the claims of an entry on its player and name; each is unique on a board."""
    return f"player/{canonical_hash(player)}", name_claim(name)
