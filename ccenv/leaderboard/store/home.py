"""The operator's folder: database, secrets of the rounds, and work that is not finished."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path as FilePath

from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import locked, make_folder, write_atomic
from ccenv.base.foreign import read_text
from ccenv.leaderboard.store.database import BoardStore, sqlite_url
from ccenv.leaderboard.store.head import HEAD, Memory
from ccenv.leaderboard.store.records import DATABASE

WORK = "work"
_SECRET_BYTES = 32


@dataclass(frozen=True)
class Home:
    """Where a board lives.

    Attributes:
        folder: of the database file, the secrets and unfinished work.
        database: SQLAlchemy URL, or None for a SQLite file in the folder.
    """

    folder: FilePath
    database: str | None = None

    def open(self) -> BoardStore:
        """Open the board's database and make it if there is none. Raises CcenvError if the folder cannot be made."""
        make_folder(self.folder)
        return BoardStore(self.database or sqlite_url(self.folder / DATABASE), self.memory.remember)

    @property
    def memory(self) -> Memory:
        """The last head of the board, kept beside the database and not in it."""
        return Memory(self.folder / HEAD)

    def own_audits(self) -> set[str]:
        """Return the hashes of the records of the audits that were made here; the records themselves could be anybody's."""
        return set(read_text(self._audits, 1 << 24).split()) if self._audits.is_file() else set()

    def remember_audit(self, sha256: str) -> None:
        """Keep the hash of the record of an audit that was made here."""
        write_atomic(self._audits, "".join(f"{digest}\n" for digest in sorted({*self.own_audits(), sha256})).encode())

    @property
    def _audits(self) -> FilePath:
        return self.folder / "audits.txt"

    def exists(self) -> bool:
        """Tell whether there is a board."""
        return self.database is not None or (self.folder / DATABASE).is_file()

    def open_existing(self) -> BoardStore:
        """Open a board that is there. Raises InputError if there is none."""
        if not self.exists():
            raise InputError(f"{self.folder}: there is no board yet; hand something in: ccenv board submit DIR")
        return self.open()

    def work(self, submission: str) -> FilePath:
        """Return the folder of unfinished work on a submission."""
        return self.folder / WORK / submission[:16]

    def publishing(self) -> AbstractContextManager[None]:
        """Wait until no other process publishes this board, and hold it against them; its evaluation goes on meanwhile."""
        return locked(self.folder / WORK, "publication of this board", wait=True, name="publish.lock")

    def new_secret(self, number: int) -> bytes:
        """Return the secret of a round that is not stored yet; drawn from the system, in a file that only its owner reads.

        A whole secret that is there already stays: it is of a start that was interrupted, or of another process that begins the
        same round. One that is not whole was never committed to, because a round is stored after its secret.

        Raises:
            CcenvError: if it cannot be written.
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
