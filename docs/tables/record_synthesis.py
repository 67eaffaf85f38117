"""Record the answers of queries in one small file: ``python docs/tables/record_synthesis.py OUT.json QUERY ...``.

Each query runs afresh in a temporary folder. Its answer replaces an older one in the file; the others stay.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import CcenvError
from ccenv.base.files import json_bytes, write_atomic
from ccenv.base.foreign import read_json
from ccenv.proofs.synthesis.query.query import Query, load_query
from ccenv.proofs.synthesis.result import result
from ccenv.proofs.synthesis.run import solve_query, start, warm_up

MOST_SHOWN = 8
"""Solutions per query whose pseudo-code is recorded."""


def answer(query: Query) -> dict[str, Any]:
    """Return a query's answer in short: counts, times, funnel and the first solutions as pseudo-code."""
    with tempfile.TemporaryDirectory() as folder:
        run = start(query, FilePath(folder))
        solve_query(run)
        data = result(run)
    data["solutions"] = [solution["pseudo_code"] for solution in data["solutions"][:MOST_SHOWN]]
    return data | {"method": "pipeline"}


def main(arguments: list[str]) -> int:
    """Record queries; returns the exit code."""
    if len(arguments) < 2:
        sys.stderr.write("usage: python docs/tables/record_synthesis.py OUT.json QUERY ...\n")
        return 2
    file = FilePath(arguments[0])
    try:
        answers = read_json(file) if file.exists() else {}
        warm_up()
        for name in arguments[1:]:
            answers[name] = answer(load_query(name))
            write_atomic(file, json_bytes(answers, sort_keys=True))
    except CcenvError as error:
        sys.stderr.write(f"ccenv: error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
