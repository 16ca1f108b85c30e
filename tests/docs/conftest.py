"""No settings from outside: a page must be true on a machine where nothing is set."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [one for one in os.environ if one.startswith("UNSPOOL_")]:
        monkeypatch.delenv(variable)
