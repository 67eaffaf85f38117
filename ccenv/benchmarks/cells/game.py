"""Cells of solved games: one sender against one network. Nothing is sampled; means where somebody draws are exact."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar

from ccenv.agents.identity import sender_hash
from ccenv.agents.load import load_sender
from ccenv.base.config import find_data, shipped_names, validate
from ccenv.base.errors import InputError
from ccenv.base.files import canonical_json, hash_value, plain
from ccenv.base.foreign import parse_json, read_bounded
from ccenv.base.foreign.tensors import MAX_FILE_BYTES
from ccenv.benchmarks.cells.cell import NO_ADDITIONS, Cell, Player, UserAdditions, nan_to_none
from ccenv.benchmarks.suite.game import GameSuite
from ccenv.proofs.games import players
from ccenv.proofs.games.boards import explore
from ccenv.proofs.games.game import Game
from ccenv.proofs.games.values import Solved


@dataclass(frozen=True, kw_only=True)
class GameCell(Cell):
    """A sender on a game, given by its fields, against the network that answers."""

    game: dict[str, Any]
    network: str

    per_task: ClassVar[int] = 8  # cells of one game stand together

    @property
    def opponent(self) -> str:
        return self.network

    def run(self) -> dict[str, Any]:
        """Play the cell and return its record: what it was, its metrics, and the line up to the first error."""
        solved = _solved(canonical_json(self.game))
        sender = players.sender_on(self.agent.spec, solved)
        line = players.first_error(sender, solved)
        metrics = {
            "regret": players.regret_of(sender, solved, self.network),
            "exploitability": players.regret_of(sender, solved) - solved.value,
            "optimal_share": players.optimal_share(sender, solved),
            "first_error_step": float(line[-1]["step"]) if line else float("nan"),
            "value": float(solved.value),
        }
        path = {"link_rate_Bps": solved.boards.game.rates[-1], "buffer_bytes": 0, "flows": [{"rtt_s": 1}]}
        kept = nan_to_none({name: metrics[name] for name in self.metrics})
        size = {"boards": len(solved.boards)}
        return self.record(str(self.game["model"]), path, parameters=size, metrics=kept, first_error=line)


@lru_cache(maxsize=2)
def _solved(game: str) -> Solved:
    return Solved(explore(validate(Game, parse_json(game, "game"), "game")))


def game_player(spec: str) -> Player:
    """Return the player of a sender of games: one of ``SENDERS``, or a belief program by name or file. Raises InputError."""
    if spec in players.POLICIES:
        stems = [stem for stem in shipped_names(players.WEIGHTS, ".safetensors") if stem.startswith(f"{spec}_")]
        weights = [
            read_bounded(find_data(players.WEIGHTS, stem, ".safetensors", "policy"), MAX_FILE_BYTES).hex() for stem in stems
        ]
        return Player(spec, "policy", spec, hash_value({"kind": "game", "spec": spec, "weights": weights}))
    if spec in players.SENDERS and spec.removeprefix(players.BOUNDS) not in players.PROGRAMS:
        return Player(spec, "game", spec, hash_value({"kind": "game", "spec": spec}))
    sender = load_sender(spec.removeprefix(players.BOUNDS))
    program = sender_hash(sender)
    if spec.startswith(players.BOUNDS):
        return Player(spec, "program", spec, hash_value({"kind": "bounds", "program": program}))
    return Player(sender.name, "program", spec, program)


def make_game_cells(suite: GameSuite, agents: list[Player], additions: UserAdditions = NO_ADDITIONS) -> list[GameCell]:
    """Return all cells of a suite, in its order. Raises InputError for adversaries or metrics of a user."""
    if additions.adversaries or additions.metrics:
        raise InputError(f"suite {suite.name!r} plays solved games: it takes no --adversary and no --metric")
    return [
        GameCell(
            suite=f"{suite.name}/{suite.version}",
            suite_sha256=suite.sha256,
            scenario=case.name,
            seed=seed,
            engine_seed=suite.run_key(case.name, seed),
            agent=agent,
            metrics=(*suite.metrics,),
            game=plain(case.data.model_dump(exclude={"summary", "source"})),
            network=network,
        )
        for case, agent, network, seed in product(suite.cases, agents, suite.networks, suite.seeds)
    ]
