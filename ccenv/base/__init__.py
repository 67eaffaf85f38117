"""Tools that know nothing of networks: errors, files, settings, registries, workers, figures."""
