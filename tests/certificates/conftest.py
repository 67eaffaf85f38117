"""The certificate of the small theorem, proved once."""

import pytest
from forging import SMALL, Data, proved


@pytest.fixture(scope="session")
def genuine() -> Data:
    pytest.importorskip("z3")
    return proved(SMALL)
