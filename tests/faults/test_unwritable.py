"""A catalog that cannot be written: it is searched all the same, and what would write says so
and loses nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import disks
import unspool
from support import doc, open_corpus, paths, write
from unspool.domain import continuations
from unspool.errors import ServiceError

TREE = {f"w{n}.md": f"# Walrus {n}\n\nThe walrus number {n} sleeps.\n" for n in range(12)}
# Runs commands one after the other in one process: starting Python takes most of the time.
IN_ONE_PROCESS = """
import json, sys
from click.testing import CliRunner
from unspool.interfaces.cli import main
for arguments in json.loads(sys.argv[1]):
    result = CliRunner().invoke(main, arguments, prog_name="unspool")
    print(json.dumps([result.exit_code, result.stdout, result.stderr]))
"""
READS = [
    ("search", "walrus", "--project", "tree"),
    ("search", "walrus", "--project", "*", "--json"),
    ("ask", "walrus", "--project", "tree"),
    ("related", "w1.md:1", "--project", "tree"),
    ("status",),
    ("documents", "--project", "tree"),
    ("settings",),
    ("history", "calls", "--project", "tree"),
    ("history", "--project", "tree"),
    ("doctor",),
]
WRITES = [
    ("index", "tree"),
    ("forget", "--project", "tree", "--all"),
    ("key", "create", "--project", "tree"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog `disk/catalog.db` with a folder, a conversation and a history, closed properly."""
    base = tmp_path_factory.mktemp("unwritable")
    tree = write(base / "tree", TREE)
    (base / "disk").mkdir()
    fill_catalog(base / "disk" / "catalog.db", tree)
    return base


def fill_catalog(place: Path, tree: Path) -> None:
    with open_corpus(place, jobs=1) as corpus:
        corpus.index(tree)
        said = unspool.Conversation(
            project="chat", id="c1", messages=(unspool.Message(text="the owl"),)
        )
        corpus.remember(said)
        corpus.history("calls", project="tree").append("a body")
        corpus.refresh()


def environment(place: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("UNSPOOL_")}
    return {**kept, "UNSPOOL_DATABASE": f"sqlite:///{place}", "UNSPOOL_JOBS": "1"}


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Return every file below a folder with its size and time."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


class Unspool:
    """The command line in a folder, behind a command that changes what the disk allows."""

    def __init__(self, base: Path, prefix: Callable[..., list[str]]) -> None:
        self._base = base
        self._prefix = prefix

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._start("-m", "unspool", *arguments)

    def run_all(self, *commands: tuple[str, ...]) -> list[tuple[int, str, str]]:
        """Return exit code, stdout and stderr of each command."""
        done = self._start("-c", IN_ONE_PROCESS, json.dumps(commands))
        assert done.returncode == 0, done.stderr
        return [tuple(json.loads(line)) for line in done.stdout.splitlines()]

    def _start(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._prefix(sys.executable, *arguments),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=environment(self._base / "disk" / "catalog.db"),
            cwd=self._base,
        )


@pytest.fixture(scope="module")
def read_only(folder: Path) -> Unspool:
    """Run a command that sees the disk mounted read-only."""
    return Unspool(folder, lambda *command: disks.read_only(folder / "disk", *command))


@pytest.fixture
def full(folder: Path, tmp_path: Path) -> Iterator[Unspool]:
    """Run a command with the catalog on a disk without one free byte."""
    shutil.copytree(folder / "tree", tmp_path / "tree")
    with disks.small_disk(tmp_path / "disk", size="4m") as mounted:
        fill_catalog(mounted / "catalog.db", tmp_path / "tree")
        disks.fill(mounted)
        yield Unspool(tmp_path, lambda *command: list(command))


@pytest.fixture(params=["read_only", "full"])
def run(request: pytest.FixtureRequest) -> Unspool:
    found: Unspool = request.getfixturevalue(request.param)
    return found


def test_commands_that_read_work_and_those_that_write_name_the_file_and_the_reason(
    run: Unspool, folder: Path
) -> None:
    before = contents(folder / "disk")
    for command, (code, _, stderr) in zip(READS, run.run_all(*READS), strict=True):
        assert code in (0, 2 if command == ("doctor",) else 0), (command, stderr)
        assert "Traceback" not in stderr
    for command, (code, _, stderr) in zip(WRITES, run.run_all(*WRITES), strict=True):
        assert code == 3, (command, stderr)
        assert "catalog.db" in stderr
        assert "read-only" in stderr or "is full" in stderr
        assert "Traceback" not in stderr
    assert contents(folder / "disk") == before


