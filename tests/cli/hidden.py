"""Run the command line as where an extra is not installed: python hidden.py MODULE,... PACKAGE,... ARGUMENTS."""

import importlib.metadata
import sys

from ccenv.cli.main import main


def hide(modules: list[str], packages: list[str]) -> None:
    """Make modules and the packages that bring them as if they were not there."""
    for module in modules:
        sys.modules[module] = None  # type: ignore[assignment]
    found = importlib.metadata.version

    def version(name: str) -> str:
        if name in packages:
            raise importlib.metadata.PackageNotFoundError(name)
        return found(name)

    importlib.metadata.version = version


if __name__ == "__main__":
    hide(sys.argv[1].split(","), sys.argv[2].split(","))
    sys.exit(main(sys.argv[3:]))
