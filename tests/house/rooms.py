"""The rooms of ccenv, in order. ``python tests/house/rooms.py`` writes the table of docs/architecture.md from this list."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A room may import only from rooms above it; folders inside a room may use each other without circles.
ROOMS = {
    "base/": "tools that know nothing of networks: errors, units, settings, files, registries, workers, provenance, figures",
    "base/foreign/": "reading of files that somebody else may have written; everything is bounded before it is built",
    "base/kernels/": "compilation: one decorator, a cache by content, a line while it compiles, threads",
    "base/user/": "code of users: Python files and installed packages, under a time limit",
    "configs/": "shipped configs, data only: one folder a command",
    "network/": "what a network is and what happened on it: paths, traces, the checker of laws, moves of adversaries",
    "network/links/": "links of varying rate: formats, checks, shipped traces",
    "network/links/shipped/": "traces of our own making, data only",
    "network/metrics/": "numbers computed from a run, each a documented function",
    "agents/": "who sends: the registry of senders, their interface, wrapped senders",
    "agents/interface/": "what a policy sees, sets and is rewarded for: signals, actions, rewards",
    "agents/programs/": "belief programs as data: read, decide exactly, print",
    "agents/classic/": "classic CCAs, one file each",
    "agents/classic/bbr/": "BBR versions 1 to 3",
    "agents/classic/pcc/": "PCC Vivace and Allegro, of the papers and of Linux",
    "agents/learned/": "policies: weights, conversion from other libraries, the shipped ones",
    "agents/learned/zoo/": "the shipped policies: weights and model cards",
    "agents/synthesized/": "belief programs of [CCmatic], one file each",
    "adversaries/": "who plays the network: the registry, what an adversary observes",
    "adversaries/scripted/": "scripted adversaries, one file each",
    "adversaries/learned/": "learned adversaries: reading them, and the shipped ones",
    "engine/": "the three engines: numba kernels, each with a slow plain reference in `tests/oracles`",
    "engine/compiled/": "what the engines share: beliefs, programs, policies, calls of senders",
    "engine/curve/": "the curve engine: byte curves on a grid, many environments a call",
    "engine/packet/": "the packet engine: segments, queues and receivers, event by event",
    "engine/packet/aqm/": "active queue management",
    "engine/packet/batch/": "batches of networks in one call",
    "engine/packet/rates/": "link rates that vary",
    "engine/fluid/": "fluid models of BBR, Reno and CUBIC",
    "engine/fluid/analysis/": "equilibria, stability and convergence of the fluid models",
    "simulation/": "an experiment of the packet engine: scenario, ranges, run, result, figure",
    "simulation/applications/": "pages, videos and calls over the packet engine",
    "simulation/boxes/": "the delay element per packet: its players, goals and game",
    "proofs/": "proofs and counterexamples",
    "proofs/solver/": "terms, solvers, stored answers: nothing here knows of networks",
    "proofs/formulas/": "laws, beliefs and moves as formulas",
    "proofs/senders/": "senders as formulas",
    "proofs/claims/": "what is asked: properties, lemmas, envelopes, fairness, and their reports",
    "proofs/theorems/": "theorems about unbounded runs: lemmas, their composition, certificates",
    "proofs/theorems/fairness/": "the theorem about any number of flows: design, tables, queries",
    "proofs/games/": "games of sender and network on integer grids: all boards, values, optimal play",
    "proofs/replay/": "counterexamples again, in exact arithmetic and in the curve engine",
    "proofs/certificates/": "certificates of theorems, and a checker that shares no code with the prover",
    "proofs/certificates/fairness/": "certificates of that theorem, and their checker, which decides in Fractions",
    "proofs/certificates/shipped/": "certificates of the shipped theorems, data only",
    "proofs/synthesis/": "all belief programs of a template that provably meet a query",
    "proofs/synthesis/query/": "queries, templates, objectives",
    "proofs/synthesis/search/": "searches over a template that leave out nothing",
    "attacks/": "the worst legal network for a sender, under a budget; found against proved",
    "attacks/searches/": "searches over the moves of the network",
    "attacks/constructions/": "the constructive proofs of [Starvation] as adversaries",
    "attacks/boxes/": "the same per packet: searches over a delay element",
    "envs/": "environments for Gymnasium and PettingZoo",
    "envs/common/": "what the environments of both engines share: tasks, seeds, adapters",
    "envs/curve/": "environments over the curve engine",
    "envs/packet/": "environments over the packet engine",
    "envs/rollouts/": "rollouts in the kernel",
    "envs/clients/": "adapters for Stable-Baselines3 and RLlib",
    "live/": "senders of real kernels on an emulated network: runs, attacks, records",
    "live/export/": "belief programs and policies as C for the kernel's BPF congestion controls",
    "live/emulator/": "the emulated network: one compiled loop between two devices",
    "live/system/": "namespaces, devices, sockets, programs in the kernel",
    "training/": "training by config, checkpoints, evaluation on held-out paths, records",
    "training/ppo/": "Stable-Baselines3's PPO with rollouts from the kernel",
    "training/recipes/": "what recipes of the literature add: certificates, imitation, preferences, curricula",
    "training/rllib/": "runs of RLlib",
    "training/league/": "populations of senders and adversaries that answer each other",
    "training/distill/": "from a policy to a belief program and its proof",
    "training/contracts/": "the widest contract around a program, hulls, the frontier",
    "benchmarks/": "suites and what runs them: stores, results, statistics, speed",
    "benchmarks/suite/": "what a suite file may say, published values",
    "benchmarks/suites/": "shipped suites, data only",
    "benchmarks/cells/": "the smallest part of a suite that runs",
    "benchmarks/run/": "the runner and its backends",
    "benchmarks/report/": "reports and figures of results",
    "benchmarks/fluid/": "pages and figures of fluid sweeps",
    "benchmarks/compare/": "senders side by side on one network; which CCA for a network",
    "benchmarks/rfc9743/": "one page that evaluates a sender along the criteria of RFC 9743",
    "__init__.py": "the face of the package; its names are imported at first use",
    "leaderboard/": "the board",
    "leaderboard/submission/": "submissions: read, compared, packed",
    "leaderboard/store/": "database, records, entries",
    "leaderboard/evaluate/": "the operator's queue: stages, scores, proofs",
    "leaderboard/audit/": "what stands on a board is decided again; exports and imports",
    "leaderboard/site/": "the board's pages",
    "cli/": "the command line, one file for each group of commands",
    "cli/templates/": "what `ccenv new` writes",
}
ORDER = [path.removesuffix(".py").rstrip("/") for path in ROOMS if path.count("/") < 2 and path.partition("/")[2] == ""]
PAGE = ROOT / "docs" / "architecture.md"
_TABLE = re.compile(r"^\| room \| holds \|\n\| --- \| --- \|\n(?:\| .*\n)+", re.MULTILINE)


def table() -> str:
    """Return the table of the page."""
    return "| room | holds |\n| --- | --- |\n" + "".join(f"| `{path}` | {holds} |\n" for path, holds in ROOMS.items())


def shown_table() -> str:
    """Return the table as the page has it."""
    (text,) = _TABLE.findall(PAGE.read_text(encoding="utf-8"))
    return str(text)


if __name__ == "__main__":
    PAGE.write_text(_TABLE.sub(lambda _: table(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
