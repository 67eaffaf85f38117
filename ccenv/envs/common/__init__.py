"""Code shared by the environments of both engines: tasks, seeds, episode metrics, Gymnasium adapters."""
