"""Rounds of best responses ([PSRO] algorithm 1), with what each equilibrium leaves open.

In each round the game of the two populations is solved, both sides look for an answer to the other's mixture, and the answers
join. What they gain is the exploitability of the round's mixtures (NashConv), as far as these answers find it: a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import numpy as np

from ccenv.base.errors import CcenvError, InputError, require_extra
from ccenv.base.files import locked
from ccenv.base.provenance import code_hash
from ccenv.base.workers import Workers
from ccenv.training.league.answers import (
    START,
    TINY,
    answer_of_network,
    answer_of_sender,
    hold_out_part,
    name_of,
    network_part,
    play_hold_outs,
    sender_part,
    train_first,
)
from ccenv.training.league.config import LeagueConfig
from ccenv.training.league.games import (
    Mixtures,
    Payoffs,
    against,
    check_budgets,
    draw_scenes,
    equilibrium,
    nominal_scores,
    payoffs_on,
)
from ccenv.training.league.store import (
    CURVE,
    LEAGUE,
    PICTURE,
    RECORD,
    SENDERS,
    HoldOutPart,
    LeagueFolder,
    NetworkPart,
    Part,
    PartT,
    SenderPart,
)
from ccenv.training.path_sets import PathSet

RESAMPLES = 1000
Report = Callable[[int, int], None]


@dataclass
class Population:
    """Who is in the league, and what everybody gets.

    Attributes:
        senders: names.
        networks: names; each plays in every scene.
        specs: (N lists of M) what :meth:`LeagueFolder.network` takes.
        nominal: of each sender (P,).
        attacked: of each sender a list over networks of (M,).
    """

    senders: list[str] = field(default_factory=list)
    networks: list[str] = field(default_factory=list)
    specs: list[list[str]] = field(default_factory=list)
    nominal: list[np.ndarray] = field(default_factory=list)
    attacked: list[list[np.ndarray]] = field(default_factory=list)

    def payoffs(self, share: float) -> Payoffs:
        """Return the empirical game."""
        return Payoffs(np.array(self.nominal), np.array(self.attacked), share)


def league(
    config: LeagueConfig,
    folder: FilePath,
    *,
    jobs: int = 1,
    backend: str = "processes",
    fresh: bool = False,
    report: Report | None = None,
) -> dict[str, Any]:
    """Play a league, or go on with one of the same config in the same folder.

    An interrupted league, also a killed one, ends with the same numbers as an uninterrupted one; only ``timing`` differs. The
    number of jobs decides nothing.

    Args:
        config: the league.
        folder: where everything is written.
        jobs: workers.
        backend: ``processes`` or ``ray``.
        fresh: discard what the folder holds of an earlier league.
        report: called with the parts done and wanted.

    Returns:
        dict: what ``league.json`` in the folder says.

    Raises:
        MissingExtraError: if something that it needs is not installed.
        InputError: if the folder holds something else, or a league of another config or version.
        CcenvError: if a worker died; what was finished is kept.
    """
    require_extra("stable_baselines3", "train")
    require_extra("torch", "train")
    check_budgets(config)
    store = LeagueFolder(folder)
    code = code_hash(league)
    with Workers(jobs, backend) as workers, locked(folder, "league"):
        told = store.begin(config, code, fresh)
        return _League(config, store, workers, report).play(code, told)


class _Task(NamedTuple):
    """A part to be done: its name and kind, the function that does it, and what that gets beside folder and config."""

    name: str
    kind: type[Part]
    work: Callable[..., None]
    more: tuple[Any, ...]


class _League:
    """A league while it is played."""

    def __init__(self, config: LeagueConfig, store: LeagueFolder, workers: Workers, report: Report | None) -> None:
        self._config = config
        self._store = store
        self._workers = workers
        self._report = report
        self._scenes = draw_scenes(config)[0]
        self._done = 0
        self._parts = 1 + config.rounds * (1 + config.scenes.count + config.scenes.hold_outs)
        self._timing = {"seconds": 0.0, "cpu_seconds": 0.0}
        self._population = Population()

    def play(self, code: str, told: int) -> dict[str, Any]:
        """Play all rounds and return the record, which tells of some already."""
        config, people = self._config, self._population
        self._run([_Task(sender_part(None), SenderPart, train_first, ())])
        self._part(sender_part(None), SenderPart)
        for name in (START, *config.senders):
            self._add_sender(name)
        for name in config.networks:
            self._add_network(name, [name] * len(self._scenes))
        rounds: list[dict[str, Any]] = []
        for number in range(config.rounds):
            rounds.append(self._round(number))
            if number >= told:
                self._write(code, rounds, "running")
        return self._write(code, rounds, "finished", finish=people)

    def _add_sender(self, name: str) -> None:
        people, config = self._population, self._config
        player = self._store.sender(name)
        people.senders.append(name)
        people.nominal.append(nominal_scores(config, player))
        attacked = np.zeros((len(people.specs), len(self._scenes)))
        for k, path in enumerate(self._scenes if people.specs else ()):
            attacked[:, k] = payoffs_on(config, player, path, [self._store.network(specs[k]) for specs in people.specs])
        people.attacked.append(list(attacked))

    def _add_network(self, name: str, specs: list[str]) -> None:
        people = self._population
        people.networks.append(name)
        people.specs.append(specs)
        for row, sender in zip(people.attacked, people.senders, strict=True):
            player = self._store.sender(sender)
            values = [
                float(payoffs_on(self._config, player, path, [self._store.network(spec)])[0])
                for path, spec in zip(self._scenes, specs, strict=True)
            ]
            row.append(np.array(values))

    def _round(self, number: int) -> dict[str, Any]:
        config, people = self._config, self._population
        payoffs = people.payoffs(config.share)
        found = equilibrium(payoffs)
        senders = {name: float(x) for name, x in zip(people.senders, found.senders, strict=True) if x > TINY}
        networks = {"specs": people.specs, "weights": found.networks.tolist()}
        begins = self._begins(payoffs, found)
        tasks = [_Task(sender_part(number), SenderPart, answer_of_sender, (number, networks, begins))]
        for k in range(len(self._scenes)):
            known = list(dict.fromkeys(specs[k] for specs in people.specs))
            tasks.append(_Task(network_part(number, k), NetworkPart, answer_of_network, (number, k, senders, known)))
        for k in range(config.scenes.hold_outs):
            tasks.append(_Task(hold_out_part(number, k), HoldOutPart, play_hold_outs, (number, k, senders)))
        self._run(tasks)
        self._part(sender_part(number), SenderPart)
        answers = [self._part(network_part(number, k), NetworkPart) for k in range(len(self._scenes))]
        held_out = [self._part(hold_out_part(number, k), HoldOutPart) for k in range(config.scenes.hold_outs)]
        name = name_of(number)
        self._add_sender(name)
        after = people.payoffs(config.share)
        open_ = _exploitability(config, found, payoffs, after, np.array([part.payoff for part in answers]), number)
        for place in range(config.answers):
            self._add_network(f"{name}-{place}" if config.answers > 1 else name, [part.networks[place] for part in answers])
        after = people.payoffs(config.share)
        best = int(np.argmax(after.guarantees))
        return {
            "round": number,
            "value": found.value,
            **open_,
            "sender_mixture": senders,
            "network_mixture": {
                n: float(y) for n, y in zip(people.networks, found.networks.mean(axis=1), strict=False) if y > TINY
            },
            "sender_begins_as": begins,
            "network_payoffs": [part.payoff for part in answers],
            "network_searches": [part.search for part in answers],
            "hold_outs": self._hold_outs(held_out),
            "best_sender": people.senders[best],
            "best_guarantee": float(after.guarantees[best]),
            "best_nominal": float(after.nominal[best].mean()),
        }

    def _begins(self, payoffs: Payoffs, found: Mixtures) -> str:
        """Return the policy of the league that does best against the networks' mixture."""
        gets = against(payoffs, found.networks)
        trained = [i for i, name in enumerate(self._population.senders) if name not in self._config.senders]
        return self._population.senders[max(trained, key=lambda i: gets[i])]

    def _hold_outs(self, parts: list[HoldOutPart]) -> dict[str, Any]:
        by_adversary = {spec: [part.payoffs[spec] for part in parts] for spec in self._config.hold_outs}
        return {
            "mean": {spec: float(np.mean(values)) for spec, values in by_adversary.items()},
            "worst": {spec: float(np.min(values)) for spec, values in by_adversary.items()},
        }

    def _run(self, tasks: list[_Task]) -> None:
        """Do what is not done yet."""
        missing = [task for task in tasks if self._store.part(task.name, task.kind) is None]
        self._done += len(tasks) - len(missing)
        self._tell()
        running = [self._workers.submit(task.work, str(self._store.folder), self._config, *task.more) for task in missing]
        for result in running:
            result()
            self._done += 1
            self._tell()

    def _part(self, name: str, kind: type[PartT]) -> PartT:
        """Return what a part says, and add what it cost. Raises CcenvError if somebody has taken it away."""
        part = self._store.part(name, kind)
        if part is None:
            raise CcenvError(f"{self._store.folder}: {name} has been removed; run the same command again")
        config = self._config
        fits = not isinstance(part, NetworkPart) or len(part.networks) == config.answers
        if not fits or (isinstance(part, HoldOutPart) and set(part.payoffs) != set(config.hold_outs)):
            raise InputError(f"{self._store.folder}: {name} is not a part of this league; --fresh starts anew")
        self._timing["seconds"] += part.seconds
        self._timing["cpu_seconds"] += part.cpu_seconds
        return part

    def _tell(self) -> None:
        if self._report is not None:
            self._report(self._done, self._parts)

    def _write(self, code: str, rounds: list[dict[str, Any]], status: str, finish: Population | None = None) -> dict[str, Any]:
        config, people = self._config, self._population
        payoffs = people.payoffs(config.share)
        data: dict[str, Any] = {
            "name": config.name,
            "seed": config.seed,
            "status": status,
            "config": config.model_dump(mode="json"),
            "code": code,
            "rounds": rounds,
            "senders": people.senders,
            "networks": people.networks,
            "payoffs": payoffs.matrix.tolist(),
            "nominal": payoffs.nominal.mean(axis=1).tolist(),
            "exploitability": [one["exploitability"] for one in rounds],
        }
        if finish is not None:
            data |= self._end(payoffs)
        from ccenv.training.league.record import draw_curve, draw_payoffs

        draw_payoffs(self._store.folder / PICTURE, people.senders, people.networks, payoffs.matrix)
        draw_curve(self._store.folder / CURVE, rounds)
        data["timing"] = dict(self._timing)
        LEAGUE.write(self._store.folder / RECORD, data)
        return data

    def _end(self, payoffs: Payoffs) -> dict[str, Any]:
        """Return the last equilibrium, and the sender that guarantees most alone."""
        found, people = equilibrium(payoffs), self._population
        best = int(np.argmax(payoffs.guarantees))
        name = people.senders[best]
        trained = self._store.sender_folder(name).is_dir()
        reported = nominal_scores(self._config, self._store.sender(name), PathSet.REPORT)
        return {
            "value": found.value,
            "sender_mixture": {n: float(x) for n, x in zip(people.senders, found.senders, strict=True) if x > TINY},
            "best": {
                "sender": name,
                "folder": f"{SENDERS}/{name}" if trained else None,
                "guarantee": float(payoffs.guarantees[best]),
                "worst_in_each_scene": payoffs.attacked[best].min(axis=0).tolist(),
                "nominal_score": float(reported.mean()),
            },
        }


