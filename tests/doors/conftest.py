"""A command line of one's own for each test: a temporary catalog, a temporary current folder,
and none of the user's settings.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import unspool
from unspool.interfaces.cli import main

Cli = Callable[..., Result]

FILES = {
    "session.py": (
        '"""Sessions."""\n\n\ndef open_session(name):\n    """Open a session by its name."""\n   '
        ' return {"name": name}\n'
    ),
    "deep/cache.go": (
        "package deep\n\n// Evict drops the oldest entry.\nfunc Evict(cache map[string]int) {\n"
        "\tdelete(cache, oldest(cache))\n}\n"
    ),
    "guide.md": (
        "# Guide\n\nWelcome.\n\n## Sessions\n\nHow to open a session: call the function with a "
        "name.\n"
    ),
    "notes/garden.md": "# Garden\n\nTomatoes want sun and water in the morning.\n",
}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder `small` and a catalog `unspool.db` that holds it; tests work on copies of the
    catalog.
    """
    base = tmp_path_factory.mktemp("template")
    write(base / "small", FILES)
    with unspool.open(
        settings=unspool.Settings.load(
            arguments={"database": f"sqlite:///{base}/unspool.db"}, environment={}, folder=base
        )
    ) as corpus:
        corpus.index(base / "small")
    return base


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's catalog will be; the environment names it."""
    for name in [name for name in os.environ if name.startswith("UNSPOOL_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    path = tmp_path / "catalog" / "unspool.db"
    monkeypatch.setenv("UNSPOOL_DATABASE", f"sqlite:///{path}")
    return path


@pytest.fixture
def cli(database: Path) -> Cli:
    """Run a command in this process."""

    def run(*arguments: str, input: str | bytes | None = None) -> Result:  # noqa: A002 - click's own name for it
        return CliRunner().invoke(main, list(arguments), input=input, prog_name="unspool")

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small folder that is not indexed."""
    return write(tmp_path / "mine", FILES)


@pytest.fixture
def small(template: Path, database: Path) -> Path:
    """A small folder that is indexed as project `small`.

    Do not write to it: other tests share it.
    """
    database.parent.mkdir()
    for part in template.glob("unspool.db*"):
        target = database.with_name(part.name)
        shutil.copytree(part, target) if part.is_dir() else shutil.copy(part, target)
    return template / "small"
