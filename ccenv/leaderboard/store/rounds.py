"""Rounds: evaluation seeds that nobody can know before a submission is frozen, and that everybody can check afterwards.

A round begins by storing the SHA-256 of the operator's secret. A submission belongs to the round that is open when it is handed
in. Seed i of its evaluation on a suite is the first 31 bits of HMAC-SHA256(secret, suite hash / submission hash / i). Closing the
round reveals the secret.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from ccenv.benchmarks.suite.base import SuiteBase
from ccenv.base.errors import CcenvError, InputError
from ccenv.leaderboard.store.database import BoardStore, Readable, TakenError
from ccenv.leaderboard.store.home import Home
from ccenv.leaderboard.store.records import PlayedContent, RecordContent, RoundNumber, Sha256
from ccenv.base.provenance import now

ROUND, REVEAL = "round", "reveal"


class Begun(RecordContent):
    """A round begins."""

    number: RoundNumber
    commitment: Sha256


class Revealed(RecordContent):
    """A round ends."""

    number: RoundNumber
    secret: Annotated[str, Field(pattern=r"^([0-9a-f]{2}){1,64}$")]


class Rounds:
    """The rounds of a board in the order of its records: one after the other, each open from its beginning to its reveal.

    Attributes:
        begun: number -> what was committed to.
        secrets: number -> secret of those that ended.
    """

    def __init__(self) -> None:
        self.begun: dict[int, str] = {}
        self.secrets: dict[int, bytes] = {}

    def begin(self, round_: Begun, where: str) -> None:
        """Begin a round. Raises InputError if it is not the next one."""
        if round_.number != len(self.begun) + 1:
            raise InputError(f"{where}: round {round_.number} begins; round {len(self.begun) + 1} is next")
        self.begun[round_.number] = round_.commitment

    def reveal(self, round_: Revealed, where: str) -> None:
        """End the open round. Raises InputError if another one is open, or its secret is not the one that was committed to."""
        self.take(round_.number, where)
        secret = bytes.fromhex(round_.secret)
        if commitment(secret) != self.begun[round_.number]:
            raise InputError(f"{where}: round {round_.number}: the secret is not the one that was committed to")
        self.secrets[round_.number] = secret

    def take(self, number: int, where: str) -> None:
        """Check that a round is the one that is open now. Raises InputError."""
        if number != len(self.begun) or number in self.secrets:
            newest = f"round {len(self.begun)} is {'revealed' if len(self.begun) in self.secrets else 'open'}"
            raise InputError(f"{where}: of round {number}, but {newest if self.begun else 'no round has begun'}")

    def check_seeds(self, content: PlayedContent, seeds: Sequence[int], where: str) -> None:
        """Check the seeds of a record against the secret of its round, once it is known. Raises InputError."""
        if content.round not in self.secrets:
            return
        due = evaluation_seeds(self.secrets[content.round], content.suite_sha256, content.submission, len(seeds))
        if tuple(seeds) != due:
            raise InputError(f"{where}: its seeds do not follow from the submission and the secret of round {content.round}")


def commitment(secret: bytes) -> str:
    """Return what is published before the round."""
    return hashlib.sha256(secret).hexdigest()


def evaluation_seeds(secret: bytes, suite_sha256: str, submission: str, count: int) -> tuple[int, ...]:
    """Return the seeds of a submission's evaluation on a suite: distinct, in [0, 2**31)."""
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
    """Return a suite with the seeds of a submission and no senders of its own: the submission plays alone."""
    seeds = evaluation_seeds(secret, sha256, submission, len(suite.seeds))
    return suite.model_copy(update={"seeds": seeds, "agents": (), "references": ()})


def open_round(store: BoardStore, home: Home) -> int:
    """Return the number of the open round; the first one begins here."""
    rounds = store.records(ROUND)
    if not rounds:
        return _begin(store, home, 1)
    newest = int(rounds[-1].content["number"])
    return newest if newest not in revealed(store) else _begin(store, home, newest + 1)


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


def new_round(home: Home, number: int) -> dict[str, Any]:
    """Return what the record of a round says that begins now, with a secret of our own."""
    return {"number": number, "commitment": commitment(home.new_secret(number)), "recorded_at": now()}


def _begin(store: BoardStore, home: Home, number: int) -> int:
    try:
        store.append(ROUND, "", f"{ROUND}/{number}", new_round(home, number), {})
    except TakenError:  # begun by another process at the same moment; its secret must be ours
        secret_of(store, home, number)
    return number
