"""A torch policy over an observation of one's own becomes a sender and two files of data."""

import tempfile
from pathlib import Path

import torch

import ccenv

torch.manual_seed(0)
view = ccenv.Observation("rate_ratio", "lost_share", gap={"qdel_U": 1, "qdel_L": -1})
network = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
sender = ccenv.from_torch(network, observation=view, name="tiny")
with tempfile.TemporaryDirectory() as folder:
    ccenv.save_policy(folder, sender, {"made": "by hand"})
    files = sorted(path.name for path in Path(folder).iterdir())
    again = ccenv.make_sender(folder)
row = ccenv.compare([sender], rate="12mbps", duration="2s").rows[0]
utilisation: float | None = row.utilisation
print(files, again.name, utilisation)
