"""The certificate of the small theorem, proved once."""

import pytest
from forger import SMALL, Data, proved


@pytest.fixture(scope="session")
def genuine() -> Data:
    pytest.importorskip("z3")
    return proved(SMALL)
