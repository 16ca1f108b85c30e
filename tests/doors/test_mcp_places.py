"""Paths as agents name them: of documents, of folders on this machine, of what is to be indexed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters

import unspool
from agents import CURRENT, Agent, ToolResult, call_tool
from support import doc, open_corpus, write
from unspool.access.scope import Scope
from unspool.domain.keys import Role
from unspool.interfaces.mcp.conditions import resolve_languages
from unspool.interfaces.mcp.server import McpCaller, RequestHandler

CODE = "\n".join(f"def step{number}():\n    return 'retry {number}'\n" for number in range(40))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a project in it, and one beside it that is none."""
    base = tmp_path_factory.mktemp("places")
    write(
        base / "work",
        {
            "src/call.py": CODE,
            "src/deep/again.js": "// retry once\n",
            "docs/guide.md": "# Guide\n\nHow to retry.\n",
        },
    )
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
    caller = McpCaller(
        corpus=corpus.scoped(scope),
        home=lambda: home,
        confine=lambda _: corpus.scoped(scope),
        root_of=corpus.root_of,
    )
    agent.server = RequestHandler(lambda ctx: caller, max_tokens=4000).build_server()
    return agent


@pytest.fixture(scope="module")
def agent(corpus: unspool.Corpus, folder: Path) -> Agent:
    return local(corpus, Scope.everything(roots=[folder]))


def test_a_project_that_does_not_exist_is_not_indexed_from_somewhere_else(
    agent: Agent, corpus: unspool.Corpus, folder: Path
) -> None:
    from_elsewhere = Agent(corpus, Scope.everything(roots=[folder]))
    for one in (agent, from_elsewhere):
        refused = one.call("index", project="typo")
        assert (
            refused.is_error
            and "error (not_found): no project 'typo'; there are: work; to create it, give the path"
            in refused.text
        )
    assert corpus.projects() == ["work"]


def test_from_elsewhere_it_has_to_be_said_what_to_index(
    corpus: unspool.Corpus, folder: Path
) -> None:
    scope = Scope.everything(roots=[folder / "work"])
    refused = Agent(corpus, scope).call("index")
    assert refused.is_error and "error (input): index needs a path, or the project" in refused.text
    # the folder that its user works in
    assert local(corpus, scope).call("index").values["unchanged"] == 3


def test_whoever_only_reads_on_this_machine_may_name_paths_of_it(
    corpus: unspool.Corpus, folder: Path
) -> None:
    path = f"{folder}/work/docs/guide.md"
    assert (
        local(corpus, Scope.everything(role=Role.READ)).call("read", path=path).values["at"]
        == "docs/guide.md:1-3"
    )
    assert (
        Agent(corpus, Scope.everything(role=Role.READ), home="work")
        .call("read", path=path)
        .is_error
    )


def test_a_server_that_only_reads_understands_paths_of_this_machine(
    corpus: unspool.Corpus, folder: Path
) -> None:
    arguments = [
        "-m",
        "unspool",
        "mcp",
        "--read-only",
        "--database",
        f"sqlite:///{folder}/catalog.db",
    ]

    async def ask() -> ToolResult:
        server = StdioServerParameters(command=sys.executable, args=arguments, cwd=folder / "work")
        async with Client(server, mode=CURRENT) as client:
            return await call_tool(client, "read", path=f"{folder}/work/docs/guide.md:1-1")

    assert anyio.run(ask).values["text"] == "# Guide"


@pytest.mark.parametrize("name", ["path", "directory", "target_directories"])
@pytest.mark.parametrize(
    "folder_name",
    [
        "src",
        "src/",
        "./src",
        "/src",
        "src/deep,src",
        "{ROOT}/src",
        "{ROOT}/src/",
        "{ROOT}/src/**",
        "{ROOT}/src/**/*.*",
    ],
)
def test_a_search_keeps_to_a_folder(
    agent: Agent, folder: Path, name: str, folder_name: str
) -> None:
    found = agent.call(
        "search", query="retry", limit=30, **{name: folder_name.replace("{ROOT}", f"{folder}/work")}
    )
    assert {place.rsplit(":", 1)[0] for place in found.places} == {
        "src/call.py",
        "src/deep/again.js",
    }


