"""Paths as agents name them: of documents, of folders on this machine, of what is to be indexed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters

import unspool
from agents import CURRENT, Agent, Told, told
from support import open_corpus, write
from unspool.access import Scope
from unspool.domain.keys import Role
from unspool.interfaces.mcp.server import Caller, Door
from unspool.views import View

CODE = "\n".join(f"def step{number}():\n    return 'retry {number}'\n" for number in range(40))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a project in it, and one beside it that is none."""
    base = tmp_path_factory.mktemp("places")
    write(base / "work", {"src/call.py": CODE, "src/deep/again.js": "// retry once\n", "docs/guide.md": "# Guide\n\nHow to retry.\n"})
    write(base / "other", {"x.md": "# Other\n"})
    return base


@pytest.fixture(scope="module")
def corpus(folder: Path) -> Iterator[unspool.Corpus]:
    with open_corpus(folder / "catalog.db") as opened:
        opened.index(folder / "work")
        yield opened


def local(corpus: unspool.Corpus, scope: Scope, *, home: str = "work") -> Agent:
    """An agent of the user of this machine."""
    agent = Agent(corpus, scope)
    caller = Caller(view=View(corpus, scope), home=lambda: home, confined=lambda _: View(corpus, scope), root_of=corpus.root_of)
    agent.server = Door(lambda ctx: caller, max_tokens=4000).server()
    return agent


@pytest.fixture(scope="module")
def agent(corpus: unspool.Corpus, folder: Path) -> Agent:
    return local(corpus, Scope.everything(roots=[folder]))


def test_a_project_that_does_not_exist_is_not_indexed_from_somewhere_else(agent: Agent, corpus: unspool.Corpus, folder: Path) -> None:
    from_elsewhere = Agent(corpus, Scope.everything(roots=[folder]))
    for one in (agent, from_elsewhere):
        refused = one.call("index", project="typo")
        assert refused.is_error and "error (not_found): no project 'typo'; there are: work; to make it, give the path" in refused.text
    assert corpus.projects() == ["work"]


def test_from_elsewhere_it_has_to_be_said_what_to_index(corpus: unspool.Corpus, folder: Path) -> None:
    scope = Scope.everything(roots=[folder / "work"])
    refused = Agent(corpus, scope).call("index")
    assert refused.is_error and "error (input): index needs a path, or the project" in refused.text
    assert local(corpus, scope).call("index").values["unchanged"] == 3  # the folder that its user works in


def test_whoever_only_reads_on_this_machine_may_name_paths_of_it(corpus: unspool.Corpus, folder: Path) -> None:
    path = f"{folder}/work/docs/guide.md"
    assert local(corpus, Scope.everything(role=Role.READ)).call("read", path=path).values["at"] == "docs/guide.md:1-3"
    assert Agent(corpus, Scope.everything(role=Role.READ), home="work").call("read", path=path).is_error


def test_a_server_that_only_reads_understands_paths_of_this_machine(corpus: unspool.Corpus, folder: Path) -> None:
    arguments = ["-m", "unspool", "mcp", "--read-only", "--database", f"sqlite:///{folder}/catalog.db"]

    async def ask() -> Told:
        server = StdioServerParameters(command=sys.executable, args=arguments, cwd=folder / "work")
        async with Client(server, mode=CURRENT) as client:
            return await told(client, "read", path=f"{folder}/work/docs/guide.md:1-1")

    assert anyio.run(ask).values["text"] == "# Guide"
