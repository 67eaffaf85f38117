"""What the shell completes after Tab: names of ``ccenv list``. Fixed words are ``ccenv.cli.shared.choices``."""

from __future__ import annotations

from collections.abc import Callable


def names(*kinds: str) -> Callable[[str], list[str]]:
    """Return a completion with the names of kinds of ``ccenv list``; a shell adds files where none begins with what is typed."""

    def complete(incomplete: str) -> list[str]:
        from ccenv.cli.catalog import KINDS

        return [item.name for kind in kinds for item in KINDS[kind]() if item.name.startswith(incomplete)]

    return complete


def configs(kind: str) -> Callable[[str], list[str]]:
    """Return a completion with the shipped configs of a kind, such as ``train``."""

    def complete(incomplete: str) -> list[str]:
        from ccenv.base.config import shipped_names
        from ccenv.cli.catalog import CONFIGS

        return [name for name in shipped_names(CONFIGS[kind], ".yaml") if name.startswith(incomplete)]

    return complete
