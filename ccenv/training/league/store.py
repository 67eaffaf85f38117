"""A league in a folder: its settings, the players it has found, and the finished parts of rounds.

A part is what one task found. Its document is written last and at once, so that a killed league goes on with whole parts; it
holds the hashes of itself and of the files that the task wrote, so that a league does not go on with damaged ones.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path as FilePath
from typing import Any, TypeVar

from pydantic import Field

from ccenv.adversaries import make_adversary
from ccenv.adversaries.learned import load_adversary, save_adversary
from ccenv.agents import make_sender
from ccenv.agents.sender import Sender
from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import Format, hash_of, is_empty, make_folder, write_atomic
from ccenv.base.foreign import read_bounded, resolve_inside, shown_path
from ccenv.network.adversary import SUFFIX, Adversary, MlpAdversary, MovesHeader, RecordedAdversary, StoredMoves, load_moves
from ccenv.network.path import Path
from ccenv.training.league.config import MODEL, LeagueConfig

LEAGUE = Format("ccenv-league", 1, "the record of a league", older="--fresh starts anew")
PART = Format("ccenv-league-part", 2, "a part of a league", older="--fresh starts anew")
RECORD, CONFIG, SENDERS, NETWORKS = "league.json", "config.yaml", "senders", "networks"
PICTURE, CURVE = "payoffs.png", "exploitability.png"
_POLICY = ".safetensors"  # of a network that is a policy
_MAX_BYTES = 1 << 28  # of a file of a part


class _Seal(StrictModel):
    """What a part's document says about its content.

    Attributes:
        files: SHA-256 of each file that the task wrote, by its name in the league's folder.
        sha256: of the document without this key.
    """

    files: dict[str, str]
    sha256: str


class Part(StrictModel):
    """What every finished part says: what it cost."""

    seconds: float = Field(ge=0, allow_inf_nan=False)
    cpu_seconds: float = Field(ge=0, allow_inf_nan=False)


class SenderPart(Part):
    """A sender's answer: the environment steps of its training."""

    steps: int = Field(ge=1, strict=True)


class NetworkPart(Part):
    """The network's answers in a scene.

    Attributes:
        payoff: what the senders' mixture gets against the first of them.
        networks: what :meth:`LeagueFolder.network` takes, the worst first.
        search: that found the first; None: the population had it.
        found: what the mixture gets against the worst of each search.
        flow_steps: of the searches.
    """

    payoff: float = Field(allow_inf_nan=False)
    networks: tuple[str, ...] = Field(min_length=1)
    search: str | None
    found: dict[str, float]
    flow_steps: int = Field(ge=0, strict=True)


class HoldOutPart(Part):
    """What a mixture of senders gets against each hold-out in a scene."""

    payoffs: dict[str, float]


PartT = TypeVar("PartT", bound=Part)