def _exploitability(
    config: LeagueConfig, found: Mixtures, before: Payoffs, after: Payoffs, answers: np.ndarray, number: int
) -> dict[str, Any]:
    """Return what both sides gain by their answers, with a bootstrapped interval over scenes and nominal paths.

    Args:
        config: of the league.
        found: the mixtures that were answered.
        before: the game that they solve.
        after: the same with the sender's answer as its last row.
        answers: (M,) what the senders' mixture gets against the network's answer.
        number: of the round.
    """
    x, y, share = found.senders, found.networks, config.share
    own_nominal = x @ before.nominal
    gets = against(after, y)[-1]
    if gets > found.value:
        nominal, attacked = after.nominal[-1], (after.attacked[-1] * y).sum(axis=0)
    else:
        nominal, attacked = own_nominal, (np.tensordot(x, before.attacked, 1) * y).sum(axis=0)
    sender_gain = max(0.0, float(gets) - found.value)
    network_gain = found.value - float((1 - share) * own_nominal.mean() + share * answers.mean())
    draw = np.random.Generator(np.random.Philox(key=[config.seed, number]))
    paths = draw.integers(0, len(nominal), (RESAMPLES, len(nominal)))
    scenes = draw.integers(0, len(answers), (RESAMPLES, len(answers)))
    again = (1 - share) * (nominal - own_nominal)[paths].mean(axis=1) + share * (attacked - answers)[scenes].mean(axis=1)
    low, high = np.quantile(again, [(1 - config.interval) / 2, (1 + config.interval) / 2])
    return {
        "exploitability": sender_gain + network_gain,
        "interval": [float(low), float(high)],
        "sender_gain": sender_gain,
        "network_gain": network_gain,
    }
