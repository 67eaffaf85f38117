"""Speed of synthesis on this machine: CPU seconds of shipped queries, each from nothing, and of one by plain CEGIS."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path as FilePath

from ccenv.base.errors import CcenvError
from ccenv.proofs.synthesis.query.query import load_query
from ccenv.proofs.synthesis.result import result
from ccenv.proofs.synthesis.run import solve_query, start, warm_up
from ccenv.proofs.synthesis.search.cegis import cegis

QUERIES = (
    "g1_t4", "g1_t5", "g1_t11", "g2", "g3", "g4_small_buffer", "g5_infinite", "g5_small", "g5_arbitrary", "g6", "g7_large",
)  # fmt: skip
PLAIN = "g1_t5"


def measure(queries: Sequence[str] = QUERIES, plain: str = PLAIN) -> dict[str, float]:
    """Return per query the CPU seconds from its YAML to its solutions, with the keys found; compile and import not counted.

    Args:
        queries: run through the pipeline with one worker.
        plain: also run by generator and verifier alone, for comparison.

    Raises:
        CcenvError: if a query is not answered within its limits: a time without an answer is none.
    """
    warm_up()
    out: dict[str, float] = {}
    for name in queries:
        begin = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            run = start(load_query(name), FilePath(folder))
            solve_query(run)
            data = result(run)
        if not data["complete"]:
            raise CcenvError(f"query {name!r} was not answered within its limits")
        out |= {f"synth_{name}_cpu_s": round(time.process_time() - begin, 3), f"synth_{name}_keys": data["keys"]}
    begin = time.process_time()
    query = load_query(plain)
    data = cegis(query, query.limits.budget_s)
    if not data["complete"]:
        raise CcenvError(f"query {plain!r} was not answered by plain CEGIS within its limits")
    out[f"synth_plain_{plain}_cpu_s"] = round(time.process_time() - begin, 3)
    return out | {f"synth_plain_{plain}_keys": data["keys"], f"synth_plain_{plain}_iterations": data["iterations"]}
