"""The pair of files that a learned player is: NAME.safetensors beside NAME.json."""

from __future__ import annotations

from pathlib import Path as FilePath

from ccenv.errors import InputError
from ccenv.foreign import is_folder, shown

WEIGHTS, CARD = ".safetensors", ".json"


def pair_of(path: FilePath | str, stem: str) -> tuple[FilePath, FilePath]:
    """Return the files of weights and card.

    Args:
        path: a folder, or the path of the pair with or without one of the two endings.
        stem: name of the pair in a folder.
    """
    given = FilePath(path)
    if is_folder(given):
        given = given / stem
    elif given.suffix in {WEIGHTS, CARD}:
        given = given.with_suffix("")
    if not given.name:
        raise InputError(f"{shown(str(path))} names no file")
    return given.with_name(given.name + WEIGHTS), given.with_name(given.name + CARD)
