"""Exported programs under an emulated kernel, beside the packet engine: docs/data/kernel-programs.json.

``python tests/live/kernel_programs.py FOLDER`` plays what is missing of it: a minute of CPU time a case, with qemu, clang, and
boot and lib/modules of a kernel in FOLDER.
"""

import sys
from pathlib import Path
from typing import Any

from ccenv.base.files import json_bytes, write_atomic
from ccenv.base.foreign import read_json
from ccenv.live.comparison import simulate_live
from ccenv.live.scenario import LiveScenario, read_live_scenario
from ccenv.live.virtual.run import run_virtual
from ccenv.live.virtual.suite import measure

FILE = Path(__file__).parents[2] / "docs" / "data" / "kernel-programs.json"
COMMON = {"duration_s": 10, "warmup_s": 3, "rate_mbps": 5, "buffer_bdp": 2, "rtt_ms": 40}
BAD_PHASE = "fourcp_fixed:tarp=0.0003"  # [4CP] figure 25: a target below the loss rate of the path
BAD_CASE = f"{BAD_PHASE} kernel:reno kernel:reno kernel:reno"
CASES = (
    "cc_probe_drain", "ever_delay:rm_ms=40", "fourcp_fixed", "fourcp_auto:pftk=1", "fourcp_fixed:rate_based=1",
    "fourcp_fixed kernel:cubic", BAD_CASE, "learned_everywhere", "learned_everywhere kernel:cubic",
)  # fmt: skip


def scenario(case: str) -> LiveScenario:
    flows = [{"sender": sender, "rtt_ms": COMMON["rtt_ms"]} for sender in case.split()]
    links = [{key: COMMON[key] for key in ("rate_mbps", "buffer_bdp")}]
    return read_live_scenario(
        {"name": "programs", **{k: COMMON[k] for k in ("duration_s", "warmup_s")}, "links": links, "flows": flows}
    )


def play_engine(case: str) -> dict[str, Any]:
    """Return what the packet engine makes of a case (``ccenv.live.virtual.suite.measure``)."""
    return measure(simulate_live(scenario(case)).summary)


def play_kernel(case: str, folder: str) -> dict[str, Any]:
    """Return the measures of a run under the kernel, its hash and release, the latest packet."""
    result = run_virtual(scenario(case), kernel=folder)
    assert result.valid, result.why_not_valid
    summary = result.summary()
    return measure(summary) | {
        "hash": summary["hash"][:16],
        "kernel": summary["emulator"]["kernel"],
        "latest_us": summary["emulator"]["release_error_us"]["max"],
        "simulated_s_per_cpu_s": summary["simulated_s_per_cpu_s"],
    }


if __name__ == "__main__":
    done = read_json(FILE) if FILE.exists() else {}
    for case in sys.argv[2:] or CASES:
        if case not in done:
            row = {"kernel": play_kernel(case, sys.argv[1]), "engine": play_engine(case)}
            done = (read_json(FILE) if FILE.exists() else {}) | {case: row}
            write_atomic(FILE, json_bytes({one: done[one] for one in CASES if one in done}))
            print(case, done[case], flush=True)
