"""The folder of a league: its settings, senders and networks, and the finished parts of rounds.

A part is the result of one task. Its document is written last and atomically, so a killed league resumes with complete parts; it
holds the hashes of itself and of the task's files, so a league does not resume with damaged ones.
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
    """Hashes of a part.

    Attributes:
        files: SHA-256 of each file that the task wrote, by its name in the league's folder.
        sha256: of the document without this key.
    """

    files: dict[str, str]
    sha256: str


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


PartT = TypeVar("PartT", bound=Part)


class LeagueFolder:
    """The folder of a league, locked by its process."""

    def __init__(self, folder: FilePath) -> None:
        """Raise InputError if the folder holds something else than a league."""
        self.folder = folder
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder}: is not a folder")
        if folder.is_dir() and not is_empty(folder) and not (folder / RECORD).is_file():
            raise InputError(f"{folder}: holds something else than a league; choose another --out")

    def begin(self, config: LeagueConfig, code: str, fresh: bool) -> int:
        """Check an earlier run and write the settings; return the number of rounds already recorded.

        Raises:
            InputError: if the folder holds a league of another config, of other code, or of more rounds.
            CcenvError: if something cannot be removed or written.
        """
        record = self.folder / RECORD
        if record.is_file() and not fresh:
            stored = LEAGUE.read(record)
            if not config.same_league(stored.get("config")):
                raise InputError(
                    f"{self.folder}: holds a league of another config; choose another --out, or --fresh to discard it"
                )
            if stored.get("code") != code:
                raise InputError(f"{self.folder}: holds a league of another version of ccenv; --fresh starts anew")
            played = stored.get("rounds")
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
        """Return a finished part; None if it is not finished.

        Raises:
            InputError: if the part or one of its files is damaged, changed or missing.
        """
        file = self.folder / f"{name}.part.json"
        if not file.is_file():
            return None
        shown_file = shown_path(file)
        content = {key: value for key, value in PART.read(file).items() if key not in PART.head}
        seal = validate(_Seal, content.pop("seal", None), f"{shown_file}: seal")
        if seal.sha256 != _hash_content(content, seal.files):
            raise InputError(f"{shown_file}: has been changed since it was written; remove it to play this part again")
        files = self._hashes(name)
        for name_of_file, expected in seal.files.items():
            if files.get(name_of_file) != expected:
                what = "is gone" if name_of_file not in files else "has been changed since it was written"
                raise InputError(f"{self.folder}/{name_of_file}: {what}; remove {shown_file} to play this part again")
        return validate(kind, content, shown_file)

    def finish(self, name: str, part: Part) -> None:
        """Write a part, which makes it finished."""
        content, files = part.model_dump(mode="json"), self._hashes(name)
        PART.write(
            self.folder / f"{name}.part.json", {**content, "seal": {"files": files, "sha256": _hash_content(content, files)}}
        )

    def _hashes(self, name: str) -> dict[str, str]:
        """Return the SHA-256 of each file of a part: the folder of a sender, or the findings of searches."""
        files = [*self.folder.glob(f"{name}/[!.]*"), *self.folder.glob(f"{name}-*")]
        return {
            str(file.relative_to(self.folder)): hashlib.sha256(read_bounded(file, _MAX_BYTES)).hexdigest()
            for file in sorted(files)
            if file.is_file()
        }

    def sender_folder(self, name: str) -> FilePath:
        """Return the folder of a sender of the league."""
        return self.folder / SENDERS / name

    def save_network(self, name: str, adversary: Adversary, config: LeagueConfig, path: Path, about: dict[str, Any]) -> str:
        """Write the finding of a search under a part's name; return its file, for :meth:`network`."""
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
        """Return a sender by the name of one trained in the league, or of a registered one."""
        folder = self.sender_folder(spec)
        return make_sender(str(folder) if folder.is_dir() else spec)


def _hash_content(content: dict[str, Any], files: dict[str, str]) -> str:
    return hash_of({**content, "files": files})
