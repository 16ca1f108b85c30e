"""`unspool serve` as it is started: what it says and refuses, several processes over one
catalog, and how it ends.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from conftest import Cli
from servers import PostgresServer
from services import WAIT_S
from support import Places, beside, doc, open_corpus
from unspool.errors import ConfigError
from unspool.interfaces.http import server


@contextmanager
def process(
    folder: Path, *flags: str, **variables: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service in a process of its own, and where it listens.

    What it writes is read when it has ended.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("UNSPOOL_")
    }
    command = [sys.executable, "-m", "unspool", "serve", "--port", "0", *flags]
    with subprocess.Popen(
        command, cwd=folder, env={**environment, **variables}, stderr=subprocess.PIPE, text=True
    ) as started:
        assert started.stderr is not None
        line = started.stderr.readline()
        assert "listening on " in line, line + started.stderr.read()
        address = line.split("listening on ")[1].partition(",")[0]
        try:
            yield started, address
        finally:
            started.kill()


def _is_taken(address: str) -> bool:
    try:
        httpx2.get(f"{address}/health")
    except httpx2.HTTPError:
        return False
    return True


def ended(started: subprocess.Popen[str]) -> tuple[int, str]:
    said = started.communicate(timeout=WAIT_S)[1]
    return started.returncode, said


def ready(address: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            assert httpx2.get(f"{address}/ready").status_code == 200
            return
        except httpx2.HTTPError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_signal_ends_it_quietly_and_what_is_under_way_is_answered(tmp_path: Path) -> None:
    """The request waits for a writer that holds the catalog; the job hangs in a server of git
    that never says a word.
    """
    place = tmp_path / "catalog.db"
    with open_corpus(place) as corpus:
        corpus.put(doc("a.md", "walrus"))
    with ExitStack() as held:
        silent = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        pool, other = held.enter_context(ThreadPoolExecutor(1)), held.enter_context(beside(place))
        with process(
            tmp_path,
            "--database",
            f"sqlite:///{place}",
            UNSPOOL_SERVE_DRAIN_S="1",
            UNSPOOL_GIT_HOSTS="127.0.0.1",
        ) as (started, address):
            ready(address)
            source = f"git://127.0.0.1:{silent.getsockname()[1]}/x"
            job = httpx2.post(f"{address}/v1/projects/code/index", json={"source": source}).json()[
                "id"
            ]
            while httpx2.get(f"{address}/v1/jobs/{job}").json()["state"] != "running":
                time.sleep(0.02)
            other.run("BEGIN IMMEDIATE")
            waiting = pool.submit(
                httpx2.put,
                f"{address}/v1/projects/notes/documents/b.md",
                json={"text": "x"},
                timeout=WAIT_S,
            )
            time.sleep(0.3)  # until it waits
            started.terminate()
            while _is_taken(address):  # no new ones
                time.sleep(0.05)
            other.run("ROLLBACK")
            assert waiting.result().status_code == 200
            code, said = ended(started)
    assert code == 0
    assert "Traceback" not in said
    with beside(place) as catalog:
        assert catalog.rows("SELECT state FROM jobs") == [("interrupted",)]


def test_several_processes_share_one_catalog_and_its_keys(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    with Places(tmp_path, postgres_server) as places:
        place = places.new()
        with open_corpus(place) as corpus:
            corpus.put(
                doc("a.md", "walrus one"), doc("b.md", "walrus two"), doc("c.md", "walrus three")
            )
            made, key = corpus.keys.create(projects="*", role="admin")
            (tmp_path / "code").mkdir()
            (tmp_path / "code" / "x.py").write_text("def walrus():\n    return 1\n")
            flags = ("--database", str(place), "--workers", "2", "--root", str(tmp_path / "code"))
            with process(tmp_path, *flags, UNSPOOL_LOG_LEVEL="warning") as (started, address):
                ready(address)
                pids = set()
                with httpx2.Client(
                    base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=WAIT_S
                ) as api:
                    continuation = api.post(
                        "/v1/search", json={"query": "walrus", "projects": ["notes"], "limit": 1}
                    ).json()["continuation"]
                    job = api.post(
                        "/v1/projects/code/index", json={"source": str(tmp_path / "code")}
                    ).json()["id"]
                deadline = time.monotonic() + WAIT_S
                # each time over a connection of its own, which any of them may take
                while time.monotonic() < deadline:
                    with httpx2.Client(
                        base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=WAIT_S
                    ) as api:
                        assert (
                            api.post("/v1/more", json={"continuation": continuation}).json()[
                                "number"
                            ]
                            == 2
                        )
                        state = api.get(f"/v1/jobs/{job}").json()["state"]
                        pids = {
                            line
                            for line in api.get("/metrics").text.splitlines()
                            if line.startswith("unspool_")
                        }
                    if state == "done" and pids:
                        break
                assert state == "done"
                corpus.keys.revoke(made.id)
                refused = [
                    httpx2.get(
                        f"{address}/v1/projects", headers={"Authorization": f"Bearer {key}"}
                    ).status_code
                    for _ in range(8)
                ]
                assert set(refused) == {401}
                started.terminate()
                code, said = ended(started)
            assert code == 0
            assert key not in said


def test_a_root_that_is_no_folder_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for root in ("nope", "file"):
        refused = cli(
            "serve", "--port", "0", "--root", str(tmp_path), "--root", str(tmp_path / root)
        )
        assert refused.exit_code == 2
        assert f"{tmp_path / root} is no folder" in refused.stderr


def test_other_machines_are_let_in_only_with_keys_or_by_saying_so_twice(
    cli: Cli, tmp_path: Path
) -> None:
    for flags in ((), ("--without-keys",)):
        refused = cli("serve", "--host", "0.0.0.0", "--port", "0", *flags)
        assert refused.exit_code == 2
        assert "unspool key create" in refused.stderr
        assert "--without-keys" in refused.stderr
    with open_corpus(tmp_path / "catalog.db", serve_host="192.168.0.7") as corpus:
        assert "no keys" in server.check(corpus, without_keys=True)
        with pytest.raises(ConfigError):
            server.check(corpus, without_keys=False)
        key, _ = corpus.keys.create(projects="notes")
        assert server.check(corpus, without_keys=False).endswith("1 key")
        corpus.keys.revoke(key.id)
        assert server.check(corpus, without_keys=False).endswith("0 keys")  # nobody is let in


def test_an_address_that_cannot_be_had_is_explained(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        in_use = cli("serve", "--port", port)
    assert in_use.exit_code == 2
    assert "in use" in in_use.stderr
    assert port in in_use.stderr
    for host, word in (
        ("no such host", "no name"),
        ("192.0.2.1", "not an address of this machine"),
        ("", "no name"),
    ):
        bad = cli("serve", "--host", host, "--port", "0", "--without-keys", "--without-keys")
        assert (bad.exit_code, word in bad.stderr) == (2, True), (host, bad.stderr)
    assert cli("serve", "--port", "70000").exit_code == 2
    assert cli("serve", "--workers", "0").exit_code == 2
