"""Searches against the kernel itself: the arena of ``ccenv attack``, in which every run is one of a guest in virtual time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.adversaries import ADVERSARIES as ADVERSARIES_OF_NETWORKS
from ccenv.agents import make_sender
from ccenv.agents.sender import Sender
from ccenv.attacks.catalog import Search
from ccenv.attacks.game import Found, Game, Scene, generator
from ccenv.attacks.run import CurveArena, build_searches, least_budget, play_attack
from ccenv.attacks.searches.mutation import mutate
from ccenv.attacks.store import FORMAT, AttackFolder
from ccenv.base.errors import InputError, unknown_name
from ccenv.base.files import hash_value
from ccenv.base.provenance import code_hash
from ccenv.base.registry import spec_text
from ccenv.live.attacks import about_path, moves_against, path_scenario, shipped_moves
from ccenv.live.comparison import COUNTERPARTS, simulate_live
from ccenv.live.result import LiveResult
from ccenv.live.scenario import KERNEL, LiveError, LiveScenario
from ccenv.live.virtual.run import require_controls, run_virtual
from ccenv.network.adversary import SUFFIX, Adversary, MovesHeader, RecordedAdversary, ScriptedAdversary, StoredMoves, load_moves
from ccenv.network.laws import Violation, check_trace
from ccenv.network.trace import Trace
from ccenv.simulation.packet_trace import packet_slack_bytes

ADVERSARIES = ("hoard", "square", "corners", "random_search", "stored")
PLAYED = ("corners", "random_search", "cem", "cma_es", "two_phase")  # searches that need only play(): no engine to copy
RUNS = 48  # of the guest, in all
MOST_RUNS = 100_000
FOLDER = FilePath("runs") / "live"
SIDE_BY_SIDE = 4  # guests at once, where there are as many cores


class KernelArena(CurveArena):
    """A path of stored moves on which a congestion control of the guest's kernel is attacked; the goal is its utilisation."""

    def __init__(self, control: str, file: FilePath, seed: int = 0) -> None:
        self._stored = load_moves(file)
        header, steps = self._stored.header, len(self._stored.moves)
        K = header.steps_per_rtt
        first = header.first_row // K
        super().__init__(
            Scene(
                make_sender("reno"), header.path, header.model, steps_per_rtt=K, warmup_rtts=first,
                window_rtts=steps // K - first, seed=seed,
            )
        )  # fmt: skip
        self._control = control

    @cached_property
    def sender(self) -> Sender:
        """A sender of the kernel's name; no engine plays it."""
        return replace(self.scene.sender, name=KERNEL + self._control)

    @property
    def name(self) -> str:
        return f"{self.scene.model}, Linux in virtual time"

    def searches(self, specs: Sequence[str]) -> dict[str, Search]:
        """Return the searches of some specs by name; ``stored`` is of this arena.

        Raises:
            UnknownNameError: for a search that copies engines, or an adversary that is not scripted.
        """
        scripted = ADVERSARIES_OF_NETWORKS.names()
        for spec in specs:
            if (name := spec.partition(":")[0]) not in (allowed := ("stored", *PLAYED, *scripted)):
                raise unknown_name("search against a kernel", name, allowed)
        found = super().searches([spec for spec in specs if spec != "stored"])
        return {spec.partition(":")[0]: found.get(spec.partition(":")[0]) or Stored(self._stored) for spec in specs}

    def run(self, adversary: Adversary | None) -> LiveResult:
        """Play a run; None: without jitter. Raises LiveError for a guest that ends early."""
        with tempfile.TemporaryDirectory(prefix="ccenv-") as folder:
            if adversary is not None and not isinstance(adversary, (RecordedAdversary, ScriptedAdversary)):
                raise InputError(f"{adversary!r} is neither scripted nor recorded: no guest plays it")
            spec = spec_text(adversary.name, adversary.parameters) if isinstance(adversary, ScriptedAdversary) else None
            if isinstance(adversary, RecordedAdversary):
                scene, file = self.scene, FilePath(folder) / f"played{SUFFIX}"
                header = MovesHeader(
                    path=scene.path, model=scene.model, steps_per_rtt=scene.steps_per_rtt,
                    dt_s=scene.path.flows[0].rtt_s / scene.steps_per_rtt, first_row=self.first_row, sender=self.sender.name,
                    adversary=adversary.name, utilisation=0.0,
                )  # fmt: skip
                StoredMoves(header, adversary.moves).save(file)
                spec = str(file)
            return run_virtual(self.scenario(spec), seed=self.scene.seed, phases=False)

    def scenario(self, spec: str | None) -> LiveScenario:
        """Return a run's scenario with an adversary, or a file of moves; None: without jitter."""
        scene = self.scene
        return path_scenario(self.sender.name, scene.path, scene.model, scene.steps_per_rtt, self.n_steps, self.first_row, spec)

    def play_adversaries(self, adversaries: Sequence[Adversary]) -> np.ndarray:
        """Return the utilisation against several adversaries; guests run side by side."""
        outcomes = []
        with ThreadPoolExecutor(min(SIDE_BY_SIDE, len(os.sched_getaffinity(0)))) as pool:
            for trace in pool.map(self.trace, adversaries):
                outcomes.append(self.measure(trace))
                self.flow_steps += self.run_flow_steps
                if self.report is not None:
                    self.report(self.flow_steps)
        return np.array(outcomes)

    def trace(self, adversary: Adversary) -> Trace:
        """Return the trace of one run, which is not counted. Raises LiveError for one that is not valid."""
        result = self.run(adversary)
        if not result.valid:
            raise LiveError(f"virtual: {self.sender.name}: {result.why_not_valid[0]}")
        return result.trace()

    def check(self, trace: Trace) -> Sequence[Violation]:
        """Check a trace against the laws of its model, with the slack of whole packets."""
        return check_trace(trace, slack_bytes=packet_slack_bytes(trace))


