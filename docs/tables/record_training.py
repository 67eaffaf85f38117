"""Train shipped configs with their seeds and record them, or go on with that; of all, the zoo's policies are measured too.

``python docs/tables/record_training.py docs/data/learning.json [JOBS] [CONFIG ...] [KEY=VALUE ...]``; outdated runs are repeated.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from ccenv.cli.output import progress_bar
from tables.training_records import train_shipped

file, *words = sys.argv[1:] or sys.exit(__doc__)
overrides = [word for word in words if "=" in word]
jobs = next((int(word) for word in words if word.isdigit()), 1)
names = [word for word in words if "=" not in word and not word.isdigit()] or None
with progress_bar("train shipped configs") as report:
    n_runs = train_shipped(Path(file), names=names, overrides=overrides, jobs=jobs, report=report)
print(f"wrote {file}: {n_runs} runs")
