"""Who is who: names that are kept for what ccenv itself registers, and what may be claimed once on a board.

Everything that belongs to an entry is found by content hashes. Names are for people, so a name must not look like another one.

The one form of players that differ in writing only: what is played decides whether something is new, not how it is written.

Programs: terms of zero, scaled conditions, branches with equal ends, conditions that were decided above, an unread window.
Networks: negative zeros, the order of hidden units, equal units, units that nothing reads, signs of tanh units; of a network with
recurrent cells negative zeros only. Interfaces: the order of signals, parameters that have their defaults. Moves: negative zeros
and periods written more than once.
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
from ccenv.agents.sender import ClassicSender, ContractSender, ExternalSender, HeldSender, PolicySender, ProgramSender, Sender
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import hash_of
from ccenv.leaderboard.submission.document import fold_text
from ccenv.leaderboard.submission.weights import quantise_player
from ccenv.network.adversary import Adversary, MlpAdversary, RecordedAdversary

Layers = tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]


def canonical_hash(player: Sender | Adversary) -> str:
    """Return a hash of what a player does, as far as its canonical form shows it."""
    if isinstance(player, ProgramSender) and player.start is None:
        return hash_of({"kind": "program", **_program(player.program)})
    if isinstance(player, ContractSender):
        policy = "" if player.policy is None else canonical_hash(player.policy)
        return hash_of({"kind": "contract", **_program(player.program), "chooser": player.chooser, "policy": policy})
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
    """Return a policy with its signals in the order of the table, and the parameters of its action all written out or none."""
    sees = player.interface
    order = sorted(range(len(sees.signals)), key=lambda place: SIGNAL_NUMBERS[sees.signals[place]])
    rows = [interval * len(order) + place for interval in range(sees.history) for place in order]
    row = action(sees.action).parameters
    parameters = {name: float(sees.parameters.get(name, default)) for name, (default, _, _) in row.items()}
    usual = all(parameters[name] == default for name, (default, _, _) in row.items())
    changes = {"signals": tuple(sees.signals[place] for place in order), "parameters": {} if usual else parameters}
    return replace(
        player,
        interface=sees.model_copy(update=changes),
        weights=(player.weights[0][rows] + 0.0, *(array + 0.0 for array in player.weights[1:])),
        biases=tuple(array + 0.0 for array in player.biases),
        hidden_weights=tuple(array + 0.0 for array in player.hidden_weights),
        hidden_biases=tuple(array + 0.0 for array in player.hidden_biases),
    )


def _program(program: Any) -> dict[str, Any]:
    reads = {"C_L_lambda"} & program.inputs()
    return {"rule": _rule(program.rule, {}), "probe_window_rtts": program.probe_window_rtts if reads else 1}


def _rule(rule: Any, decided: dict[str, bool]) -> Any:
    """Return a rule without what cannot matter; ``decided`` are the conditions above it and how they came out."""
    from ccenv.agents.programs import Branch

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
    """Return a network whose hidden units have one order; equal units are one, units that nothing reads are left out.

    Args:
        weights: one (n_in, n_out) array per layer.
        biases: one (n_out,) array per layer.
        odd: whether the activation is an odd function, so that a unit and its mirror image do the same.
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
    """Return the shortest prefix of which moves are a repetition."""
    n = len(moves)
    for period in (p for p in range(1, n // 2 + 1) if n % p == 0):
        if np.array_equal(moves[period:], moves[:-period]):
            return moves[:period]
    return moves


PROJECT = "ccenv"


@cache
def registered_names() -> dict[str, str]:
    """Return folded name -> name of everything that ccenv registers."""
    return {fold_text(name): name for name in (*AGENTS.names(), *ADVERSARIES.names())}


@cache
def registered_hash(name: str) -> str | None:
    """Return the canonical hash of a registered player, weights on the grid; None for one that only an environment can drive."""
    try:
        return canonical_hash(quantise_player(make_sender(name) if name in AGENTS else make_adversary(name)))
    except CcenvError:
        return None


def check_reserved(name: str, author: str, player: Sender | Adversary) -> None:
    """Check that a submission does not take a name that ccenv itself has.

    A registered name, and an author that holds the project's name, belong to the registered player alone.

    Raises:
        InputError: if the name or the author is kept for another player.
    """
    registered_name = registered_names().get(fold_text(name))
    is_own = registered_name == name and registered_hash(name) == canonical_hash(player)
    if registered_name is not None and not is_own:
        raise InputError(f"the name {name!r} is kept for ccenv's own {registered_name!r}, which this is not: choose another one")
    if PROJECT in fold_text(author) and not is_own:
        raise InputError(f"the author {author!r} is kept for what comes with ccenv, which this is not: name a person or group")


def name_claim(name: str) -> str:
    """Return what an entry of a name claims on a board: every name that looks like it."""
    return f"name/{fold_text(name)}"


def player_claim(canonical_sha256: str) -> str:
    """Return what an entry claims on a board by what it plays."""
    return f"player/{canonical_sha256}"


def make_claims(name: str, player: Sender | Adversary) -> tuple[str, str]:
    """Return the claims of an entry, by what it plays and by its name; each may exist once on a board."""
    return player_claim(canonical_hash(player)), name_claim(name)
