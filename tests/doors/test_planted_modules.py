"""Commands in a stranger's folder: none of its modules is executed, in any process that unspool
starts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import attacks


@pytest.mark.parametrize("door", attacks.DOORS)
def test_no_module_of_the_current_folder_is_executed(tmp_path: Path, door: str) -> None:
    log = tmp_path / "executed"
    folder = attacks.prey(tmp_path / "prey", log)
    attacks.DOORS[door](attacks.Victim(folder=folder, database=f"sqlite:///{tmp_path}/catalog.db"))
    assert not log.exists(), log.read_text()


@pytest.mark.parametrize("door", ["index", "serve, 2 processes"])
def test_no_module_of_the_current_folder_is_executed_by_python_m(tmp_path: Path, door: str) -> None:
    log = tmp_path / "executed"
    folder = attacks.prey(tmp_path / "prey", log)
    attacks.DOORS[door](
        attacks.Victim(
            folder=folder, database=f"sqlite:///{tmp_path}/catalog.db", launcher=attacks.MODULE
        )
    )
    assert not log.exists(), log.read_text()