def test_a_search_finds_everything_and_its_continuation_is_followed_by_another_process(
    run: Unspool,
) -> None:
    found: list[str] = []
    page = json.loads(run("search", "walrus", "--project", "tree", "-n", "5", "--json").stdout)
    assert continuations.kind_of(page["continuation"]) == continuations.SIGNED
    while True:
        found += [hit["path"] for hit in page["hits"]]
        if page["continuation"] is None:
            break
        page = json.loads(run("more", page["continuation"], "--json").stdout)
    assert sorted(found) == sorted(TREE)


def test_a_path_that_was_indexed_before_is_searched_as_it_was(run: Unspool) -> None:
    done = run("search", "walrus number 7", "tree", "-n", "1", "--json")
    assert json.loads(done.stdout)["hits"][0]["path"] == "w7.md", done.stderr
    assert run("search", "walrus", ".").returncode == 3  # which is not indexed


def test_doctor_reports_that_nothing_can_be_written(
    run: Unspool, request: pytest.FixtureRequest
) -> None:
    checks = {one["name"]: one for one in json.loads(run("doctor", "--json").stdout)["checks"]}
    if "full" in request.fixturenames:
        assert not checks["disk"]["ok"]
    else:
        assert "read-only" in checks["catalog"]["detail"]
    assert checks["integrity"]["ok"]
    assert checks["index of tree"]["detail"] == f"{len(TREE)} chunks, 0 not indexed yet"
    assert checks["continuations"]["ok"]


def test_a_search_of_an_index_that_is_up_to_date_writes_nothing_into_its_folder(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "disk", tmp_path / "disk")
    before = contents(tmp_path / "disk" / "catalog.db.derived")
    with open_corpus(tmp_path / "disk" / "catalog.db") as corpus:
        assert len(paths(corpus.search("walrus", projects=["tree"], limit=20))) == len(TREE)
        corpus.status()
    assert contents(tmp_path / "disk" / "catalog.db.derived") == before


def test_a_log_that_a_killed_process_has_left_is_read(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "disk", tmp_path / "disk")
    place = tmp_path / "disk" / "catalog.db"
    program = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "c.execute(\"UPDATE projects SET root = '/changed'\"); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program, str(place)], check=True)
    assert place.with_name("catalog.db-wal").stat().st_size
    prefix = disks.read_only(tmp_path / "disk")
    run = Unspool(tmp_path, lambda *command: [*prefix, *command])
    roots = {one["root"] for one in json.loads(run("status", "--json").stdout)["projects"]}
    assert roots == {"/changed"}
    place.with_name("catalog.db-shm").unlink()  # without it SQLite cannot read the log
    refused = run("status")
    assert refused.returncode == 3
    assert str(place) in refused.stderr


def test_what_is_stored_but_not_in_an_index_that_cannot_be_written_is_found_all_the_same(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "disk", tmp_path / "disk")
    place = tmp_path / "disk" / "catalog.db"
    with open_corpus(place) as corpus:
        corpus.put(*(doc(f"late{n}.md", f"the late ocelot {n}", "tree") for n in range(300)))
        shutil.rmtree(tmp_path / "disk" / "catalog.db.derived")
    prefix = disks.read_only(tmp_path / "disk")
    run = Unspool(tmp_path, lambda *command: [*prefix, *command])
    page = json.loads(run("search", "ocelot", "--project", "tree", "-n", "400", "--json").stdout)
    assert len({hit["path"] for hit in page["hits"]} & {f"late{n}.md" for n in range(300)}) == 300


