"""A store of answers and a working folder of a test's own."""

import pytest


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CCENV_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
