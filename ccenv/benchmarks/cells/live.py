"""Cells of the real TCP stack: one live run, repeated until it is valid."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, ClassVar

from ccenv.base.errors import CcenvError, InputError
from ccenv.base.provenance import machine
from ccenv.benchmarks.cells.cell import NO_ADDITIONS, Cell, UserAdditions, nan_to_none
from ccenv.benchmarks.cells.packet import FIXED
from ccenv.benchmarks.suite.packet import NETWORK, LiveSuite
from ccenv.live.attacks import TRIES, attack_scenario, moves_against
from ccenv.live.comparison import simulate_live
from ccenv.live.run import valid_run
from ccenv.network.adversary import SUFFIX
from ccenv.network.metrics.table import measure_run
from ccenv.network.metrics.user import require_metric


@dataclass(frozen=True, kw_only=True)
class LiveCell(Cell):
    """A live run. All cells form one task, because concurrent runs would disturb each other."""

    sender: str
    moves: str  # sender against which they were found, or a file of moves
    moves_sha256: str
    calm: bool  # the path without the moves
    kernel: str  # release of the kernel that runs it
    cpu: str

    per_task: ClassVar[int] = 1_000_000

    @property
    def opponent(self) -> str:
        return NETWORK

    def run(self) -> dict[str, Any]:
        """Repeat the run until it is valid; return its record with the simulated utilisation and the emulator's punctuality.

        Raises CcenvError where this machine cannot run it, or no run is valid.
        """
        for user_metric in self.own_metrics:
            require_metric(user_metric)
        file = _file(self.moves)
        if _sha256(file) != self.moves_sha256:
            raise InputError(f"cell {self.name}: {file} changed since the suite was read")
        scenario = attack_scenario(self.sender, file, calm=self.calm)
        result = valid_run(scenario, TRIES)
        if not result.valid:
            tries = len(result.earlier) + 1
            raise CcenvError(f"cell {self.name}: no valid run in {tries}: {result.why_not_valid[0]}; run the same command again")
        measured, spans = result.run.measured(), [(scenario.warmup_s, scenario.duration_s)]
        metrics = {name: measure_run(measured, name, spans, None) for name in self.metrics}
        link, flow = scenario.links[0], scenario.flows[0]
        path = {"link_rate_Bps": link.rate_Bps, "buffer_bytes": link.buffer_bytes, "flows": [{"rtt_s": flow.rtt_s}]}
        summary = result.summary()
        return self.record(
            scenario.model,
            path,
            parameters={"sender": self.sender, "moves": self.moves, "calm": self.calm, "jitter_s": flow.jitter.max_s},
            metrics=nan_to_none(metrics),
            simulated={"utilisation": simulate_live(scenario).summary["links"][0]["utilisation"]},
            live={"kernel": self.kernel, "emulator": summary["emulator"]},
        )


def make_live_cells(suite: LiveSuite, additions: UserAdditions = NO_ADDITIONS) -> list[LiveCell]:
    """Return all cells of a suite. Raises InputError for adversaries of a user, or moves that are not there."""
    if additions.adversaries:
        raise InputError(f"suite {suite.name!r} plays stored moves: it takes no --adversary")
    return [
        LiveCell(
            suite=f"{suite.name}/{suite.version}",
            suite_sha256=suite.sha256,
            scenario=case.name,
            seed=seed,
            engine_seed=suite.run_key(case.name, seed),
            agent=FIXED,
            metrics=(*suite.metrics,),
            own_metrics=additions.metrics,
            sender=case.scenario.sender,
            moves=case.scenario.moves,
            moves_sha256=_sha256(_file(case.scenario.moves)),
            calm=case.calm,
            kernel=platform.release(),
            cpu=str(machine()["processor"]),
        )
        for case in suite.cases
        for seed in suite.seeds
    ]


def _file(moves: str) -> FilePath:
    return moves_against(moves, moves if moves.endswith(SUFFIX) else None)


def _sha256(file: FilePath) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from None
