"""``ccenv data``: data sets of transitions of many senders (docs/training.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccenv.base.files import plain
from ccenv.cli.completion import configs
from ccenv.cli.options import JobsOption, JsonOption, SettingsOption, argument, fresh_option, out_option, settings_and_others
from ccenv.cli.output import print_json, print_table, print_text, progress_bar

EXIT_NOT_LEGAL = 1

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Data sets of transitions, for learning without an environment.

    Example: ccenv data make quick
    """


@app.command()
def make(
    config: Annotated[str, argument("CONFIG", "A shipped config (ccenv list configs) or a YAML file.", configs("data"))],
    *,
    out: Annotated[Path | None, out_option("Folder of data sets; MINARI_DATASETS_PATH or ~/.minari/datasets by default.")] = None,
    fresh: Annotated[bool, fresh_option("Discard what is stored and make it anew.")] = False,
    jobs: JobsOption = 1,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> int:
    """Write transitions of senders as a Minari data set, locally; the same command resumes an interrupted one.

    Exit code 1 if a checked network was not legal.

    Example: ccenv data make quick --json
    Example: ccenv data make quick --jobs 2 -s transitions=1_000_000
    """
    from ccenv.training.offline.config import load_data_config
    from ccenv.training.offline.dataset import make_data

    held, overrides = settings_and_others("data make", set_)
    chosen = load_data_config(config, overrides)
    with progress_bar(f"data {chosen.name}, chunks") as show:
        data = make_data(chosen, out, jobs=jobs, backend=held["backend"], fresh=fresh, report=show)
    code = 0 if data["legal"] else EXIT_NOT_LEGAL
    if json:
        print_json(data | {"settings": plain(chosen) | held})
        return code
    columns = ["behaviour", "engine", "episodes", "transitions", "mean reward", "legal of checked"]
    rows = [
        [
            *(part[key] for key in ("behaviour", "engine", "episodes", "transitions", "mean_reward")),
            f"{part['legal']} of {part['checked']}",
        ]
        for part in data["parts"]
    ]
    print_table(f"{data['id']}: {data['transitions']} transitions", columns, rows)
    print_text(f"wrote {data['folder']}; in Python: minari.load_dataset({data['id']!r})")
    return code
