"""The command line: one file per command group, wired through the table in :mod:`ccenv.cli.main`."""

from typing import Any

COMMAND_LINE: dict[str, Any] = {}
"""The groups of commands and what builds the application: set by the module of the command line, which names every group."""
