"""What holds for a corpus holds for it on every engine."""

from __future__ import annotations

import pytest

from support import ENGINES


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)