@pytest.mark.parametrize("everything", [".", "./", "/", "{ROOT}", "{ROOT}/"])
def test_the_folder_of_the_project_is_all_of_it(
    agent: Agent, folder: Path, everything: str
) -> None:
    found = agent.call(
        "search", query="retry", limit=30, path=everything.replace("{ROOT}", f"{folder}/work")
    )
    assert {place.rsplit(":", 1)[0] for place in found.places} == {
        "src/call.py",
        "src/deep/again.js",
        "docs/guide.md",
    }


@pytest.mark.parametrize(
    ("sent", "path"),
    [
        ({"language": "py"}, "src/call.py"),
        ({"language": "Python"}, "src/call.py"),
        ({"language": ".js"}, "src/deep/again.js"),
        ({"language": "node"}, "src/deep/again.js"),
        ({"language": "md"}, "docs/guide.md"),
        ({"extensions": ["js"]}, "src/deep/again.js"),
        ({"path": "src", "extensions": ["*.md", ".py"]}, "src/call.py"),
    ],
)
def test_languages_are_known_by_their_endings_too(
    agent: Agent, sent: dict[str, object], path: str
) -> None:
    found = agent.call("search", query="retry", limit=30, **sent)
    assert {place.rsplit(":", 1)[0] for place in found.places} == {path}


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("c++", "cpp"),
        ("c#", "csharp"),
        ("sh", "bash"),
        ("shell", "bash"),
        ("ts", "typescript"),
        ("rs", "rust"),
        ("go", "go"),
        ("klingon", "klingon"),
    ],
)
def test_short_names_of_languages(name: str, language: str) -> None:
    assert resolve_languages(name)[-1] == language and resolve_languages(name)[0] == name


def test_a_folder_of_one_project_is_not_looked_for_in_another(tmp_path: Path) -> None:
    write(tmp_path / "one", {"src/a.md": "The walrus of one."})
    write(tmp_path / "two", {"src/a.md": "The walrus of two.", "b.md": "Another walrus of two."})
    with open_corpus(tmp_path / "catalog.db") as opened:
        opened.index(tmp_path / "one")
        opened.index(tmp_path / "two")
        agent = local(opened, Scope.everything(), home="")

        def found(path: str) -> list[str]:
            return sorted(
                f"{hit['project']}/{hit['at']}"
                for hit in agent.call("search", query="walrus", project="*", path=path).values[
                    "hits"
                ]
            )

        assert found("src") == ["one/src/a.md:1", "two/src/a.md:1"]
        assert found(f"{tmp_path}/one/src") == ["one/src/a.md:1"]
        assert found(f"{tmp_path}/two") == ["two/b.md:1", "two/src/a.md:1"]
        assert found(f"{tmp_path}/one,b.md") == ["one/src/a.md:1", "two/b.md:1"]


def test_conditions_that_nothing_meets_are_named(agent: Agent, folder: Path) -> None:
    found = agent.call("search", query="retry", path="lib", language="klingon")
    assert (
        "nothing found in work with path 'lib' and language 'klingon'; leave path and language "
        "out, try other words"
    ) in found.text
    # of no project that is searched
    elsewhere = agent.call("search", query="retry", path=f"{folder}/other")
    assert elsewhere.values["hits"] == [] and "leave path out" in elsewhere.text


@pytest.mark.parametrize(
    ("sent", "lines"),
    [
        ({"view_range": [5, -1]}, "5-34"),
        ({"view_range": [5, 0]}, "5-34"),
        ({"lines": "5--1"}, "5-34"),
        ({"start_line": 5, "end_line": -1}, "5-34"),
        ({"path": "src/call.py:10-12", "first_line": 50}, "50-79"),
        ({"path": "src/call.py:10-12", "first_line": 11}, "11-12"),
        ({"path": "src/call.py:10-12", "last_line": 20}, "10-20"),
        ({"path": "src/call.py:10-12", "lines": "50"}, "50-79"),
        ({"path": "unspool://work/documents/src/call.py:5-8"}, "5-8"),
        ({"path": "unspool://work/documents/src/call.py#L5-L8"}, "5-8"),
        ({"path": "unspool://work/documents/src/call.py", "first_line": 5, "last_line": 8}, "5-8"),
    ],
)
def test_lines_are_those_that_were_meant(agent: Agent, sent: dict[str, object], lines: str) -> None:
    assert (
        agent.call("read", **{"path": "src/call.py", **sent}).values["at"] == f"src/call.py:{lines}"
    )