@dataclass(frozen=True)
class Stored:
    """The worst of given moves and of those that ccenv ships for their path, and then mutations of it."""

    first: StoredMoves
    weight: float = 2.0

    def moves(self, game: Game) -> dict[str, RecordedAdversary]:
        """Return these moves, and the shipped ones of the game's path and grid, by the sender that they were found against."""
        scene, stored = game.scene, {name: load_moves(file) for name, file in shipped_moves().items()}
        return {
            name: RecordedAdversary("stored", one.moves)
            for name, one in {**stored, self.first.header.sender: self.first}.items()
            if (one.header.path, one.header.model, len(one.moves)) == (scene.path, scene.model, game.n_steps)
        }

    def least_flow_steps(self, game: Game) -> int:
        """Return the cost of the shipped moves."""
        return len(self.moves(game)) * game.run_flow_steps

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the worst sequence of moves."""
        stored, before = self.moves(game), game.flow_steps
        outcomes = game.play_adversaries(list(stored.values()))
        found_against = list(stored)[int(outcomes.argmin())]
        left = budget_flow_steps - (game.flow_steps - before)
        moves, outcome = mutate(game, stored[found_against].moves, float(outcomes.min()), left, generator(seed, "stored"))
        details = {"found_against": found_against, "before_mutation": float(outcomes.min()), "after_mutation": outcome}
        return Found(RecordedAdversary("stored", moves), details=details)


def attack_virtual(
    control: str,
    *,
    moves: str | None = None,
    runs: int = RUNS,
    seed: int = 0,
    adversaries: Sequence[str] = ADVERSARIES,
    calm: bool = True,
    out: FilePath | None = None,
    report: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Search moves against a congestion control of the guest's kernel, on the path of stored moves; resumable in its folder.

    Args:
        control: its name, ``cubic`` or ``kernel:cubic``.
        moves: a file of ``ccenv attack`` whose path holds, instead of the shipped one for its counterpart (without one, of reno).
        runs: of the guest in all; the share of each search is that of ``ccenv attack``.
        seed: of the searches and the guest.
        adversaries: searches over sequences of moves, scripted adversaries, and ``stored``.
        calm: also run without jitter.
        out: folder; by default in runs/live.
        report: receives the flow-steps spent and allowed.

    Returns:
        dict: of ``ccenv live attack`` (``live`` is the worst utilisation, ``simulated`` that of the same moves in the engine,
        None for moves that are not recorded), and of ``ccenv attack``.
    """
    control = control.removeprefix(KERNEL)
    require_controls([control])
    if not 1 <= runs <= MOST_RUNS:
        raise InputError(f"-s runs is {runs}; it must be 1 to {MOST_RUNS}")
    shipped = shipped_moves()
    file = moves_against(control if moves or COUNTERPARTS.get(control) in shipped else "reno", moves)
    arena = KernelArena(control, file, seed)
    code = code_hash(attack_virtual)
    about = {"control": control, "path": arena.scene.path.to_dict(), "model": arena.scene.model, "runs": runs, "seed": seed}
    key = hash_value({**about, "adversaries": list(adversaries)})
    folder = AttackFolder(out or FOLDER / f"attack-{control}-{key[:8]}", FORMAT, key, code, first_row=arena.first_row)
    least = -(-least_budget(arena, build_searches(arena, adversaries)) // arena.run_flow_steps)
    if runs < least:
        raise InputError(f"-s runs is {runs}; {', '.join(adversaries)} take at least {least}")
    with folder:
        folder.budget_flow_steps = budget = runs * arena.run_flow_steps
        result = play_attack(
            arena, adversaries, budget, seed, report=report, finished=folder.add, known=folder.findings, older=folder.older
        )
        data = folder.store_result(result)
    worst = result.worst
    simulated = None
    if control in COUNTERPARTS:
        spec = data["by_adversary"][result.worst_adversary]["spec"]
        played = spec if worst.moves is None else str(folder.path / FilePath(data["moves"]).name)
        simulated = simulate_live(arena.scenario(played)).summary["links"][0]["utilisation"]
    quiet = arena.run(None) if calm else None
    return data | {
        **about_path(load_moves(file).header),
        "sender": arena.sender.name,
        "found_against": arena.sender.name,
        "found_by": result.worst_adversary,
        "simulated": simulated,
        "live": result.worst_utilisation,
        **({} if quiet is None else {"calm": quiet.summary()["links"][0]["utilisation"]}),
        "valid": result.legal and (quiet is None or quiet.valid),
        "why_not_valid": [*worst.violations, *(() if quiet is None else quiet.why_not_valid)],
    }
