"""Every public member of a corpus, found by reflection, in the scope of another project.

A new method is called here without being listed. A new parameter needs a value in `values`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from neighbours import without_chance
from support import Place, open_corpus
from unspool import Conversation, Corpus, Document, Message, Retention, UnspoolError
from unspool.access.keys import Keys
from unspool.access.scope import Scope
from unspool.domain.keys import Role
from unspool.domain.queries import Page
from unspool.errors import ForbiddenError, NotFoundError
from unspool.memory.catalog_history import CatalogHistory
from unspool.memory.conversations import Conversations

HIDDEN = "narwhal"
ABSENT = "x" * len(HIDDEN)
# members for the process that opened the corpus
OWNER_ONLY = {
    "close",
    "conversations.load",
    "keys",
    "observe",
    "refresh",
    "remember_files",
    "scoped",
    "size_bytes",
    "warm",
}
# members that are about no project
NEUTRAL = {"count_tokens", "embed", "embedder", "scope", "settings", "stores", "history.stream"}
WRITING_BY_DEFAULT = {"conversations.append", "conversations.delete"}
WRITING = {
    "conversations.append",
    "conversations.delete",
    "conversations.save",
    "forget",
    "history.append",
    "history.clear",
    "history.prune",
    "index",
    "put",
    "remember",
    "root_of",
    "project_of",
    "source_of",
}


class Library:
    """A corpus with an open and a hidden project, each with content of every kind."""

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        self.corpus = corpus
        self.folders = {}
        self.continuations = {}
        self.chunk_ids = {}
        for name in ("open", HIDDEN):
            root = self.folders[name] = folder / name
            root.mkdir()
            (root / f"{name}.md").write_text(f"# {name}\n\nThe {name} of the folder has a tusk.")
            corpus.index(root, project=name)
            corpus.put(
                *(
                    Document(project=name, path=f"{number}.md", text=f"The {name} has a tusk.")
                    for number in range(3)
                )
            )
            said = Message(text=f"a {name} tusk", author=name)
            corpus.remember(Conversation(project=name, id="c", messages=[said]))
            corpus.history("jobs", project=name).append(f"{name} done")
            page = corpus.search("tusk", projects=name, limit=1)
            self.continuations[name] = page.continuation or ""
            self.chunk_ids[name] = corpus.conversations.chunks("c", project=name)[0].id
        self.folders[ABSENT] = folder / ABSENT
        self.continuations[ABSENT] = self.continuations[HIDDEN]
        self.chunk_ids[ABSENT] = 2**60

    def values(self, name: str) -> dict[str, Any]:
        """Return an argument for every parameter, about the project of that name."""
        message = Message(text="a word about a tusk")
        return {
            "after": "0.md",
            "alpha": 0.5,
            "at": datetime(2024, 5, 1, tzinfo=UTC),
            "body": "a response",
            "caller": "",
            "chunk_id": self.chunk_ids[name],
            "continuation": self.continuations[name],
            "conversation": [Message(text="tusk?")],
            "conversations": (Conversation(project=name, id="d", messages=[message]),),
            "documents": (Document(project=name, path="new.md", text="a new tusk"),),
            "explain": True,
            "files": self.folders[name],
            "first": 1,
            "full": True,
            "hook": lambda event: None,
            "id": "c",
            "k": 100,
            "last": 1,
            "limit": 100,
            "line": 1,
            "max_tokens": 0,
            "max_total_tokens": 0,
            "messages": (message,),
            "min_score": None,
            "model": None,
            "offset": 0,
            "on_progress": None,
            "on_text": None,
            "path": "0.md",
            "paths": self.folders[name],
            "project": name,
            "projects": [name],
            "queries": ["tusk"],
            "query": "tusk",
            "question": "tusk?",
            "ref": "",
            "restart": True,
            "retention": None,
            "scope": Scope.everything(),
            "skip": 0,
            "source": str(self.folders[name]),
            "status": "indexed",
            "stream": "jobs",
            "text": "tusk",
            "vector": self.corpus.embed("tusk"),
            "where": None,
        }

    def call(self, corpus: Corpus, member: str, name: str, *, full: bool = True) -> object:
        """Call a member about a project; without `full` only with what it requires."""
        values = self.values(name)
        owner: Any = corpus
        prefix, _, last = member.rpartition(".")
        if prefix == "conversations":
            owner = corpus.conversations
        elif prefix == "history":
            owner = corpus.history("jobs", project=name)
        method = getattr(owner, last)
        if not callable(method):
            return method
        positional, named = [], {}
        for one in inspect.signature(method).parameters.values():
            value = values[one.name]  # a new parameter needs a value above
            if one.kind is one.VAR_POSITIONAL:
                positional += value
            elif one.default is one.empty or (full and value is not None):
                named[one.name] = value
        if positional:  # those before them have no names
            positional = [*(named.pop("id") for _ in range("id" in named)), *positional]
        if member == "project_of":
            named["path"] = self.folders[name]
        result = method(*positional, **named)
        if member == "answering":
            with result as stream:
                return "".join(stream), stream.answer
        return result


def list_members() -> Iterator[str]:
    for prefix, kind in (
        ("", Corpus),
        ("conversations.", Conversations),
        ("history.", CatalogHistory),
    ):
        for name in vars(kind):
            if not name.startswith("_") and name not in ("conversations", "history"):
                yield prefix + name
    yield from ("embedder", "scope", "settings")


MEMBERS = sorted(set(list_members()))


def describe(
    library: Library, corpus: Corpus, member: str, name: str, *, full: bool = False
) -> str:
    """Return everything that a call shows, as text."""
    try:
        return without_chance(repr(library.call(corpus, member, name, full=full)))
    except UnspoolError as error:
        return f"{type(error).__name__} {error.code} {error.http_status}: {error} {vars(error)}"


@pytest.fixture
def library(database: Place, tmp_path: Path) -> Iterator[Library]:
    with open_corpus(database) as corpus:
        yield Library(corpus, tmp_path)


def make_scope(library: Library, role: Role, *projects: str) -> Scope:
    return Scope(
        projects=frozenset(projects), role=role, caller="k", roots=(library.folders["open"],)
    )


@pytest.mark.parametrize("role", list(Role))
def test_no_member_shows_a_project_outside_the_scope(library: Library, role: Role) -> None:
    before = snapshot(library.corpus)
    scoped = library.corpus.scoped(make_scope(library, role, "open"))
    for member in MEMBERS:
        for full in (True, False):
            hidden, absent = (
                describe(library, scoped, member, name, full=full) for name in (HIDDEN, ABSENT)
            )
            # without a name, a message is written into the caller's own project
            if member in NEUTRAL or (not full and member in WRITING_BY_DEFAULT):
                assert HIDDEN not in hidden, member
            else:
                assert hidden.replace(HIDDEN, ABSENT) == absent, (member, full)
    assert snapshot(library.corpus) == before


@pytest.mark.parametrize("projects", [(), ("elsewhere",)])
def test_a_scope_without_existing_projects_finds_nothing(
    library: Library, projects: tuple[str, ...]
) -> None:
    before = snapshot(library.corpus)
    scoped = library.corpus.scoped(make_scope(library, Role.ADMIN, *projects))
    for member in MEMBERS:
        if member in ("scope", "settings", "index", "remember", "put") or "." in member:
            continue
        values = describe(library, scoped, member, HIDDEN)
        shown = values.replace(f"no project '{HIDDEN}'", "").replace(f"'project': '{HIDDEN}'", "")
        assert HIDDEN not in shown and "'open'" not in shown, member
    assert (scoped.projects(), scoped.documents(), scoped.streams()) == ([], [], [])
    assert (scoped.count(), scoped.status()) == (0, [])
    for ask in (scoped.search, scoped.ask, scoped.answering):
        with pytest.raises(NotFoundError):
            ask("tusk")
    assert snapshot(library.corpus) == before


@pytest.mark.parametrize("role", list(Role))
def test_members_of_the_owner_are_refused_in_every_scope(library: Library, role: Role) -> None:
    for scope in (make_scope(library, role, "open"), Scope.everything(role=role)):
        scoped = library.corpus.scoped(scope)
        for member in OWNER_ONLY:
            with pytest.raises(ForbiddenError, match="not possible with a key"):
                library.call(scoped, member, "open")
        for ask in (
            lambda: scoped.search("tusk", projects="open", caller="k2"),  # noqa: B023
            lambda: scoped.more("x", caller="k2"),  # noqa: B023
            lambda: scoped.ask("tusk", projects="open", model="openai:m"),  # noqa: B023
            lambda: scoped.history("jobs", project="open", retention=Retention(max_records=1)),  # noqa: B023
        ):
            with pytest.raises(ForbiddenError, match="not possible with a key"):
                ask()
    library.corpus.search("tusk", projects="open")  # nobody has closed it


def test_roles_decide_who_writes(library: Library) -> None:
    for member in MEMBERS:
        if member in OWNER_ONLY or member == "more":  # the owner's continuation
            continue
        scoped = library.corpus.scoped(make_scope(library, Role.READ, "open"))
        if member in WRITING:
            with pytest.raises(ForbiddenError, match="role"):
                library.call(scoped, member, "open", full=False)
        else:
            library.call(scoped, member, "open", full=False)


def test_only_the_corpus_that_was_opened_has_keys() -> None:
    assert isinstance(Corpus.keys, property)
    assert {name for name in vars(Keys) if not name.startswith("_")} == {
        "are_used",
        "create",
        "find",
        "list",
        "revoke",
    }


def test_the_next_page_of_a_scoped_search_is_found(library: Library) -> None:
    scoped = library.corpus.scoped(make_scope(library, Role.READ, "open"))
    page = scoped.search("tusk", limit=1)
    following = page.more()
    assert isinstance(following, Page)
    assert following.number == 2
    assert {hit.chunk.project for hit in following.hits} == {"open"}


def snapshot(corpus: Corpus) -> object:
    return (
        corpus.projects(),
        corpus.documents(project=HIDDEN),
        corpus.streams(project=HIDDEN),
        corpus.conversations.get("c", project=HIDDEN),
        corpus.count(project=HIDDEN),
    )
