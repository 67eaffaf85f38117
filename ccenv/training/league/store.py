"""The folder of a league: its settings, senders and networks, and the finished parts of rounds.

A part is the result of one task. Its document is written last, with hashes of itself and of the task's files, so a killed league
resumes with complete and undamaged parts.
"""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

from pydantic import Field

from ccenv.adversaries import make_adversary
from ccenv.adversaries.learned import load_adversary, save_adversary
from ccenv.agents import make_sender
from ccenv.agents.sender import Sender
from ccenv.base.config import StrictModel
from ccenv.base.errors import InputError
from ccenv.base.files import Format, make_folder, write_atomic
from ccenv.base.foreign import resolve_inside
from ccenv.base.store import ANY, ResultFolder
from ccenv.network.adversary import SUFFIX, Adversary, MlpAdversary, MovesHeader, RecordedAdversary, StoredMoves, load_moves
from ccenv.network.path import Path
from ccenv.training.league.config import MODEL, LeagueConfig

LEAGUE = Format("ccenv-league", 1, "the record of a league", older="--fresh starts anew")
PART = Format("ccenv-league-part", 2, "a part of a league", older="--fresh starts anew")
RECORD, CONFIG, SENDERS, NETWORKS, START = "league.json", "config.yaml", "senders", "networks", "start"
PICTURE, CURVE = "payoffs.png", "exploitability.png"
_POLICY = ".safetensors"  # of a network that is a policy


class Part(StrictModel):
    """The times of a finished part."""

    seconds: float = Field(ge=0, allow_inf_nan=False)
    cpu_seconds: float = Field(ge=0, allow_inf_nan=False)


class SenderPart(Part):
    """A sender's answer: the environment steps of its training."""

    steps: int = Field(ge=1, strict=True)


class NetworkPart(Part):
    """The network's answers in a scenario.

    Attributes:
        payoff: of the senders' mixture against the first answer.
        networks: arguments of :meth:`LeagueFolder.network`, the worst first.
        search: that found the first; None: it was in the population.
        found: payoff of the mixture against the worst adversary of each search.
        flow_steps: of the searches.
    """

    payoff: float = Field(allow_inf_nan=False)
    networks: tuple[str, ...] = Field(min_length=1)
    search: str | None
    found: dict[str, float]
    flow_steps: int = Field(ge=0, strict=True)


class HoldOutPart(Part):
    """Payoffs of a mixture of senders against each hold-out in a scenario."""

    payoffs: dict[str, float]


def sender_part(round_: int | None) -> str:
    """Return the name of the part of a sender's answer; None: of the first policy."""
    return f"{SENDERS}/{START if round_ is None else round_name(round_)}"


def network_part(round_: int, scene: int) -> str:
    return f"{NETWORKS}/{round_name(round_)}-scene-{scene:02d}"


def hold_out_part(round_: int, scene: int) -> str:
    return f"{NETWORKS}/{round_name(round_)}-hold-out-{scene:02d}"


def round_name(round_: int) -> str:
    """Return the name of a round, and of the sender that it trained."""
    return f"round-{round_:02d}"


class LeagueFolder(ResultFolder):
    """The folder of a league; without ``config`` it is only read."""

    def __init__(self, folder: FilePath, config: LeagueConfig | None = None, fresh: bool = False) -> None:
        key = None if config is None else {"config": config.model_dump(mode="json") | {"rounds": ANY}}
        owns = (SENDERS, NETWORKS, PICTURE, CURVE)
        super().__init__(folder, "a league", RECORD, LEAGUE, key, fresh=fresh, owns=owns, parts=PART)

    def begin(self, config: LeagueConfig, code: str) -> list[dict[str, Any]]:
        """Write the settings of a new league, or return the rounds of an earlier run; those of other code have it as ``code``.

        No round is decided by two codes: an unfinished one of other code is removed, and so are all from one of other code on of
        which a part is missing. Raises InputError if there are more rounds than asked for.
        """
        if self.stored is None:
            self.write({"config": config.model_dump(mode="json"), "code": code, "status": "running", "rounds": []})
            write_atomic(self.path / CONFIG, config.to_yaml().encode())
        for name in (SENDERS, NETWORKS):
            make_folder(self.path / name)
        stored = self.stored or {"code": code}
        rounds: list[dict[str, Any]] = stored["rounds"] if isinstance(stored.get("rounds"), list) else []
        if len(rounds) > config.rounds:
            raise InputError(f"rounds is {config.rounds}, but {self.path} holds {len(rounds)} already; --fresh discards them")
        is_older = stored.get("code") != code
        for one in rounds if is_older else ():
            one.setdefault("code", stored.get("code"))
        whole = next((n for n, one in enumerate(rounds) if "code" in one and not self._is_whole(config, n)), len(rounds))
        if is_older or whole < len(rounds):
            names = [round_name(number) for number in range(whole, len(rounds) + 1)]
            parts = [f"*/{name}{rest}" for name in names for rest in ("", "[.-]*")]
            self.remove(*(parts if whole else (f"{SENDERS}/*", f"{NETWORKS}/*")))
        return rounds[:whole]

    def _is_whole(self, config: LeagueConfig, round_: int) -> bool:
        scenes = config.scenes
        parts = [sender_part(None), sender_part(round_), *(network_part(round_, k) for k in range(scenes.count))]
        parts += [hold_out_part(round_, k) for k in range(scenes.hold_outs)]
        return all((self.path / f"{part}.part.json").is_file() for part in parts)

    def sender_folder(self, name: str) -> FilePath:
        return self.path / SENDERS / name

    def save_network(self, name: str, adversary: Adversary, config: LeagueConfig, path: Path, about: dict[str, Any]) -> str:
        """Write the finding of a search under a part's name; return its file, for :meth:`network`."""
        if isinstance(adversary, MlpAdversary):
            save_adversary(self.path / name, adversary, about)
            return f"{name}{_POLICY}"
        if not isinstance(adversary, RecordedAdversary):
            raise InputError(f"{name}: a search found {type(adversary).__name__}, neither moves nor a policy")
        K = config.steps_per_rtt
        header = MovesHeader(
            path=path,
            model=MODEL,
            steps_per_rtt=K,
            dt_s=path.flows[0].rtt_s / K,
            first_row=config.warmup_rtts * K,
            sender=about["sender"],
            adversary=about["search"],
            utilisation=about["payoff"],
        )
        StoredMoves(header, adversary.moves).save(self.path / f"{name}{SUFFIX}")
        return f"{name}{SUFFIX}"

    def network(self, spec: str) -> Adversary:
        """Return a network of the league: a file of :meth:`save_network`, or a named adversary."""
        if not spec.startswith(f"{NETWORKS}/"):
            return make_adversary(spec)
        file = resolve_inside(self.path, spec, f"{self.path}: a network")
        return load_moves(file).adversary if spec.endswith(SUFFIX) else load_adversary(file)

    def sender(self, spec: str) -> Sender:
        """Return a sender by the name of one trained in the league, or of a registered one."""
        folder = self.sender_folder(spec)
        return make_sender(str(folder) if folder.is_dir() else spec)
