"""Shell completions with names of ``ccenv list``; those with fixed words are ``ccenv.cli.options.choices``."""

from __future__ import annotations

from collections.abc import Callable


def names(*kinds: str) -> Callable[[str], list[str]]:
    """Return a completion with the names of some kinds of ``ccenv list``; without a match a shell completes files."""

    def complete(incomplete: str) -> list[str]:
        from ccenv.cli.catalog import KINDS

        return [item.name for kind in kinds for item in KINDS[kind]() if item.name.startswith(incomplete)]

    return complete


def configs(folder: str) -> Callable[[str], list[str]]:
    """Return a completion with the shipped configs in a folder, such as ``train``."""

    def complete(incomplete: str) -> list[str]:
        from ccenv.base.config import shipped_names
        from ccenv.cli.catalog import CONFIGS

        return [name for name in shipped_names(CONFIGS[folder], ".yaml") if name.startswith(incomplete)]

    return complete
