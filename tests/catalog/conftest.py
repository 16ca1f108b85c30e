"""Catalogs are tried on every engine, and made by the tests themselves."""

from __future__ import annotations

import pytest

from support import ENGINES, Place, Places


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(places: Places) -> Place:
    """Where this test's catalog will be."""
    return places.bare()
