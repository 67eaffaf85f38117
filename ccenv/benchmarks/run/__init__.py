"""Running suites: backends, runner and summary."""
