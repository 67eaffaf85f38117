"""Run the command line as where extras are not installed: python hidden.py MODULE,... PACKAGE,... COMMAND...

Prints the exit code, the output and the errors of every command as JSON.
"""

import contextlib
import importlib.metadata
import io
import json
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
    answers = []
    for command in sys.argv[3:]:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            code = main(command.split())
        answers.append([code, out.getvalue(), err.getvalue()])
    print(json.dumps(answers))
