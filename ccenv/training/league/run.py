"""Rounds of best responses ([PSRO] algorithm 1), with the exploitability of each equilibrium.

Each round solves the game of the two populations, searches an answer of each side to the other's mixture, and adds the answers.
Their gain is a lower bound of the exploitability of the round's mixtures (NashConv).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ccenv.base.errors import CcenvError, InputError, require_extra
from ccenv.base.provenance import code_hash
from ccenv.base.workers import Workers
from ccenv.training.league.answers import TINY, play_hold_outs, search_answer, train_answer, train_first
from ccenv.training.league.config import LeagueConfig
from ccenv.training.league.games import (
    Mixtures,
    Payoffs,
    check_budgets,
    draw_scenes,
    equilibrium,
    nominal_scores,
    payoffs_against,
    play_payoffs,
)
from ccenv.training.league.store import (
    CURVE,
    PICTURE,
    SENDERS,
    START,
    HoldOutPart,
    LeagueFolder,
    NetworkPart,
    Part,
    SenderPart,
    hold_out_part,
    network_part,
    round_name,
    sender_part,
)
from ccenv.training.path_sets import PathSet

RESAMPLES = 1000
Report = Callable[[int, int], None]
PartT = TypeVar("PartT", bound=Part)


@dataclass
class Population:
    """Senders and networks of the league, by name, and their payoffs; each network plays in every scenario."""

    senders: list[str] = field(default_factory=list)
    networks: list[str] = field(default_factory=list)
    specs: list[list[str]] = field(default_factory=list)  # (N lists of M) arguments of :meth:`LeagueFolder.network`
    nominal: list[np.ndarray] = field(default_factory=list)  # of each sender (P,)
    attacked: list[list[np.ndarray]] = field(default_factory=list)  # of each sender a list over networks of (M,)

    def payoffs(self, share: float) -> Payoffs:
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
    """Play a league, or resume one of the same config in the same folder; return the content of its ``league.json``.

    A resumed league, also after a kill, ends with the same numbers as an uninterrupted one; only ``timing`` differs. Results do
    not depend on the number of jobs. Finished rounds of other code are kept; they have its hash as ``code``, and in ``replayed``
    whether this code gets the same round from their answers. ``report`` gets the numbers of finished and of all parts.

    Raises:
        MissingExtraError: if a needed extra is not installed.
        InputError: if the folder holds something else, or a league of another config.
        CcenvError: if a worker died; finished parts are kept.
    """
    require_extra("stable_baselines3", "train")
    require_extra("torch", "train")
    check_budgets(config)
    code = code_hash(league)
    with Workers(jobs, backend) as workers, LeagueFolder(folder, config, fresh) as store:
        return _League(config, store, workers, report).play(code, store.begin(config, code))


class _Task(NamedTuple):
    """A part to compute: its name and type, the function, and its arguments besides folder and config."""

    name: str
    kind: type[Part]
    work: Callable[..., None]
    more: tuple[Any, ...]


class _League:
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

    def play(self, code: str, recorded: list[dict[str, Any]]) -> dict[str, Any]:
        """Play all rounds and return the record, which already has the first, ``recorded``."""
        config, population = self._config, self._population
        self._run([_Task(sender_part(None), SenderPart, train_first, ())])
        self._part(sender_part(None), SenderPart)
        for name in (START, *config.senders):
            self._add_sender(name)
        for name in config.networks:
            self._add_network(name, [name] * len(self._scenes))
        rounds: list[dict[str, Any]] = []
        for number in range(config.rounds):
            played = self._round(number)
            if number < len(recorded) and "code" in recorded[number]:
                older = {key: value for key, value in recorded[number].items() if key not in ("code", "replayed")}
                played = recorded[number] | {"replayed": played == older}
            rounds.append(played)
            if number >= len(recorded):
                self._write(code, rounds, "running")
        return self._write(code, rounds, "finished", finish=population)

    def _add_sender(self, name: str) -> None:
        population, config = self._population, self._config
        policy = self._store.sender(name)
        population.senders.append(name)
        population.nominal.append(nominal_scores(config, policy))
        attacked = np.zeros((len(population.specs), len(self._scenes)))
        for k, path in enumerate(self._scenes if population.specs else ()):
            attacked[:, k] = play_payoffs(config, policy, path, [self._store.network(specs[k]) for specs in population.specs])
        population.attacked.append(list(attacked))

    def _add_network(self, name: str, specs: list[str]) -> None:
        population = self._population
        population.networks.append(name)
        population.specs.append(specs)
        for row, sender in zip(population.attacked, population.senders, strict=True):
            policy = self._store.sender(sender)
            values = [
                float(play_payoffs(self._config, policy, path, [self._store.network(spec)])[0])
                for path, spec in zip(self._scenes, specs, strict=True)
            ]
            row.append(np.array(values))

    def _round(self, number: int) -> dict[str, Any]:
        config, population = self._config, self._population
        payoffs = population.payoffs(config.share)
        mixtures = equilibrium(payoffs)
        senders = {name: float(x) for name, x in zip(population.senders, mixtures.senders, strict=True) if x > TINY}
        networks = {"specs": population.specs, "weights": mixtures.networks.tolist()}
        begins = self._choose_start(payoffs, mixtures)
        tasks = [_Task(sender_part(number), SenderPart, train_answer, (number, networks, begins))]
        for k in range(len(self._scenes)):
            specs_in_scene = list(dict.fromkeys(specs[k] for specs in population.specs))
            tasks.append(_Task(network_part(number, k), NetworkPart, search_answer, (number, k, senders, specs_in_scene)))
        for k in range(config.scenes.hold_outs):
            tasks.append(_Task(hold_out_part(number, k), HoldOutPart, play_hold_outs, (number, k, senders)))
        self._run(tasks)
        self._part(sender_part(number), SenderPart)
        answers = [self._part(network_part(number, k), NetworkPart) for k in range(len(self._scenes))]
        held_out = [self._part(hold_out_part(number, k), HoldOutPart) for k in range(config.scenes.hold_outs)]
        name = round_name(number)
        self._add_sender(name)
        after = population.payoffs(config.share)
        open_ = _exploitability(config, mixtures, payoffs, after, np.array([part.payoff for part in answers]), number)
        for rank in range(config.answers):
            self._add_network(f"{name}-{rank}" if config.answers > 1 else name, [part.networks[rank] for part in answers])
        after = population.payoffs(config.share)
        best = int(np.argmax(after.guarantees))
        return {
            "round": number,
            "value": mixtures.value,
            **open_,
            "sender_mixture": senders,
            "network_mixture": {
                n: float(y) for n, y in zip(population.networks, mixtures.networks.mean(axis=1), strict=False) if y > TINY
            },
            "sender_begins_as": begins,
            "network_payoffs": [part.payoff for part in answers],
            "network_searches": [part.search for part in answers],
            "hold_outs": self._hold_outs(held_out),
            "best_sender": population.senders[best],
            "best_guarantee": float(after.guarantees[best]),
            "best_nominal": float(after.nominal[best].mean()),
        }

    def _choose_start(self, payoffs: Payoffs, mixtures: Mixtures) -> str:
        payoffs_of_senders = payoffs_against(payoffs, mixtures.networks)
        trained = [i for i, name in enumerate(self._population.senders) if name not in self._config.senders]
        return self._population.senders[max(trained, key=lambda i: payoffs_of_senders[i])]

    def _hold_outs(self, parts: list[HoldOutPart]) -> dict[str, Any]:
        by_adversary = {spec: [part.payoffs[spec] for part in parts] for spec in self._config.hold_outs}
        return {
            "mean": {spec: float(np.mean(values)) for spec, values in by_adversary.items()},
            "worst": {spec: float(np.min(values)) for spec, values in by_adversary.items()},
        }

    def _run(self, tasks: list[_Task]) -> None:
        missing = [task for task in tasks if self._store.part(task.name, task.kind) is None]
        self._done += len(tasks) - len(missing)
        self._report_progress()
        running = [self._workers.submit(task.work, str(self._store.path), self._config, *task.more) for task in missing]
        for result in running:
            result()
            self._done += 1
            self._report_progress()

    def _part(self, name: str, kind: type[PartT]) -> PartT:
        """Return a part and add its times. Raises CcenvError if the part has been removed."""
        part = self._store.part(name, kind)
        if part is None:
            raise CcenvError(f"{self._store.path}: {name} has been removed; run the same command again")
        config = self._config
        fits = not isinstance(part, NetworkPart) or len(part.networks) == config.answers
        if not fits or (isinstance(part, HoldOutPart) and set(part.payoffs) != set(config.hold_outs)):
            raise InputError(f"{self._store.path}: {name} is not a part of this league; --fresh starts anew")
        self._timing["seconds"] += part.seconds
        self._timing["cpu_seconds"] += part.cpu_seconds
        return part

    def _report_progress(self) -> None:
        if self._report is not None:
            self._report(self._done, self._parts)

    def _write(self, code: str, rounds: list[dict[str, Any]], status: str, finish: Population | None = None) -> dict[str, Any]:
        config, population = self._config, self._population
        payoffs = population.payoffs(config.share)
        data: dict[str, Any] = {
            "name": config.name,
            "seed": config.seed,
            "status": status,
            "config": config.model_dump(mode="json"),
            "code": code,
            "rounds": rounds,
            "senders": population.senders,
            "networks": population.networks,
            "payoffs": payoffs.matrix.tolist(),
            "nominal": payoffs.nominal.mean(axis=1).tolist(),
            "exploitability": [one["exploitability"] for one in rounds],
        }
        if finish is not None:
            data |= self._end(payoffs)
        from ccenv.training.league.record import draw_curve, draw_payoffs

        draw_payoffs(self._store.path / PICTURE, population.senders, population.networks, payoffs.matrix)
        draw_curve(self._store.path / CURVE, rounds)
        data["timing"] = dict(self._timing)
        self._store.write(data)
        return data

    def _end(self, payoffs: Payoffs) -> dict[str, Any]:
        """Return the last equilibrium, and the single sender with the highest guarantee."""
        mixtures, population = equilibrium(payoffs), self._population
        best = int(np.argmax(payoffs.guarantees))
        name = population.senders[best]
        trained = self._store.sender_folder(name).is_dir()
        reported = nominal_scores(self._config, self._store.sender(name), PathSet.REPORT)
        return {
            "value": mixtures.value,
            "sender_mixture": {n: float(x) for n, x in zip(population.senders, mixtures.senders, strict=True) if x > TINY},
            "best": {
                "sender": name,
                "folder": f"{SENDERS}/{name}" if trained else None,
                "guarantee": float(payoffs.guarantees[best]),
                "worst_in_each_scene": payoffs.attacked[best].min(axis=0).tolist(),
                "nominal_score": float(reported.mean()),
            },
        }


def _exploitability(
    config: LeagueConfig, mixtures: Mixtures, before: Payoffs, after: Payoffs, answers: np.ndarray, number: int
) -> dict[str, Any]:
    """Return both sides' gains by their answers, with a bootstrapped interval over scenarios and nominal paths.

    ``mixtures`` solve the game ``before``; ``after`` has the sender's answer as its last row; ``answers`` are the payoffs, (M,),
    of the senders' mixture against the network's answer.
    """
    x, y, share = mixtures.senders, mixtures.networks, config.share
    mixture_nominal = x @ before.nominal
    answer_payoff = payoffs_against(after, y)[-1]
    if answer_payoff > mixtures.value:
        nominal, attacked = after.nominal[-1], (after.attacked[-1] * y).sum(axis=0)
    else:
        nominal, attacked = mixture_nominal, (np.tensordot(x, before.attacked, 1) * y).sum(axis=0)
    sender_gain = max(0.0, float(answer_payoff) - mixtures.value)
    network_gain = mixtures.value - float((1 - share) * mixture_nominal.mean() + share * answers.mean())
    draw = np.random.Generator(np.random.Philox(key=[config.seed, number]))
    paths = draw.integers(0, len(nominal), (RESAMPLES, len(nominal)))
    scenes = draw.integers(0, len(answers), (RESAMPLES, len(answers)))
    resampled = (1 - share) * (nominal - mixture_nominal)[paths].mean(axis=1) + share * (attacked - answers)[scenes].mean(axis=1)
    low, high = np.quantile(resampled, [(1 - config.interval) / 2, (1 + config.interval) / 2])
    return {
        "exploitability": sender_gain + network_gain,
        "interval": [float(low), float(high)],
        "sender_gain": sender_gain,
        "network_gain": network_gain,
    }