def test_a_page_warns_of_what_neither_the_index_nor_memory_holds(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unspool.index import follower as store

    monkeypatch.setattr(store, "TAIL_LIMIT", 2)
    monkeypatch.setattr(store, "LONG_TAIL_LIMIT", 5)
    shutil.copytree(folder / "disk", tmp_path / "disk")
    place = tmp_path / "disk" / "catalog.db"
    derived = tmp_path / "disk" / "catalog.db.derived"
    shutil.rmtree(derived)
    derived.write_text("no folder can be made here")
    with open_corpus(place) as corpus:
        for _ in range(2):
            page = corpus.search("walrus", projects=["tree"], limit=20)
            assert len(page.hits) == 5
            assert any(warning.startswith("7 chunks ") for warning in page.warnings)
        derived.unlink()
        assert len(corpus.search("walrus", projects=["tree"], limit=20).hits) == len(TREE)


def test_a_corpus_that_is_open_goes_on_when_the_disk_is_full_and_writes_again_afterwards(
    tmp_path: Path,
) -> None:
    tree = write(tmp_path / "tree", TREE)
    with disks.small_disk(tmp_path / "disk", size="4m") as mounted:
        fill_catalog(mounted / "catalog.db", tree)
        filler = disks.fill(mounted)
        with open_corpus(mounted / "catalog.db") as corpus:
            page = corpus.search("walrus", projects=["tree"], limit=5)
            with pytest.raises(ServiceError, match="is full"):
                corpus.put(doc("late.md", "the late ocelot", "tree"))
            assert page.continuation is not None
            assert len(corpus.more(page.continuation).hits) == 5
            filler.unlink()
            corpus.put(doc("late.md", "the late ocelot", "tree"))
            assert paths(corpus.search("ocelot", projects=["tree"], limit=1)) == ["late.md"]
            (version,) = (one for one in corpus.documents(project="tree") if one.path == "late.md")
            assert version.chunk_count == 1


def test_what_another_process_writes_into_a_catalog_that_was_read_without_locks_is_seen(
    tmp_path: Path,
) -> None:
    """The disk is full when the corpus is opened; then somebody makes room and writes."""
    with disks.small_disk(tmp_path / "disk", size="4m") as mounted:
        place = mounted / "catalog.db"
        with open_corpus(place) as corpus:
            corpus.put(doc("a.md", "the first walrus"))
        filler = disks.fill(mounted)
        with open_corpus(place) as reader:
            assert paths(reader.search("walrus")) == ["a.md"]
            filler.unlink()
            with open_corpus(place) as writer:
                writer.put(doc("b.md", "the second walrus"))
                assert sorted(paths(reader.search("walrus"))) == ["a.md", "b.md"]
            assert sorted(paths(reader.search("second walrus"))) == ["a.md", "b.md"]


def test_a_file_of_continuations_is_read_where_it_cannot_be_written(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "disk", tmp_path / "disk")
    place = tmp_path / "disk" / "catalog.db"
    with open_corpus(place) as corpus:
        stored = corpus.search("walrus", projects=["tree"], limit=5).continuation
    assert stored is not None
    assert continuations.kind_of(stored) == continuations.STORED
    prefix = disks.read_only(tmp_path / "disk")
    run = Unspool(tmp_path, lambda *command: [*prefix, *command])
    page = json.loads(run("more", stored, "--json").stdout)
    assert (page["number"], len(page["hits"])) == (2, 5)


def test_a_service_answers_reads_and_refuses_writes(folder: Path) -> None:
    serve = (sys.executable, "-m", "unspool", "serve", "--port", "0", "--root", str(folder))
    command = disks.read_only(folder / "disk", *serve)
    place = folder / "disk" / "catalog.db"
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment(place), cwd=folder
    ) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            assert "listening on " in line, line + process.stderr.read()
            address = line.split("listening on ")[1].partition(",")[0]
            with httpx2.Client(base_url=address, timeout=30) as api:
                wanted: dict[str, Any] = {"query": "walrus", "projects": ["tree"], "limit": 5}
                first = api.post("/v1/search", json=wanted).json()
                more = api.post("/v1/more", json={"continuation": first["continuation"]}).json()
                assert (len(first["hits"]), more["number"]) == (5, 2)
                for path in (
                    "/ready",
                    "/v1/projects",
                    "/v1/jobs",
                    "/v1/projects/tree/documents",
                    "/v1/projects/tree/documents/w1.md",
                    "/v1/projects/chat/conversations/c1",
                    "/v1/projects/tree/streams/calls/records",
                    "/metrics",
                ):
                    answer = api.get(path)
                    assert answer.status_code == 200, (path, answer.text)
                for method, path, body in (
                    ("PUT", "/v1/projects/tree/documents/x.md", {"text": "x"}),
                    ("POST", "/v1/projects/tree/streams/calls/records", {"body": "x"}),
                    ("POST", "/v1/projects/tree/index", {}),
                ):
                    refused = api.request(method, path, json=body)
                    assert refused.status_code == 502, (path, refused.text)
                    assert "read-only" in refused.json()["error"]["message"]
        finally:
            process.terminate()
            process.communicate(timeout=20)


def test_an_agent_searches_and_is_told_that_nothing_can_be_remembered(folder: Path) -> None:
    command = disks.read_only(folder / "disk", sys.executable, "-m", "unspool", "mcp")
    place = folder / "disk" / "catalog.db"
    client = {"name": "test", "version": "1"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    requests = [
        ("initialize", params),
        ("tools/call", {"name": "search", "arguments": {"query": "walrus", "project": "tree"}}),
        ("tools/call", {"name": "remember", "arguments": {"text": "x", "project": "tree"}}),
    ]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(place),
        cwd=folder,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        answers = []
        for number, (method, given) in enumerate(requests):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": given}
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            answers.append(json.loads(process.stdout.readline())["result"])
        process.stdin.close()
        assert process.wait(20) == 0
    assert answers[1]["structuredContent"]["hits"]
    assert answers[2]["isError"]
    assert "read-only" in answers[2]["content"][0]["text"]
