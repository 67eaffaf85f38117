"""Print a table of the documentation in Markdown: ``python docs/tables NAME``; without a name, list all."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])

from ccenv.base.figure import markdown  # noqa: E402
from tables.contents import TABLES  # noqa: E402 - the folder above is no package

names = sys.argv[1:]
if unknown := [name for name in names if name not in TABLES]:
    sys.exit(f"no table {unknown[0]!r}; there are: {', '.join(TABLES)}")
print("\n\n".join(markdown(TABLES[name].build()) for name in names) or "\n".join(TABLES))
