"""Run one command of ccenv within so much more memory than it has after its imports."""

import resource
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Run what follows the number of MiB; return its exit code."""
    from ccenv.cli import main as cli
    from ccenv.cli.main import main as run

    for group in cli.GROUPS:
        if group.name == arguments[1]:
            __import__(group.module)
    import ccenv.base.foreign
    import ccenv.leaderboard.site.exchange
    import ccenv.network.trace  # noqa: F401 -- what the command imports is not what the file costs

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (int(arguments[0]) << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return run(arguments[1:])
