"""The operator's folder (database, secrets, unfinished work) and rounds.

Rounds give evaluation seeds that nobody can know before a submission is frozen, and that everybody can check afterwards. A round
begins with the SHA-256 of the operator's secret. A submission belongs to the round that is open when it is submitted; seed i of
its evaluation on a suite is the first 31 bits of HMAC-SHA256(secret, suite hash / submission hash / i). Closing the round reveals
the secret.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated, Any

from pydantic import Field

from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import locked, make_folder, write_atomic
from ccenv.base.foreign import is_file, read_text, read_yaml
from ccenv.base.provenance import now
from ccenv.benchmarks.suite.base import SuiteBase
from ccenv.leaderboard.store.database import BoardStore, Readable, TakenError, sqlite_url
from ccenv.leaderboard.store.head import HEAD, Memory
from ccenv.leaderboard.store.records import DATABASE, PlayedContent, RecordContent, RoundNumber, Sha256

WORK = "work"
_SECRET_BYTES = 32


class BoardConfig(StrictModel):
    """What an operator may say in ``board.yaml``, in the folder of a board."""

    database: str | None = None  # SQLAlchemy URL, if the database is not a SQLite file in that folder


def home_of(folder: FilePath) -> Home:
    """Return the board in a folder: CCENV_DATABASE before its board.yaml. Raises InputError for a wrong board.yaml."""
    file = folder / "board.yaml"
    config = validate(BoardConfig, read_yaml(file) or {}, str(file)) if is_file(file) else BoardConfig()
    return Home(folder, os.environ.get("CCENV_DATABASE") or config.database)


@dataclass(frozen=True)
class Home:
    """The folder of a board; ``database`` is a SQLAlchemy URL, or None for a SQLite file in the folder."""

    folder: FilePath
    database: str | None = None

    def open(self) -> BoardStore:
        """Open the board's database; create it if missing. Raises CcenvError if the folder cannot be created."""
        make_folder(self.folder)
        return BoardStore(self.database or sqlite_url(self.folder / DATABASE), self.memory.remember)

    @property
    def memory(self) -> Memory:
        """The last head of the board, stored outside the database."""
        return Memory(self.folder / HEAD)

    def local_audits(self) -> set[str]:
        """Return the hashes of the audit records made here; the board may hold audits by others."""
        return set(read_text(self._audits, 1 << 24).split()) if self._audits.is_file() else set()

    def remember_audit(self, sha256: str) -> None:
        """Store the hash of an audit record made here."""
        write_atomic(self._audits, "".join(f"{digest}\n" for digest in sorted({*self.local_audits(), sha256})).encode())

    @property
    def _audits(self) -> FilePath:
        return self.folder / "audits.txt"

    def exists(self) -> bool:
        return self.database is not None or (self.folder / DATABASE).is_file()

    def open_existing(self) -> BoardStore:
        """Open an existing board. Raises InputError if there is none."""
        if not self.exists():
            raise InputError(f"{self.folder}: there is no board yet; hand something in: ccenv board submit DIR")
        return self.open()

    def work(self, submission: str) -> FilePath:
        return self.folder / WORK / submission[:16]

    def publishing(self) -> AbstractContextManager[None]:
        """Hold the lock of publications of this board, waiting for it; evaluations are not blocked."""
        return locked(self.folder / WORK, "publication of this board", wait=True, name="publish.lock")

    def new_secret(self, number: int) -> bytes:
        """Return the secret of a new round, from the system's generator, in a file readable by its owner only.

        A valid file is kept: it belongs to an interrupted start, or to another process that begins the same round. An invalid one
        was never committed to, because a round is stored after its secret. Raises CcenvError if it cannot be written.
        """
        file = self._secret_file(number)
        with locked(file.parent, "beginning of a round", wait=True):
            try:
                return self.secret(number)
            except CcenvError:
                secret = os.urandom(_SECRET_BYTES)
                write_atomic(file, f"{secret.hex()}\n".encode(), mode=0o600)
                return secret

    def secret(self, number: int) -> bytes:
        """Return the secret of a round. Raises CcenvError if its file is missing or damaged."""
        file = self._secret_file(number)
        try:
            secret = bytes.fromhex(file.read_text(encoding="ascii").strip())
        except OSError as error:
            raise CcenvError(f"{file}: the secret of round {number} cannot be read ({error.strerror})") from None
        except ValueError:
            raise CcenvError(f"{file}: the secret of round {number} is damaged") from None
        if len(secret) != _SECRET_BYTES:
            raise CcenvError(f"{file}: the secret of round {number} has {len(secret)} bytes, not {_SECRET_BYTES}")
        return secret

    def _secret_file(self, number: int) -> FilePath:
        return self.folder / "secrets" / f"round-{number}.hex"


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
    """The rounds of a board, in order, by number: commitments and revealed secrets. Each is open until its secret is revealed."""

    def __init__(self) -> None:
        self.begun: dict[int, str] = {}
        self.secrets: dict[int, bytes] = {}

    def begin(self, round_: Begun, where: str) -> None:
        """Begin a round. Raises InputError if it is not the next one."""
        if round_.number != len(self.begun) + 1:
            raise InputError(f"{where}: round {round_.number} begins; round {len(self.begun) + 1} is next")
        self.begun[round_.number] = round_.commitment

    def reveal(self, round_: Revealed, where: str) -> None:
        """End the open round. Raises InputError if another round is open, or the secret does not match the commitment."""
        self.take(round_.number, where)
        secret = bytes.fromhex(round_.secret)
        if commitment(secret) != self.begun[round_.number]:
            raise InputError(f"{where}: round {round_.number}: the secret is not the one that was committed to")
        self.secrets[round_.number] = secret

    def take(self, number: int, where: str) -> None:
        """Require that a round is the open one. Raises InputError."""
        if number != len(self.begun) or number in self.secrets:
            newest = f"round {len(self.begun)} is {'revealed' if len(self.begun) in self.secrets else 'open'}"
            raise InputError(f"{where}: of round {number}, but {newest if self.begun else 'no round has begun'}")

    def check_seeds(self, content: PlayedContent, seeds: Sequence[int], where: str) -> None:
        """Check the seeds of a record against the revealed secret of its round, if any. Raises InputError."""
        if content.round not in self.secrets:
            return
        expected = evaluation_seeds(self.secrets[content.round], content.suite_sha256, content.submission, len(seeds))
        if tuple(seeds) != expected:
            raise InputError(f"{where}: its seeds do not follow from the submission and the secret of round {content.round}")


