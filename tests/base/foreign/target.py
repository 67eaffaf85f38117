"""A reader that is given hostile variants of good documents."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

Read = Callable[[bytes, Path], object]


@dataclass(frozen=True)
class Target:
    """A reader.

    Attributes:
        name: of the target.
        read: reads a content; the folder is scratch.
        make_seeds: returns good documents.
        weight: share of the inputs.
    """

    name: str
    read: Read
    make_seeds: Callable[[], list[bytes]]
    weight: float = 1.0

    @cached_property
    def seeds(self) -> list[bytes]:
        """Good documents; the reader takes each of them."""
        return self.make_seeds()
