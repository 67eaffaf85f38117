"""Tables on documentation pages, generated from records between two comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath

from ccenv.base.errors import InputError
from ccenv.base.files import write_atomic
from ccenv.base.foreign import read_text

MAX_BYTES = 16 << 20  # of a page
END = "<!-- end of the table -->"


@dataclass(frozen=True)
class Place:
    """The place of tables on a page: between the comment ``start`` and END."""

    start: str

    def parts(self, page: FilePath) -> tuple[str, str]:
        """Return the text before and behind the tables. Raises InputError if the page cannot be read or has no such place."""
        text = read_text(page, MAX_BYTES)
        before, start, remainder = text.partition(self.start)
        _, end, behind = remainder.partition(END)
        if not start or not end:
            raise InputError(f"{page}: has no place for the table, between {self.start!r} and {END!r}")
        return before, behind

    def write(self, page: FilePath, tables: str) -> None:
        """Put tables in their place. Raises InputError as ``parts`` does."""
        before, behind = self.parts(page)
        write_atomic(page, f"{before}{self.start}\n\n{tables}\n\n{END}{behind}".encode())


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """Return rows of equal columns as a table in Markdown."""
    if not rows:
        return ""
    names = list(rows[0])
    lines = [f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row.values())} |" for row in rows)])
