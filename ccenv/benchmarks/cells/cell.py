"""Cells, the single runs of a suite, with the key that identifies a result; and players: senders and adversaries with hashes."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any, ClassVar

from ccenv.adversaries import make_adversary
from ccenv.adversaries.load import USER_ADVERSARIES, load_adversary
from ccenv.agents import AGENTS, make_sender
from ccenv.agents.identity import adversary_hash, sender_hash
from ccenv.agents.load import USER_SENDERS, load_sender
from ccenv.agents.sender import ClassicSender, ExternalSender, PolicySender, ProgramSender, Sender, ShieldSender, bare
from ccenv.base.errors import InputError
from ccenv.base.files import hash_value
from ccenv.base.provenance import code_hash
from ccenv.base.user.python_file import hash_files, held
from ccenv.benchmarks.suite.curve import Case, Suite
from ccenv.network.adversary import Adversary, ExternalAdversary, MlpAdversary, RecordedAdversary, ScriptedAdversary
from ccenv.network.metrics.table import OF_TRACE, measure
from ccenv.network.metrics.trace import Window
from ccenv.network.metrics.user import OwnMetric, require_metric
from ccenv.network.path import Path
from ccenv.network.trace import Trace

FILE = "file"
_KINDS: dict[type, str] = {
    ClassicSender: "classic",
    ProgramSender: "program",
    ShieldSender: "contract",  # the word of stored manifests
    PolicySender: "policy",
    ScriptedAdversary: "scripted",
    RecordedAdversary: "recorded",
    MlpAdversary: "learned",
}


@dataclass(frozen=True)
class Player:
    """A sender or adversary of a run."""

    label: str  # its name in tables
    # of a sender (`classic`, `program`, `shield`, `policy`) or adversary (`scripted`, `recorded`, `learned`); `file`: code of a
    # user (a Python file or an installed plugin)
    kind: str
    spec: str  # builds it (`make_sender`, `make_adversary`)
    sha256: str  # content hash, so that a changed file is noticed
    source_sha256: str = ""  # of the user's Python file; a worker runs no other


def agent_player(spec: str, label: str | None = None, *, code: bool = False) -> Player:
    """Return the player of a sender spec, labelled in tables by the sender's name unless a label is given.

    With ``code`` the spec may name a Python file or plugin, whose code then runs: set it only for specs that the user gave.
    Raises InputError for senders that only an environment can drive.
    """
    sender = load_sender(spec) if code else make_sender(spec)
    if isinstance(sender, ExternalSender):
        raise InputError(f"agent {spec!r} has no rule of its own: it cannot be benchmarked")
    player_kind = FILE if code and USER_SENDERS.is_user(spec) else _KINDS[type(bare(sender))]
    return Player(label or sender.name, player_kind, spec, sender_hash(sender), getattr(sender, "source_sha256", ""))


def label_of(spec: str) -> str | None:
    """Return the label of a sender that ccenv registers, its spec; None for others, which have their own name."""
    return spec if spec.partition(":")[0] in AGENTS else None


def adversary_player(spec: str, *, code: bool = False) -> Player:
    """Return the player of an adversary spec; arguments and errors as of :func:`agent_player`."""
    adversary = load_adversary(spec) if code else make_adversary(spec)
    if isinstance(adversary, ExternalAdversary):
        raise InputError(f"adversary {spec!r} has no rule of its own: it cannot be benchmarked")
    if code and USER_ADVERSARIES.is_user(spec):
        return Player(adversary.name, FILE, spec, adversary_hash(adversary), getattr(adversary, "source_sha256", ""))
    return Player(spec, _KINDS[type(adversary)], spec, adversary_hash(adversary))


def build_sender(player: Player) -> Sender:
    """Build the sender of a player. Raises InputError if it changed since its hash was taken."""
    if player.kind == FILE:
        with held(_source(player)):
            sender = load_sender(player.spec)
    else:
        sender = make_sender(player.spec)
    if sender_hash(sender) != player.sha256:
        raise InputError(f"agent {player.spec!r} changed while the benchmark ran: run it again")
    return sender


def build_adversary(player: Player) -> Adversary:
    """Build the adversary of a player. Raises InputError if it changed since its hash was taken."""
    if player.kind != FILE:
        return make_adversary(player.spec)
    with held(_source(player)):
        adversary = load_adversary(player.spec)
    if adversary_hash(adversary) != player.sha256:
        raise InputError(f"adversary {player.spec!r} changed while the benchmark ran: run it again")
    return adversary


def _source(player: Player) -> dict[FilePath, str]:
    """Return what :func:`held` takes: the Python file of a player; nothing for a plugin."""
    return dict.fromkeys(hash_files([player.spec]), player.source_sha256)


@dataclass(frozen=True)
class UserAdditions:
    """Adversaries and metrics that a user adds to a suite."""

    adversaries: tuple[Player, ...] = ()
    metrics: tuple[OwnMetric, ...] = ()

    def without(self, specs: Sequence[str]) -> list[str]:
        labels = {player.label for player in self.adversaries}
        return [spec for spec in specs if spec not in labels]


NO_ADDITIONS = UserAdditions()


@dataclass(frozen=True, kw_only=True)
class Cell(ABC):
    """Everything that determines the numbers of one run."""

    suite: str  # name and version
    suite_sha256: str
    scenario: str  # name of the case
    seed: int
    engine_seed: int  # keys the random numbers; follows from suite, case and seed
    agent: Player  # the sender under test
    metrics: tuple[str, ...]
    own_metrics: tuple[OwnMetric, ...] = ()

    per_task: ClassVar[int] = 1

    @property
    @abstractmethod
    def opponent(self) -> str:
        """Name of the adversary in tables."""

    @abstractmethod
    def run(self) -> dict[str, Any]:
        """Play the cell and return its record.

        Raises InputError if a player's file changed since the cell was made; EngineError if the run breaks a law of its model:
        such a number would mean nothing.
        """

    @property
    def name(self) -> str:
        """What ``--only`` matches: scenario/agent/adversary/seed."""
        return f"{self.scenario}/{self.agent.label}/{self.opponent}/{self.seed}"

    @property
    def code(self) -> str:
        """Hash of the code that plays it."""
        return code_hash(type(self))

    @cached_property
    def key(self) -> str:
        """Hash of the cell and of the code that plays it: identifies its result."""
        data = asdict(self)
        for player in (data["agent"], data.get("adversary", {}), *data.get("competitors", ()), *data["own_metrics"]):
            player.pop("spec", None)  # the location of a player's file does not matter
        return hash_value({**data, "code": self.code})[:32]

    def record(self, model: str, path: dict[str, Any], **results: Any) -> dict[str, Any]:
        return {
            "key": self.key,
            "code_sha256": self.code,
            "agent_sha256": self.agent.sha256,
            "scenario": self.scenario,
            "agent": self.agent.label,
            "adversary": self.opponent,
            "seed": self.seed,
            "engine_seed": self.engine_seed,
            "model": model,
            "path": path,
            **results,
        }


@dataclass(frozen=True, kw_only=True)
class TraceCell(Cell):
    """A cell whose run is a trace of the curve engine, played or attacked; ``path`` as data, ``steps_per_rtt`` is K."""

    model: str
    path: dict[str, Any]
    steps_per_rtt: int
    adversary: Player

    @property
    def opponent(self) -> str:
        """The adversary's label."""
        return self.adversary.label

    @abstractmethod
    def trace(self) -> Trace:
        """Play the cell and return its legal trace. Raises as :meth:`run`."""

    @abstractmethod
    def window(self, trace: Trace) -> Window:
        """Return the part of its trace that is measured."""

    def values(self, trace: Trace) -> dict[str, float | None]:
        """Return the metrics of its trace; None where one is undefined."""
        for user_metric in self.own_metrics:
            require_metric(user_metric)
        return nan_to_none(measure(self.window(trace), self.metrics))


