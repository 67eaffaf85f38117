"""A part of a suite for one sender, as a table."""

import tempfile

import ccenv

records = ccenv.evaluate("quick", "copa", seeds=[1])
frame = records.to_frame()
with tempfile.TemporaryDirectory() as folder:
    manifest = ccenv.run_suite("quick", folder, only=["deep/copa/*/1"], extra_agents=["copa"], pictures=False)
scores = manifest.to_frame()
print(repr(records), repr(manifest), frame.shape, scores.shape)
