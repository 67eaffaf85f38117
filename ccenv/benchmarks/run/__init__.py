"""Running suites: backends, stores, records, provenance."""