def test_the_place_of_every_hit_can_be_read(tmp_path: Path) -> None:
    with open_corpus(tmp_path / "catalog.db") as opened:
        agent = Agent(opened, Scope.everything(), home="work")
        for title in ("Meeting 12:30", "Meeting 12", "a#L5", "b, line 3", "c:1-2"):
            agent.call(
                "remember",
                text=f"The walrus of {title} sat on the mat.",
                title=title,
                project="work",
            )
        found = agent.call("search", query="walrus mat", limit=30)
        assert len(found.places) == 5
        for hit in found.values["hits"]:
            title = hit["at"].rsplit(":", 1)[0]
            assert f"The walrus of {title} sat" in agent.call("read", path=hit["at"]).values["text"]
            assert not agent.call("related", path=hit["at"]).is_error


def test_a_resource_that_does_not_exist_is_told_with_what_to_do(agent: Agent) -> None:
    missing = agent.call("read", path="unspool://work/documents/nowhere.md:5")
    assert missing.text == (
        "error (not_found): no document 'nowhere.md' in project 'work'; give a path as "
        "search names it"
    )
    assert (
        "no project 'attic'; there are: work"
        in agent.call("read", path="unspool://attic/documents/x.md").text
    )


def test_errors_advise_what_an_agent_can_do(tmp_path: Path, folder: Path) -> None:
    with open_corpus(tmp_path / "catalog.db") as opened:
        opened.index(folder / "work")
        opened.index(folder / "other")
        agent = Agent(opened, Scope.everything(roots=[folder]))
        errors = [
            agent.call("search", query="retry"),
            agent.call("index", path=str(folder / "other"), project="work"),
            agent.call("related", path="unspool://work/documents/nowhere.md"),
            agent.call("read", path="unspool://work/documents/nowhere.md"),
        ]
        for error in errors:
            assert (
                error.is_error
                and "--" not in error.text
                and "`unspool" not in error.text
                and "command line" not in error.text
            ), error.text
        assert errors[0].text.endswith("name one or more of: other, work; or '*' for all")
        assert errors[1].text.endswith("give this one another name as project")


def test_a_path_in_many_projects_names_a_few_of_them(tmp_path: Path) -> None:
    with open_corpus(tmp_path / "catalog.db") as opened:
        for number in range(40):
            opened.put(doc("a.md", "Something.", f"p{number:02}"))
        said = Agent(opened, Scope.everything()).call("read", path="a.md")
        assert said.is_error and said.text.endswith(", p18, p19")


def test_a_long_title_is_not_the_whole_id(tmp_path: Path) -> None:
    with open_corpus(tmp_path / "catalog.db") as opened:
        agent = Agent(opened, Scope.everything(), home="work")
        stored = agent.call("remember", text="A walrus.", title="walrus " * 500)
        assert 90 <= len(stored.values["conversation"]) <= 100
        hit = agent.call("search", query="walrus", max_tokens=200).values["hits"][0]
        assert hit["at"] == f"{stored.values['conversation']}:1"


@pytest.mark.parametrize("path", ["app/[id]", "app/[id]/", "app/[id]/page.md", "[id]"])
def test_brackets_in_the_name_of_a_folder_are_meant_as_they_stand(
    tmp_path: Path, path: str
) -> None:
    with open_corpus(tmp_path / "catalog.db") as corpus:
        corpus.put(
            doc("app/[id]/page.md", "How to retry a page."),
            doc("app/new/page.md", "How to retry another."),
        )
        found = Agent(corpus, Scope.everything()).call("search", query="retry", path=path)
    assert [place.split(":")[0] for place in found.places] == ["app/[id]/page.md"]
