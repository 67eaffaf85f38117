"""Readers of untrusted data: files, JSON, YAML, archives, tensors, and names that become paths.

Everything is bounded before it is built: bytes before parsing, nesting, counts and numbers before objects, sizes while unpacking.
Every problem, also one that a parser raises, becomes an :class:`ccenv.base.errors.InputError` of one line. Nothing here executes,
imports or unpickles anything, and a name from data reaches a folder only through :func:`resolve_inside`.
"""

from ccenv.base.errors import shown
from ccenv.base.foreign.archive import read_archive, read_arrays
from ccenv.base.foreign.json_text import (
    STRANGER,
    JsonRules,
    is_finite,
    is_version,
    measure_depth,
    parse_fraction,
    parse_json,
    parse_number,
    parse_whole,
)
from ccenv.base.foreign.reading import (
    NAME_ALLOWED,
    as_path,
    fold_name,
    is_file,
    is_folder,
    is_name,
    open_plain,
    read_bounded,
    read_folder,
    read_inside,
    read_json,
    read_lines,
    read_text,
    resolve_inside,
    shown_path,
)
from ccenv.base.foreign.yaml_text import parse_yaml, read_yaml

__all__ = [
    "NAME_ALLOWED",
    "STRANGER",
    "JsonRules",
    "as_path",
    "fold_name",
    "is_file",
    "is_finite",
    "is_folder",
    "is_name",
    "is_version",
    "measure_depth",
    "open_plain",
    "parse_fraction",
    "parse_json",
    "parse_number",
    "parse_whole",
    "parse_yaml",
    "read_archive",
    "read_arrays",
    "read_bounded",
    "read_folder",
    "read_inside",
    "read_json",
    "read_lines",
    "read_text",
    "read_yaml",
    "resolve_inside",
    "shown",
    "shown_path",
]
