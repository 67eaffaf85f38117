"""What a worker tells its parent when the machine does not allow a run. Standard library only."""

from __future__ import annotations


class Refused(Exception):
    """Something that this machine does not allow, in words for the user.

    Attributes:
        log: what was said about it at length, if anything.
    """

    def __init__(self, message: str, log: str = "") -> None:
        """Keep the log."""
        super().__init__(message)
        self.log = log
