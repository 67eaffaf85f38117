"""A reader that is given hostile variants of good documents."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ccenv.base.registry import load_target

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
        return self.make_seeds()


def loader(load: str | Callable[..., object]) -> Callable[..., object]:
    """Return a function, imported when it is first used where ``module:name`` is given."""
    return load_target(load) if isinstance(load, str) else load


def from_file(load: str | Callable[..., object], name: str, *, as_text: bool = False, of_folder: bool = False) -> Read:
    """Return a target's reader that writes the content into a file first, and gives the file, its name or its folder."""

    def read(content: bytes, folder: Path) -> object:
        (folder / name).write_bytes(content)
        place = folder if of_folder else folder / name
        return loader(load)(str(place) if as_text else place)

    return read
