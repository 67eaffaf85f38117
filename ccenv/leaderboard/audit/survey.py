"""Reading a board that may have been edited: what is sound is kept, and everything that is not is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ccenv.base.errors import CcenvError
from ccenv.leaderboard.audit.contents import Contents
from ccenv.leaderboard.store.database import START, BoardStore, Stored, chained, stored


@dataclass
class Survey:
    """The sound records of a board.

    Attributes:
        sound: records that are what their hashes say and can be read.
        chain: all rows whose hash and place in the chain hold, readable or not.
        n_rows: how many rows there are.
        contents: what the sound records say.
        problems: one line for each thing that is wrong.
    """

    read: Callable[[str], bytes]
    contents: Contents
    sound: list[Stored] = field(default_factory=list)
    chain: list[Stored] = field(default_factory=list)
    n_rows: int = 0
    problems: list[str] = field(default_factory=list)

    def records(self, kind: str | None = None, subject: str | None = None) -> list[Stored]:
        """Return sound records in order, all or those of a kind or subject."""
        chosen = (record for record in self.sound if kind in (None, record.kind))
        return [record for record in chosen if subject in (None, record.subject)]

    def file(self, sha256: str) -> bytes:
        """Return a file by its hash."""
        return self.read(sha256)


def survey(store: BoardStore) -> Survey:
    """Read every row, file and content of a board; nothing that is wrong with one ends the reading of the others."""
    out = Survey(store.file, Contents(store.file))
    before, expected = START, 1
    for row in store.rows():
        out.n_rows += 1
        number = row["number"]
        if number > expected:
            missing = f"record {expected}" if number == expected + 1 else f"records {expected} to {number - 1}"
            out.problems.append(f"{missing} of the board: missing")
        elif row["chain"] != chained(before, row["sha256"]):
            out.problems.append(f"record {number} of the board does not follow the one before it")
        before, expected = row["chain"], number + 1
        try:
            record = stored(row)
            out.chain.append(record)
            for digest in record.files.values():
                store.file(digest)
            out.contents.add(record)
        except CcenvError as error:
            text = str(error)
            out.problems.append(text if text.startswith("record ") else f"record {number}: {text}")
        else:
            out.sound.append(record)
    return out
