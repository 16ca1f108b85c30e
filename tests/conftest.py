"""What every folder of tests shares: a hand-made corpus of its own for each test, and none of the
user's settings.

Tests that hold for every engine ask for `database`, or for `places` where they need more than one,
in a folder whose conftest parametrises `engine`; those about SQLite's files ask for `catalog_file`.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# torch's threads wait by spinning: with a process per core they double what its tests take
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Background jobs and some CI systems ignore it, and processes that tests start would, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("support")

import hashing as hashing_models  # noqa: E402
import unspool  # noqa: E402
from servers import PostgresServer, shared_server, stop_shared  # noqa: E402
from support import Place, Places, open_corpus, required  # noqa: E402


def pytest_unconfigure() -> None:
    """The one server of the run ends with it: in the controller, when every worker has ended."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        stop_shared()


@pytest.fixture(scope="session")
def postgres_server() -> PostgresServer:
    """The PostgreSQL of this run.

    Where it is required, its absence is a failure and never a skip.
    """
    return required(shared_server)


@pytest.fixture(scope="module")
def engine() -> str:
    """Which engine a catalog is on.

    Folders with tests that hold for all of them replace this by one with parameters.
    """
    return "sqlite"


@pytest.fixture(scope="module")
def module_places(
    engine: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Places]:
    """Places for catalogs that the tests of a module share."""
    server = request.getfixturevalue("postgres_server") if engine == "postgresql" else None
    with Places(tmp_path_factory.mktemp("places"), server) as made:
        yield made


@pytest.fixture
def places(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Places]:
    """Places for this test's catalogs; what is there goes with the test."""
    server = request.getfixturevalue("postgres_server") if engine == "postgresql" else None
    with Places(tmp_path, server) as made:
        yield made


@pytest.fixture
def database(places: Places) -> Place:
    """Where this test's catalog is."""
    return places.new()


@pytest.fixture
def catalog_file(tmp_path: Path) -> Path:
    """Where this test's catalog is if it has to be a file."""
    return tmp_path / "catalog.db"


@pytest.fixture
def corpus(database: Place) -> Iterator[unspool.Corpus]:
    """An empty corpus."""
    with open_corpus(database) as opened:
        yield opened


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that other users can reach; pytest's own are closed to them."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        folder = Path(made)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def hashing() -> Iterator[hashing_models.Asked]:
    """Embedders that settings can name as `hashing:NAME`, and what they were asked during the
    test.
    """
    hashing_models.register()
    hashing_models.ASKED.reset()
    yield hashing_models.ASKED
    hashing_models.ASKED.reset()
    hashing_models.unregister()