def commitment(secret: bytes) -> str:
    """Return the commitment to a secret that is published before the round."""
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
    """Return a suite with the seeds of a submission and without its agents and references."""
    seeds = evaluation_seeds(secret, sha256, submission, len(suite.seeds))
    return suite.model_copy(update={"seeds": seeds, "agents": (), "references": ()})


def open_round(store: BoardStore, home: Home) -> int:
    rounds = store.records(ROUND)
    if not rounds:
        return _begin(store, home, 1)
    newest = int(rounds[-1].content["number"])
    return newest if newest not in revealed_secrets(store) else _begin(store, home, newest + 1)


def close_round(store: BoardStore, home: Home) -> dict[str, Any]:
    """Reveal the secret of the open round and begin the next one."""
    number = open_round(store, home)
    secret = find_secret(store, home, number)
    store.append(REVEAL, "", f"reveal/{number}", {"number": number, "secret": secret.hex(), "recorded_at": now()}, {})
    return {"closed": number, "secret": secret.hex(), "open": open_round(store, home)}


def find_secret(store: Readable, home: Home, number: int) -> bytes:
    """Return the secret of a round: the revealed one, or else the operator's file, checked against the commitment.

    Raises CcenvError if it is missing or does not match.
    """
    revealed_secret = revealed_secrets(store).get(number)
    secret = bytes.fromhex(revealed_secret) if revealed_secret else home.secret(number)
    for record in store.records(ROUND):
        if record.content["number"] == number and record.content["commitment"] == commitment(secret):
            return secret
    raise CcenvError(f"the secret of round {number} is not the one that was committed to")


def revealed_secrets(store: Readable) -> dict[int, str]:
    """Return number -> secret of the closed rounds."""
    return {int(record.content["number"]): str(record.content["secret"]) for record in store.records(REVEAL)}


def new_round(home: Home, number: int) -> dict[str, Any]:
    """Return the record content of a round that begins now with a new secret."""
    return {"number": number, "commitment": commitment(home.new_secret(number)), "recorded_at": now()}


def _begin(store: BoardStore, home: Home, number: int) -> int:
    try:
        store.append(ROUND, "", f"{ROUND}/{number}", new_round(home, number), {})
    except TakenError:  # begun by another process at the same moment; its secret must be ours
        find_secret(store, home, number)
    return number