def nan_to_none(values: Mapping[str, float]) -> dict[str, float | None]:
    """Return metrics with None for NaN, as records have them."""
    return {name: None if math.isnan(value) else value for name, value in values.items()}


def trace_cells(
    suite: Suite,
    agents: Sequence[Player],
    adversaries: Sequence[Player],
    user_metrics: tuple[OwnMetric, ...],
    keys: int = 1 << 53,
    seeds: Sequence[int] | None = None,
) -> Iterator[tuple[Case, Path, dict[str, Any]]]:
    """Yield case, path and the fields of :class:`TraceCell` for every cell of a suite, in its order."""
    seeds = suite.seeds if seeds is None else seeds
    for case, agent, adversary, seed in itertools.product(suite.cases, agents, adversaries, seeds):
        key = suite.run_key(case.name, seed) % keys
        path = case.path(key)
        yield (
            case,
            path,
            {
                "suite": f"{suite.name}/{suite.version}",
                "suite_sha256": suite.sha256,
                "scenario": case.name,
                "seed": seed,
                "engine_seed": key,
                "agent": agent,
                "metrics": (*(name for name in OF_TRACE if name in suite.metrics), *(metric.name for metric in user_metrics)),
                "own_metrics": user_metrics,
                "model": case.scenario.model,
                "path": path.to_dict(),
                "steps_per_rtt": suite.steps_per_rtt,
                "adversary": adversary,
            },
        )