class LeagueFolder:
    """The folder of a league, held by its process.

    Attributes:
        folder: where.
    """

    def __init__(self, folder: FilePath) -> None:
        """Name a folder. Raises InputError if it holds something else than a league."""
        self.folder = folder
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder}: is not a folder")
        if folder.is_dir() and not is_empty(folder) and not (folder / RECORD).is_file():
            raise InputError(f"{folder}: holds something else than a league; choose another --out")

    def begin(self, config: LeagueConfig, code: str, fresh: bool) -> int:
        """Check what an earlier run left, and write the settings.

        Returns:
            int: rounds that the record tells of already.

        Raises:
            InputError: if the folder holds a league of another config, of other code, or of more rounds.
            CcenvError: if something cannot be removed or written.
        """
        record = self.folder / RECORD
        if record.is_file() and not fresh:
            known = LEAGUE.read(record)
            if not config.same_league(known.get("config")):
                raise InputError(
                    f"{self.folder}: holds a league of another config; choose another --out, or --fresh to discard it"
                )
            if known.get("code") != code:
                raise InputError(f"{self.folder}: holds a league of another version of ccenv; --fresh starts anew")
            played = known.get("rounds")
            rounds = len(played) if isinstance(played, list) else 0
            if rounds > config.rounds:
                raise InputError(f"rounds is {config.rounds}, but {self.folder} holds {rounds} already; --fresh discards them")
            self._make_folders()
            return rounds
        try:
            for part in (SENDERS, NETWORKS):
                if (self.folder / part).is_dir():
                    shutil.rmtree(self.folder / part)
            for name in (PICTURE, CURVE):
                (self.folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise CcenvError(f"{self.folder}: cannot be cleared ({error.strerror})") from None
        LEAGUE.write(record, {"config": config.model_dump(mode="json"), "code": code, "status": "running", "rounds": []})
        write_atomic(self.folder / CONFIG, config.to_yaml().encode())
        self._make_folders()
        return 0

    def _make_folders(self) -> None:
        for part in (SENDERS, NETWORKS):
            make_folder(self.folder / part)

    def part(self, name: str, kind: type[PartT]) -> PartT | None:
        """Return what a finished part says; None if it is not finished.

        Raises:
            InputError: if it, or a file that belongs to it, is damaged, changed or gone.
        """
        file = self.folder / f"{name}.part.json"
        if not file.is_file():
            return None
        where = shown_path(file)
        said = {key: value for key, value in PART.read(file).items() if key not in PART.head}
        seal = validate(_Seal, said.pop("seal", None), f"{where}: seal")
        if seal.sha256 != _sha256_of(said, seal.files):
            raise InputError(f"{where}: has been changed since it was written; remove it to play this part again")
        files = self._hashes(name)
        for own, known in seal.files.items():
            if files.get(own) != known:
                what = "is gone" if own not in files else "has been changed since it was written"
                raise InputError(f"{self.folder}/{own}: {what}; remove {where} to play this part again")
        return validate(kind, said, where)

    def finish(self, name: str, part: Part) -> None:
        """Write what a part says: it is finished then."""
        said, files = part.model_dump(mode="json"), self._hashes(name)
        PART.write(self.folder / f"{name}.part.json", {**said, "seal": {"files": files, "sha256": _sha256_of(said, files)}})

    def _hashes(self, name: str) -> dict[str, str]:
        """Return the SHA-256 of each file that belongs to a part: the folder of a sender, or what searches found."""
        files = [*self.folder.glob(f"{name}/[!.]*"), *self.folder.glob(f"{name}-*")]
        return {
            str(file.relative_to(self.folder)): hashlib.sha256(read_bounded(file, _MAX_BYTES)).hexdigest()
            for file in sorted(files)
            if file.is_file()
        }

    def sender_folder(self, name: str) -> FilePath:
        """Return where a sender of the league lies."""
        return self.folder / SENDERS / name

    def save_network(self, name: str, adversary: Adversary, config: LeagueConfig, path: Path, about: dict[str, Any]) -> str:
        """Write what a search found, under a part's name; return its file, for :meth:`network`."""
        if isinstance(adversary, MlpAdversary):
            save_adversary(self.folder / name, adversary, about)
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
        StoredMoves(header, adversary.moves).save(self.folder / f"{name}{SUFFIX}")
        return f"{name}{SUFFIX}"

    def network(self, spec: str) -> Adversary:
        """Return a network of the league: a file of :meth:`save_network`, or a named adversary."""
        if not spec.startswith(f"{NETWORKS}/"):
            return make_adversary(spec)
        file = resolve_inside(self.folder, spec, f"{self.folder}: a network")
        return load_moves(file).adversary if spec.endswith(SUFFIX) else load_adversary(file)

    def sender(self, spec: str) -> Sender:
        """Return a sender of the league: the name of one that it trained, or of a registered one."""
        folder = self.sender_folder(spec)
        return make_sender(str(folder) if folder.is_dir() else spec)


def _sha256_of(said: dict[str, Any], files: dict[str, str]) -> str:
    return hash_of({**said, "files": files})
