"""Who is who: names that are kept for what ccenv itself registers, and what may be claimed once on a board.

Everything that belongs to an entry is found by content hashes. Names are for people, so a name must not look like another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from ccenv.adversaries import ADVERSARIES, make_adversary
from ccenv.agents import AGENTS, make_sender
from ccenv.base.errors import CcenvError, InputError
from ccenv.leaderboard.submission.canonical import canonical_hash
from ccenv.leaderboard.submission.lookalike import folded
from ccenv.leaderboard.submission.weights import on_grid
from ccenv.network.adversary import Adversary
from ccenv.agents.sender import Sender

if TYPE_CHECKING:
    from ccenv.leaderboard.store.entry import SubmissionRecord

PROJECT = "ccenv"


@cache
def registered() -> dict[str, str]:
    """Return folded name -> name of everything that ccenv registers."""
    return {folded(name): name for name in (*AGENTS.names(), *ADVERSARIES.names())}


@cache
def registered_hash(name: str) -> str | None:
    """Return the canonical hash of a registered player, weights on the grid; None for one that only an environment can drive."""
    try:
        return canonical_hash(on_grid(make_sender(name) if name in AGENTS else make_adversary(name)))
    except CcenvError:
        return None


def check_reserved(name: str, author: str, player: Sender | Adversary) -> None:
    """Check that a submission does not take a name that ccenv itself has.

    A registered name, and an author that holds the project's name, belong to the registered player alone.

    Raises:
        InputError: if the name or the author is kept for another player.
    """
    own = registered().get(folded(name))
    is_own = own == name and registered_hash(name) == canonical_hash(player)
    if own is not None and not is_own:
        raise InputError(f"the name {name!r} is kept for ccenv's own {own!r}, which this is not: choose another one")
    if PROJECT in folded(author) and not is_own:
        raise InputError(f"the author {author!r} is kept for what comes with ccenv, which this is not: name a person or group")


def check_author(author: str, signed_by: str | None, others: Iterable[SubmissionRecord], where: str) -> None:
    """Check that an author is who handed in under that name before: the first key that signed for it signs all that follows.

    Raises:
        InputError: if an entry before it, by an author whose name looks like this one, was signed with another key.
    """
    alike = [other for other in others if other.signed_by is not None and folded(other.card.author) == folded(author)]
    if alike and alike[0].signed_by != signed_by:
        held = f"{alike[0].card.author!r} signed {alike[0].card.name!r} with {alike[0].signed_by}"
        raise InputError(f"{where}: the author {author!r} is signed by {signed_by or 'nobody'}, but {held}: sign with that key")


def name_claim(name: str) -> str:
    """Return what an entry of a name claims on a board: every name that looks like it."""
    return f"name/{folded(name)}"


def player_claim(canonical_sha256: str) -> str:
    """Return what an entry claims on a board by what it plays."""
    return f"player/{canonical_sha256}"


def claims_of(name: str, player: Sender | Adversary) -> tuple[str, str]:
    """Return the claims of an entry, by what it plays and by its name; each may exist once on a board."""
    return player_claim(canonical_hash(player)), name_claim(name)
