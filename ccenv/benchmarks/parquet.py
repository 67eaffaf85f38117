"""Results as Parquet: one row per cell, one column per parameter and metric, for pandas, DuckDB and R."""

from __future__ import annotations

import json
import os
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import CcenvError, require_extra

PARQUET = "cells.parquet"
_PLAIN = ("key", "scenario", "agent", "adversary", "seed", "engine_seed", "model", "code_sha256", "agent_sha256")


def columns_of(records: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the columns of a table of cells.

    Returns:
        dict: what each cell was; ``parameter.NAME`` and ``metric.NAME``, None where a cell has none; ``path``, ``series`` and
            ``preconditions`` as JSON text.
    """
    columns: dict[str, list[Any]] = {name: [record[name] for record in records] for name in _PLAIN}
    for prefix, part in (("parameter.", "parameters"), ("metric.", "metrics")):
        names = dict.fromkeys(name for record in records for name in record.get(part, {}))
        for name in names:
            column = [record.get(part, {}).get(name) for record in records]
            kinds = {type(value) for value in column if value is not None}
            if str in kinds and len(kinds) > 1:
                column = [None if value is None else str(value) for value in column]
            elif kinds <= {int, float}:
                column = [None if value is None else float(value) for value in column]
            columns[prefix + name] = column
    for part in ("path", "series", "preconditions"):
        columns[part] = [json.dumps(record[part], sort_keys=True) if part in record else None for record in records]
    return columns


def write_parquet(records: list[dict[str, Any]], file: FilePath) -> None:
    """Write cells as Parquet, at once or not at all; equal cells make equal bytes.

    Raises:
        MissingExtraError: without pyarrow.
        CcenvError: if the file cannot be written.
    """
    require_extra("pyarrow", "bench")
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({name: pyarrow.array(column) for name, column in columns_of(records).items()})
    part = file.with_name(file.name + f".{os.getpid()}.part")
    try:
        parquet.write_table(table, part, compression="zstd")
        os.replace(part, file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise CcenvError(f"{file}: cannot be written ({error.strerror})") from None


def read_parquet(file: FilePath) -> dict[str, list[Any]]:
    """Read a table of cells back as columns. Raises MissingExtraError, or CcenvError for a file that is none."""
    require_extra("pyarrow", "bench")
    import pyarrow
    from pyarrow import parquet

    try:
        return dict(parquet.read_table(file).to_pydict())
    except (OSError, pyarrow.ArrowException) as error:
        raise CcenvError(f"{file}: cannot be read as Parquet ({' '.join(str(error).split())})") from None
