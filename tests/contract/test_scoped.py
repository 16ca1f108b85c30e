"""What a scope does not hold does not exist for it, and what its role does not allow is refused;
lines of documents are read as they were.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import combinations_with_replacement
from pathlib import Path

import pytest

import unspool
from support import Place, Places, beside, open_corpus
from unspool import Conversation, Corpus, Document, Message, UnspoolError
from unspool.access.scope import Scope, admit
from unspool.catalog import passages, projects
from unspool.domain.keys import Role
from unspool.errors import (
    ConflictError,
    ForbiddenError,
    InputError,
    NotFoundError,
    SweptContinuationError,
    UnauthenticatedError,
)

HIDDEN = "narwhal"  # stands only in what belongs to the other project, whose name it is, too
Asked = Callable[[Corpus, str], object]

READING: dict[str, Asked] = {
    "search": lambda view, name: view.search("tusk", projects=[name]),
    "related": lambda view, name: view.related("a.md", project=name),
    "nearest": lambda view, name: view.nearest(view.embed("tusk"), projects=[name]),
    "answering": lambda view, name: list(view.answering("tusk?", projects=[name])),
    "read": lambda view, name: view.read("a.md", project=name),
    "documents": lambda view, name: view.documents(project=name),
    "document": lambda view, name: view.document("a.md", project=name),
    "passage": lambda view, name: view.passage("a.md", project=name),
    "count": lambda view, name: view.count(project=name),
    "status": lambda view, name: view.status(project=name),
    "conversation": lambda view, name: view.conversations.get("c", project=name),
    "conversations": lambda view, name: view.conversations.list(project=name),
    "conversation chunks": lambda view, name: view.conversations.chunks("c", project=name),
    "history": lambda view, name: view.history("jobs", project=name).read(),
    "streams": lambda view, name: view.streams(project=name),
}
WRITING: dict[str, Asked] = {
    "put": lambda view, name: view.put(Document(project=name, path="b.md", text="new")),
    "forget": lambda view, name: view.forget(project=name, path="a.md"),
    "forget all": lambda view, name: view.forget(project=name),
    "reindex": lambda view, name: view.index(view.source_of(name), project=name),
    "save": lambda view, name: view.conversations.save(
        Conversation(project=name, id="d", messages=[Message(text="x")])
    ),
    "append": lambda view, name: view.conversations.append("c", Message(text="x"), project=name),
    "delete": lambda view, name: view.conversations.delete("c", project=name),
    "record": lambda view, name: view.history("jobs", project=name).append("x"),
    "clear": lambda view, name: view.history("jobs", project=name).clear(),
}


def fill(corpus: Corpus) -> None:
    for name, word in (("open", "walrus"), (HIDDEN, HIDDEN)):
        corpus.put(Document(project=name, path="a.md", text=f"# {word}\n\nThe {word} has a tusk."))
        corpus.remember(
            Conversation(
                project=name, id="c", messages=[Message(text=f"a {word} tusk", author=word)]
            )
        )
        corpus.history("jobs", project=name).append(f"{word} done")


def outcome(ask: Asked, view: Corpus, name: str) -> str:
    try:
        return repr(ask(view, name))
    except UnspoolError as error:
        return f"{type(error).__name__}: {error}"


@pytest.fixture
def filled(database: Place) -> Iterator[Corpus]:
    corpus = open_corpus(database)
    fill(corpus)
    yield corpus
    corpus.close()


def test_another_project_is_answered_as_one_that_never_was(filled: Corpus) -> None:
    view = filled.scoped(Scope(projects=frozenset({"open"}), role=Role.ADMIN, caller="k"))
    for task, ask in {**READING, **WRITING}.items():
        hidden, absent = outcome(ask, view, HIDDEN), outcome(ask, view, "x" * len(HIDDEN))
        assert hidden.replace(HIDDEN, "x" * len(HIDDEN)) == absent, task
        assert absent.startswith("UnknownProjectError"), task
    assert filled.count(project=HIDDEN) == 2  # nothing was written, nothing removed


def test_nothing_of_another_project_is_in_what_is_not_about_one(filled: Corpus) -> None:
    view = filled.scoped(Scope(projects=frozenset({"open"}), role=Role.ADMIN, caller="k"))
    seen = [
        view.search("tusk"),
        view.search("tusk", projects="*"),
        view.documents(),
        view.status(),
        view.projects(),
        view.streams(),
        view.count(),
    ]
    assert HIDDEN not in repr(seen)
    assert (view.projects(), view.count()) == (["open"], 2)
    assert [hit.chunk.project for hit in view.nearest(view.embed("tusk"))] == ["open", "open"]


def test_roles_allow_what_the_ones_before_them_do_and_more(filled: Corpus) -> None:
    scope = Scope(projects=frozenset({"open"}), role=Role.READ, caller="k")
    for ask in READING.values():
        ask(filled.scoped(scope), "open")
    for ask in WRITING.values():
        with pytest.raises(ForbiddenError):
            ask(filled.scoped(scope), "open")
    writer = filled.scoped(Scope(projects=frozenset({"open"}), role=Role.WRITE, caller="k"))
    for task in ("put", "save", "append", "record", "delete", "forget"):
        WRITING[task](writer, "open")
    for task in ("forget all", "reindex"):
        with pytest.raises(ForbiddenError):
            WRITING[task](writer, "open")


def test_a_continuation_is_unknown_to_everybody_else(filled: Corpus) -> None:
    mine = filled.scoped(Scope(projects=None, role=Role.READ, caller="k1"))
    page = mine.search("tusk", projects="*", limit=1)
    assert page.continuation
    for other in (
        Scope(projects=None, role=Role.READ, caller="k2"),
        Scope.everything().narrow(["open"]),
        Scope.everything(),
    ):
        with pytest.raises(SweptContinuationError) as caught:
            filled.scoped(other).more(page.continuation, restart=True)
        assert HIDDEN not in str(caught.value)
    assert mine.more(page.continuation).number == 2


def test_a_narrower_view_does_not_go_on_where_a_wider_one_began(filled: Corpus) -> None:
    page = filled.scoped(Scope.everything()).search("tusk", projects="*", limit=1)
    with pytest.raises(SweptContinuationError):
        filled.scoped(Scope(projects=frozenset({"open"}), role=Role.READ)).more(
            page.continuation or ""
        )


def test_a_narrower_view_does_not_restart_what_a_wider_one_began(
    filled: Corpus, database: Place
) -> None:
    page = filled.scoped(Scope.everything()).search("tusk", projects=HIDDEN, limit=1)
    with beside(database, windows=True) as tables:
        tables.run("UPDATE windows SET expires_at=1")
    with open_corpus(database) as again, pytest.raises(SweptContinuationError) as caught:
        again.scoped(Scope(projects=frozenset({"open"}), role=Role.READ)).more(
            page.continuation or "", restart=True
        )
    assert HIDDEN not in str(caught.value)


def test_only_admins_learn_where_a_project_lies(filled: Corpus, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("a walrus")
    filled.index(tmp_path, project="mine")
    for role, root in ((Role.READ, ""), (Role.WRITE, ""), (Role.ADMIN, str(tmp_path))):
        scoped = filled.scoped(Scope(projects=frozenset({"mine"}), role=role))
        assert [one.root for one in scoped.status()] == [root]
        assert [one.root for one in scoped.status(project="mine")] == [root]


def test_keys_are_asked_for_as_soon_as_there_has_been_one(filled: Corpus) -> None:
    assert admit(filled, None) == Scope.everything(git_hosts=frozenset())
    with pytest.raises(UnauthenticatedError):
        admit(filled, "unspool_0123456789ab_" + "x" * 43)
    key, text = filled.keys.create(projects="open", role="write")
    assert admit(filled, text) == Scope(
        projects=frozenset({"open"}), role=Role.WRITE, caller=key.id
    )
    filled.keys.revoke(key.id)
    for shown in (text, None, "", "unspool_"):
        with pytest.raises(UnauthenticatedError):
            admit(filled, shown)


def test_only_what_lies_under_the_roots_can_be_indexed(filled: Corpus, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "a.md").write_text("a walrus")
    (tmp_path / "outside").mkdir()
    (inside / "way-out").symlink_to(tmp_path / "outside")
    view = filled.scoped(
        Scope(projects=frozenset({"mine"}), role=Role.ADMIN, caller="k", roots=(inside,))
    )
    bad = (
        str(tmp_path),
        str(inside / ".." / "outside"),
        str(inside / "way-out"),
        "inside",
        "file:///etc",
        "~",
        "/",
        f"{inside}x",
    )
    for source in bad:
        with pytest.raises(ForbiddenError):
            view.index(source)
    assert view.index(str(inside)).project == "mine"
    assert view.index(view.source_of("mine"), project="mine").unchanged == 1
    with pytest.raises(ConflictError, match="given as text"):
        filled.scoped(Scope.everything()).source_of("open")
    with pytest.raises(ForbiddenError):
        filled.scoped(Scope(projects=frozenset({"mine"}), role=Role.WRITE, roots=(inside,))).index(
            str(inside)
        )


@pytest.mark.parametrize("has_key", [True, False])
def test_a_service_fetches_only_from_the_hosts_that_are_named(
    places: Places, has_key: bool
) -> None:
    addresses = (
        "https://git.example/a.git",
        "ssh://me@GIT.example:22/a",
        "git@git.example:a",
        "git://git.example./a",
    )
    others = (
        "https://evil.example/a",
        "https://git.example@evil.example/a",
        "https://git.example.evil.example/a",
        "git@127.0.0.1:a",
        "https://u:p@[::1]/a",
    )
    for hosts, allowed in (
        ("", ()),
        (" Git.Example ,other.example", addresses),
        ("*", (*addresses, *others)),
    ):
        with open_corpus(places.new(), git_hosts=hosts) as corpus:
            text = corpus.keys.create(projects="*", role="admin")[1] if has_key else None
            view = corpus.scoped(admit(corpus, text))
            for source in {*addresses, *others}:
                with (
                    nullcontext()
                    if source in allowed
                    else pytest.raises(ForbiddenError, match="UNSPOOL_GIT_HOSTS")
                ):
                    view.scope.check_source(source)


def test_the_owner_fetches_from_anywhere_and_others_only_with_the_role(filled: Corpus) -> None:
    filled.scoped(Scope.everything().narrow(["open"])).scope.check_source("https://git.example/a")
    with pytest.raises(ForbiddenError, match="role"):
        filled.scoped(Scope.everything(role=Role.WRITE)).scope.check_source("https://git.example/a")


def test_no_address_leads_out_of_the_roots_however_it_is_written(
    filled: Corpus, tmp_path: Path
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        run = partial(subprocess.run, cwd=folder, check=True, capture_output=True)
        (folder / "a.md").write_text("a walrus")
        for command in (
            "init",
            "add .",
            "-c user.name=t -c user.email=t@example.org -c commit.gpgsign=false commit -m a",
        ):
            run(["git", *command.split()])
    (inside / "round").symlink_to(inside / "round")
    view = filled.scoped(
        Scope(projects=frozenset({"mine"}), role=Role.ADMIN, caller="k", roots=(inside,))
    )
    written = (
        f"file://{inside}/%2e%2e/outside",  # git decodes it
        f"file://{inside}%2F..%2Foutside",
        f"file://{inside}/%00",
        f"FILE://{outside}",
        f"file://localhost{inside}",
        "~nobody-of-that-name/x",
        f"{inside}/round/x",
    )
    for source in written:
        with pytest.raises(ForbiddenError):
            view.index(source)
    assert view.index(f"file://{inside}").added == 1


def test_whether_somebody_else_has_a_text_is_not_told(filled: Corpus) -> None:
    view = filled.scoped(Scope(projects=frozenset({"open"}), role=Role.WRITE, caller="k"))
    known, new = (f"# {word}\n\nThe {word} has a tusk." for word in (HIDDEN, "unicorn"))
    reports = [
        view.put(Document(project="open", path=f"{number}.md", text=text))
        for number, text in enumerate((known, new))
    ]
    said = [
        view.conversations.append("d", Message(text=text), project="open")
        for text in (f"a {HIDDEN} tusk", "a unicorn tusk")
    ]
    saved = [
        view.conversations.save(
            Conversation(project="open", id=text[:9], messages=[Message(text=text)])
        )
        for text in (f"a {HIDDEN} tusk", "a snake")
    ]
    assert [(one.chunks, one.embedded) for one in (*reports, *said, *saved)] == [(1, 1)] * 6
    # the owner is told
    assert (
        filled.scoped(Scope.everything())
        .put(Document(project="open", path="3.md", text=known))
        .embedded
        == 0
    )


def test_a_name_that_is_too_long_for_a_project_is_not_repeated_whole(filled: Corpus) -> None:
    for scope in (
        Scope.everything(),
        Scope(projects=frozenset({"open"}), role=Role.READ, caller="k"),
    ):
        with pytest.raises(NotFoundError) as caught:
            filled.scoped(scope).search("tusk", projects=["x" * 100_000])
        assert len(str(caught.value)) < 1_000


TEXT = "first\n\n\nsecond paragraph\n   indented\n\n\n\n# Heading\n\nbody\nlast"


@pytest.mark.parametrize(("first", "last"), [(1, None), (2, 4), (3, 3), (4, 5), (6, 99), (12, 12)])
def test_lines_are_read_as_they_were(database: Place, first: int, last: int | None) -> None:
    with open_corpus(database) as corpus:
        corpus.put(Document(project="a", path="a.txt", text=TEXT))
        passage = corpus.read("a.txt", first=first, last=last)
    lines = TEXT.split("\n")
    stop = len(lines) if last is None else min(last, len(lines))
    assert passage.text.split("\n") == lines[first - 1 : stop]
    assert (passage.lines, passage.last_line, passage.is_whole) == (
        (first, stop),
        len(lines),
        first == 1,
    )


def test_a_file_is_read_back_whole(database: Place) -> None:
    source = Path(unspool.__file__).parent / "corpus.py"
    with open_corpus(database) as corpus:
        corpus.index(source, project="p")
        assert corpus.read("corpus.py", project="p").text == source.read_text(
            encoding="utf-8"
        ).rstrip("\n")


def test_a_root_that_is_a_link_is_where_it_leads_now(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "current").symlink_to(tmp_path / "one")
    scope = Scope.everything(roots=[tmp_path / "current"])
    assert (
        scope.allows_path(f"{tmp_path}/current"),
        scope.allows_path(f"{tmp_path}/one"),
        scope.allows_path(f"{tmp_path}/two"),
    ) == (True, True, False)
    (tmp_path / "current").unlink()
    (tmp_path / "current").symlink_to(tmp_path / "two")
    assert (
        scope.allows_path(f"{tmp_path}/current"),
        scope.allows_path(f"{tmp_path}/one"),
        scope.allows_path(f"{tmp_path}/two"),
    ) == (True, False, True)


def test_a_part_of_a_project_is_not_the_way_to_its_whole(filled: Corpus, tmp_path: Path) -> None:
    for name in ("open", "closed"):
        (tmp_path / "srv" / name).mkdir(parents=True)
        (tmp_path / "srv" / name / "a.md").write_text("a walrus")
    filled.index(tmp_path / "srv")
    view = filled.scoped(Scope.everything(roots=[tmp_path / "srv" / "open"], git_hosts=frozenset()))
    (tmp_path / "srv" / "closed" / "new.md").write_text("another walrus")
    with pytest.raises(ForbiddenError):
        view.index(str(tmp_path / "srv" / "open"))
    assert len(filled.documents(project="srv")) == 2
    assert view.index(str(tmp_path / "srv" / "open"), project="part").added == 1


def edited(text: str) -> dict[str, str]:
    """The same text as others write it."""
    return {
        "as it is": text,
        "carriage returns": text.replace("\n", "\r\n"),
        "blanks at ends": text.replace("\n", "  \n"),
        "blanks on blank lines": re.sub(r"(?m)^$", "    ", text),
        "tabs": text.replace("    ", "\t"),
        "blank lines first": "\n \n\n" + text,
    }


@pytest.mark.parametrize("how", list(edited("")))
def test_every_range_of_lines_is_read_as_it_was(database: Place, how: str) -> None:
    """Small chunks, so that methods of one class are in several and ranges begin and end between
    chunks.
    """
    text = edited(
        (Path(unspool.__file__).parent / "catalog" / "keys.py").read_text(encoding="utf-8")
    )[how]
    with open_corpus(database, chunk_tokens=60) as corpus:
        corpus.put(Document(project="a", path="a.py", text=text))
        assert corpus.count() > 5
        whole = corpus.read("a.py").text
        lines = [line.rstrip() for line in text.rstrip().split("\n")]
        assert [line.rstrip() for line in whole.split("\n")] == lines
        if how in ("as it is", "carriage returns", "tabs"):
            assert whole == text.rstrip()
        with corpus._resources.search_catalog.read() as connection:
            row = projects.find_project(connection, "a")
            assert row is not None
            for first, last in combinations_with_replacement(range(1, len(lines) + 1), 2):
                passage = passages.read_passage(connection, row, "a.py", first=first, last=last)
                assert passage is not None
                assert (passage.text.split("\n"), passage.lines) == (
                    whole.split("\n")[first - 1 : last],
                    (first, last),
                )


def test_lines_that_moved_are_read_where_they_are(database: Place) -> None:
    text = (
        (Path(unspool.__file__).parent / "catalog" / "keys.py").read_text(encoding="utf-8").rstrip()
    )
    with open_corpus(database, chunk_tokens=60) as corpus:
        for moved in (text, "# one\n\n\n# two\n\n" + text, text):
            corpus.put(Document(project="a", path="a.py", text=moved))
            assert corpus.read("a.py").text == moved


def test_what_is_known_of_a_document_and_its_lines_are_given_together(filled: Corpus) -> None:
    view = filled.scoped(Scope(projects=frozenset({"open"}), role=Role.READ, caller="k"))
    for path in ("a.md", "c"):
        record, passage = view.passage(path, project="open", first=1, last=1)
        assert record == view.document(path, project="open")
        assert passage == view.read(path, project="open", first=1, last=1)
    for path, first in (("b.md", 1), ("a.md", 9)):
        with pytest.raises(NotFoundError):
            view.passage(path, project="open", first=first)
    with pytest.raises(InputError):
        view.passage("a.md", project="open", first=3, last=2)


def test_of_a_conversation_messages_are_read(filled: Corpus) -> None:
    filled.conversations.append("c", Message(text="and\nmore", author="Ann"), project="open")
    assert filled.read("c", project="open").text == "walrus: a walrus tusk\nAnn: and\nmore"
    assert filled.read("c", project="open", first=2).lines == (2, 2)


def test_lines_that_are_not_there_are_refused(filled: Corpus) -> None:
    for path, first in (("b.md", 1), ("a.md", 9)):
        with pytest.raises(NotFoundError):
            filled.read(path, project="open", first=first)
    for first, last in ((0, None), (3, 2)):
        with pytest.raises(InputError):
            filled.read("a.md", project="open", first=first, last=last)
