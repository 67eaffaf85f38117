"""Rounds: evaluation seeds that nobody can know before a submission is frozen, and that everybody can check afterwards.

A round begins by storing the SHA-256 of the operator's secret. A submission belongs to the round that is open when it is handed
in. Seed i of its evaluation on a suite is the first 31 bits of HMAC-SHA256(secret, suite hash / submission hash / i). Closing the
round reveals the secret.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from ccenv.benchmarks.suite.base import SuiteBase
from ccenv.errors import CcenvError
from ccenv.leaderboard.store.database import BoardStore, Readable, TakenError
from ccenv.leaderboard.store.home import Home
from ccenv.provenance import now

ROUND, REVEAL = "round", "reveal"


def commitment(secret: bytes) -> str:
    """Return what is published before the round."""
    return hashlib.sha256(secret).hexdigest()


def evaluation_seeds(secret: bytes, suite_sha256: str, submission: str, count: int) -> tuple[int, ...]:
    """Return the seeds of a submission's evaluation on a suite: distinct, in [0, 2**31).

    Args:
        secret: of the round.
        suite_sha256: hash of the published suite.
        submission: hash of the submission.
        count: how many.
    """
    seeds: list[int] = []
    i = 0
    while len(seeds) < count:
        digest = hmac.new(secret, f"{suite_sha256}/{submission}/{i}".encode(), hashlib.sha256).digest()
        seed = int.from_bytes(digest[:4], "big") >> 1
        if seed not in seeds:
            seeds.append(seed)
        i += 1
    return tuple(seeds)


def evaluation_suite(suite: SuiteBase, sha256: str, secret: bytes, submission: str) -> SuiteBase:
    """Return a suite with the seeds of a submission and no senders of its own: the submission plays alone.

    Args:
        suite: as published.
        sha256: its hash when it was published; later versions of the format may add keys.
        secret: of the round.
        submission: hash of the submission.
    """
    seeds = evaluation_seeds(secret, sha256, submission, len(suite.seeds))
    return suite.model_copy(update={"seeds": seeds, "agents": (), "references": ()})


def open_round(store: BoardStore, home: Home) -> int:
    """Return the number of the open round; the first one begins here."""
    rounds = store.records(ROUND)
    if not rounds:
        return _begin(store, home, 1)
    newest = int(rounds[-1].content["number"])
    return newest if newest not in revealed(store) else _begin(store, home, newest + 1)


def begin_own_round(store: BoardStore, home: Home) -> int:
    """Begin a round with a secret of our own, after records that came from elsewhere; return its number."""
    rounds = store.records(ROUND)
    return _begin(store, home, int(rounds[-1].content["number"]) + 1 if rounds else 1)


def close_round(store: BoardStore, home: Home) -> dict[str, Any]:
    """Reveal the secret of the open round and begin the next one; submissions of a round are frozen, so nothing can be gained."""
    number = open_round(store, home)
    secret = secret_of(store, home, number)
    store.append(REVEAL, "", f"reveal/{number}", {"number": number, "secret": secret.hex(), "recorded_at": now()}, {})
    return {"closed": number, "secret": secret.hex(), "open": open_round(store, home)}


def secret_of(store: Readable, home: Home, number: int) -> bytes:
    """Return the secret of a round: the revealed one, else the operator's file, checked against the commitment.

    Raises:
        CcenvError: if it is missing, or not the one that was committed to.
    """
    shown = revealed(store).get(number)
    secret = bytes.fromhex(shown) if shown else home.secret(number)
    for record in store.records(ROUND):
        if record.content["number"] == number and record.content["commitment"] == commitment(secret):
            return secret
    raise CcenvError(f"the secret of round {number} is not the one that was committed to")


def revealed(store: Readable) -> dict[int, str]:
    """Return number -> secret of the closed rounds."""
    return {int(record.content["number"]): str(record.content["secret"]) for record in store.records(REVEAL)}


def _begin(store: BoardStore, home: Home, number: int) -> int:
    secret = home.new_secret(number)
    content = {"number": number, "commitment": commitment(secret), "recorded_at": now()}
    try:
        store.append(ROUND, "", f"round/{number}", content, {})
    except TakenError:  # begun by another process at the same moment; its secret must be ours
        secret_of(store, home, number)
    return number
