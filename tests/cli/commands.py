"""Start a command as a user would, for tests that end it."""

import subprocess
import sys
from pathlib import Path

CCENV = [sys.executable, "-m", "ccenv.cli.main"]

# A suite that runs for long: name, duration_rtts, seeds and agents are filled in.
SUITE = """# Long enough to be cut off.
format: ccenv-suite
format_version: 1
name: {name}
version: 1
engine: curve
steps_per_rtt: 8
duration_rtts: {duration_rtts}
warm_up_rtts: 20
seeds: [{seeds}]
agents: [{agents}]
adversaries: [kind, slowest]
scenarios:
  - {{name: deep, summary: deep, model: ccac, link_rate_mbps: {{low: 10, high: 100}}, rtt_ms: 40, jitter_rtts: 1, buffer_bdp: 4}}
metrics: [utilisation]
score: {{metric: utilisation, adversary: kind}}
worst_case: {{metric: utilisation}}
"""


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*CCENV, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
