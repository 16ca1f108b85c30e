"""Every door tells that the file of a hit has changed since it was indexed, and nothing else
about the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

import unspool
from agents import Agent
from conftest import Cli
from services import serving
from support import doc, open_corpus, settings_for, write
from unspool.access.scope import Scope

FILES = {"same.md": "# Same\n\nThe walrus stays.\n", "edited.md": "# Edited\n\nThe walrus.\n"}
EXPECTED = {"same.md": False, "edited.md": True, "given.md": None}


@pytest.fixture
def place(tmp_path: Path, database: Path) -> Path:
    """A catalog with an unchanged file, a changed one, and text that was given."""
    tree = write(tmp_path / "tree", FILES)
    with open_corpus(database, jobs=1) as corpus:
        corpus.index(tree)
        corpus.put(doc("given.md", "The walrus was given as text.", "tree"))
    (tree / "edited.md").write_text("# Edited\n\nThe walrus was edited.\n")
    return database


def flags(hits: list[dict[str, Any]]) -> dict[str, bool | None]:
    return {hit["path"]: hit["stale"] for hit in hits}


def test_the_command_line_tells_people_and_programs(cli: Cli, place: Path) -> None:
    answer = cli("search", "walrus", "--project", "tree")
    marked = [line.split(":")[0] for line in answer.stdout.splitlines() if line.endswith("  stale")]
    assert marked == ["edited.md"]
    hits = json.loads(cli("search", "walrus", "--project", "tree", "--json").stdout)["hits"]
    assert flags(hits) == EXPECTED


def test_a_service_and_its_client_tell_it(place: Path) -> None:
    with open_corpus(place) as corpus:
        key = corpus.keys.create(projects="tree")[1]
    with serving(settings_for(place)) as address:
        body = {"query": "walrus", "projects": ["tree"]}
        headers = {"Authorization": f"Bearer {key}"}
        answer = httpx2.post(f"{address}/v1/search", json=body, headers=headers)
        assert flags(answer.json()["hits"]) == EXPECTED
        assert str(place.parent.parent) not in answer.text
        with unspool.open(address, key=key) as remote:
            page = remote.search("walrus", projects=["tree"])
            assert {hit.chunk.path: hit.stale for hit in page.hits} == EXPECTED


def test_an_agent_is_told_of_hits_that_are_stale_and_only_of_those(place: Path) -> None:
    with open_corpus(place) as corpus:
        agent = Agent(corpus, Scope.everything())
        answer = agent.call("search", query="walrus", project="tree")
    stale = {hit["at"]: hit.get("stale") for hit in answer.values["hits"]}
    assert stale == {"same.md:1-3": None, "edited.md:1-3": True, "given.md:1": None}
    assert answer.text.count("(file changed since it was indexed)") == 1
