"""The command line: one file per command group, wired through the table in :mod:`ccenv.cli.main`."""
