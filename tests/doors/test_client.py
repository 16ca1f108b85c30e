"""One suite for a corpus in this process and for the same corpus in a service, plain and async:
whatever is asked, the results are equal.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

import unspool
from services import Plain, serving
from support import settings_for, write
from unspool import (
    Conversation,
    Conversations,
    Corpus,
    Document,
    DocumentRecord,
    History,
    Hit,
    Message,
    Page,
    aio,
)
from unspool.client import (
    RemoteConversations,
    RemoteCorpus,
    RemoteHistory,
)
from unspool.errors import ConflictError, InputError, NotFoundError, UnspoolError, UnsupportedError

FACES = ("embedded", "remote", "async")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ODD = ("a/../b", "..", "x #?&=%25 %2F+ä.md", "//two//", "日本.md", "a%2Fb")
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
    "long.md": "# Long\n\n"
    + "\n\n".join(
        f"Paragraph {number} of a session about walruses and how they sleep at sea."
        for number in range(60)
    ),
}
SAID = [
    Message(text="how does a walrus sleep?", author="ann", at=NOON, id="m1"),
    Message(
        text="in the water, with its neck upright",
        kind=unspool.AuthorKind.ASSISTANT,
        at=NOON + timedelta(minutes=1),
        id="m2",
    ),
    Message(text="thank you", author="ann", at=NOON + timedelta(minutes=2)),
]
WHALES = Conversation(
    id="talks/1 #2",
    project="said",
    title="Walruses",
    messages=SAID,
    metadata={"rating": 5},
    url="https://example.org/1",
)


def fill(corpus: Corpus, folder: Path) -> None:
    corpus.index(write(folder / "code", FILES), project="code")
    corpus.put(
        *(
            Document(
                project="notes",
                path=path,
                text=f"walrus note {n}\nand a second line",
                title=f"Note {n}",
                modified=NOON,
                metadata={"n": n},
            )
            for n, path in enumerate((*ODD, "copy.md"))
        ),
        Document(
            project="notes",
            path="same.md",
            text="walrus note 6\nand a second line",
            metadata={"n": 6.5, "ok": True},
        ),
    )
    corpus.remember(
        WHALES,
        Conversation(
            id="2", project="said", messages=[Message(text="nothing", at=NOON - timedelta(days=1))]
        ),
    )
    log = corpus.history("jobs/nightly", project="notes")
    for body in ("done", "done", "x" * 1200):
        log.append(body)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served") / "catalog.db"


@pytest.fixture(scope="module")
def faces(catalog: Path) -> Iterator[Mapping[str, Any]]:
    """The three ways to one catalog. Nobody writes to it."""
    settings = settings_for(catalog)
    with unspool.open(settings=settings) as embedded:
        fill(embedded, catalog.parent)
        with (
            serving(settings) as address,
            unspool.open(address, key=None, settings=settings_for(catalog)) as remote,
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(
                aio.open(address, key=None, settings=settings_for(catalog))
            ) as awaited,
        ):
            yield {"embedded": embedded, "remote": remote, "async": Plain(awaited, portal)}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Any]]:
    """A catalog for each face, to write to."""
    places = {face: tmp_path_factory.mktemp(face) / "catalog.db" for face in FACES}
    settings = {
        face: settings_for(place, roots=str(place.parent), git_hosts="127.0.0.1")
        for face, place in places.items()
    }
    # so that a few documents already take several requests
    asking = settings_for(places["remote"], serve_max_body_bytes=2_000)
    with (
        unspool.open(settings=settings["embedded"]) as embedded,
        serving(settings["remote"]) as first,
        serving(settings["async"]) as second,
        unspool.open(first, key=None, settings=asking) as remote,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(aio.open(second, key=None, settings=asking)) as awaited,
    ):
        yield {
            "embedded": (embedded, places["embedded"].parent),
            "remote": (remote, places["remote"].parent),
            "async": (Plain(awaited, portal), places["async"].parent),
        }


def plain(value: Any) -> Any:
    """A result in full: all that its equality leaves out as well, but what is random or of this
    process alone.
    """
    if isinstance(value, DocumentRecord):
        return replace(value, id=0)
    if isinstance(value, Hit):
        return {
            **_fields(value, "cut"),
            "snippet": value.snippet,
            "text": value.text,
            "within": value.within,
        }
    if isinstance(value, Page):
        return {**_fields(value, "follow", "continuation"), "is_last": value.continuation is None}
    if isinstance(value, unspool.Answer):
        # which the nonce has, too
        context, usage = (
            re.sub(r"\b[0-9a-f]{8}\b", "nonce", value.context),
            replace(value.usage, context_tokens=0),
        )
        return {**_fields(value, "context", "usage"), "context": context, "usage": usage}
    if isinstance(value, unspool.Citation):
        return _fields(value)
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return value


def _fields(value: Any, *without: str) -> dict[str, Any]:
    return {
        one.name: plain(getattr(value, one.name))
        for one in fields(value)
        if one.name not in without
    }


def walk(corpus: Any, query: str, **arguments: Any) -> list[Page]:
    pages = [corpus.search(query, **arguments)]
    while pages[-1].continuation:
        pages.append(corpus.more(pages[-1].continuation))
    return pages


def streamed(corpus: Any, question: str, **arguments: Any) -> list[Any]:
    pieces: list[str] = []
    return [corpus.ask(question, on_text=pieces.append, **arguments), pieces]


READS: dict[str, Callable[[Any], Any]] = {
    "search": lambda c: c.search("open session", projects="code"),
    "search explained": lambda c: c.search("open session", projects="code", limit=2, explain=True),
    "search by words": lambda c: c.search("walrus", projects=["notes", "code"], alpha=0),
    "search by meaning": lambda c: c.search("sleeping animals", projects="*", alpha=1, limit=20),
    "search within a budget": lambda c: c.search("walrus session", projects="code", max_tokens=150),
    "search with locations alone": lambda c: c.search(
        "walrus session", projects="code", max_tokens=12
    ),
    "search with a least score": lambda c: c.search("walrus", projects="notes", min_score=0.4),
    "search in conversations": lambda c: c.search("upright neck", projects="said", limit=1),
    "search for a speaker": lambda c: c.search(
        "walrus", projects="said", where={"speaker": "ann", "time": date(2026, 3, 1)}
    ),
    "search for nobody": lambda c: c.search("walrus", projects="said", where={"speaker": "bob"}),
    "search with a filter": lambda c: c.search(
        "session",
        projects="code",
        where={"any": [{"language": {"in": {"go"}}}, {"path": ("*.md",)}]},
    ),
    "search by time": lambda c: c.search(
        "walrus",
        projects="notes",
        where={"modified": {"ge": NOON, "lt": NOON + timedelta(seconds=1)}},
    ),
    "search by metadata": lambda c: c.search(
        "walrus", projects="notes", where={"metadata": {"n": {"gt": 3}, "ok": {"not": True}}}
    ),
    "search for half a character": lambda c: c.search("walrus \ud83d", projects="notes").hits,
    "walk": lambda c: walk(c, "walrus", projects="*", limit=3, explain=True),
    "walk within a budget": lambda c: walk(
        c, "walrus session", projects="code", limit=4, max_total_tokens=300
    ),
    "a longer page": lambda c: c.more(
        c.search("walrus", projects="*", limit=1).continuation, limit=4, max_tokens=200
    ),
    "related": lambda c: c.related("session.py", 4, project="code", limit=2),
    "related messages": lambda c: c.related("talks/1 #2", project="said"),
    "nearest": lambda c: c.nearest(
        c.embed("a sleeping walrus"), k=4, projects="*", where={"kind": ["docs", "chat"]}
    ),
    "embed": lambda c: c.embed("a sleeping walrus"),
    "count tokens": lambda c: [c.count_tokens("a sleeping walrus"), c.count_tokens("")],
    "ask": lambda c: streamed(c, "how does a walrus sleep?", projects="said"),
    "ask about nothing": lambda c: streamed(
        c, "walrus", projects="notes", where={"language": "cobol"}
    ),
    "ask in a conversation": lambda c: streamed(
        c, "and where?", projects="*", limit=3, conversation=SAID
    ),
    "documents": lambda c: c.documents(),
    "documents of a project": lambda c: c.documents(project="notes", status="indexed"),
    "documents that failed": lambda c: c.documents(status=unspool.Status.FAILED),
    "documents in parts": lambda c: [
        c.documents(project="notes", limit=3),
        c.documents(project="notes", after="copy.md", limit=2),
        c.documents(limit=2),
    ],
    "one document": lambda c: [
        [c.documents(project="notes", path=path), c.documents(path=path)]
        for path in (*ODD, "none", "", "a\0b")
    ],
    "one document that stands otherwise": lambda c: c.documents(
        project="notes", path="same.md", status="stale"
    ),
    "read": lambda c: [c.read(path, project="notes") for path in ODD],
    "read lines": lambda c: [
        c.read("guide.md", project="code", first=3, last=5),
        c.read("talks/1 #2", project="said", first=2),
    ],
    "count": lambda c: [c.count(), c.count(project="notes")],
    "projects": lambda c: c.projects(),
    "status": lambda c: [c.status(), c.status(project="notes")],
    "stores": lambda c: c.stores(),
    "streams": lambda c: [
        c.streams(),
        c.streams(project="notes"),
        c.streams(project="code"),
        c.streams(project="none"),
    ],
    "conversation": lambda c: [
        c.conversations.get(WHALES.id, project="said", last=last) for last in (None, 0, 2)
    ],
    "no conversation": lambda c: [
        c.conversations.get("none", project="said"),
        c.conversations.get("none"),
    ],
    "conversations": lambda c: [
        c.conversations.list(project="said"),
        c.conversations.list(project="said", skip=1, limit=1),
        c.conversations.list(),
    ],
    "how many conversations": lambda c: [
        c.conversations.count(project="said"),
        c.conversations.count(),
    ],
    "whether there is a conversation": lambda c: [
        c.conversations.exists(id_, project="said") for id_ in (WHALES.id, "2", "3")
    ],
    "chunks of a conversation": lambda c: [
        c.conversations.chunks(WHALES.id, project="said"),
        c.conversations.chunks("none"),
    ],
    "a chunk": lambda c: [
        c.conversations.chunk(id_, project="said")
        for id_ in (c.conversations.chunks(WHALES.id, project="said")[1].id, 7, 2**63)
    ],
    "responses": lambda c: [
        c.history("jobs/nightly", project="notes").read(),
        c.history("jobs/nightly", project="notes").read(1, 2),
    ],
    "a page of responses": lambda c: [
        c.history("jobs/nightly", project="notes").page(2, at, full=full)
        for at in (0, 1)
        for full in (False, True)
    ],
    "how many responses": lambda c: [
        c.history("jobs/nightly", project="notes").count(),
        c.history("none").count(),
        c.history("none").read(),
    ],
}


@pytest.mark.parametrize("face", FACES[1:])
@pytest.mark.parametrize("name", READS)
def test_what_is_read_is_equal(faces: Mapping[str, Any], name: str, face: str) -> None:
    assert plain(READS[name](faces[face])) == plain(READS[name](faces["embedded"]))


WRONG: dict[str, Callable[[Any], Any]] = {
    "no project": lambda c: c.search("walrus", projects="none"),
    "several projects": lambda c: c.search("walrus"),
    "an empty list": lambda c: c.search("walrus", projects=[]),
    "a blank query": lambda c: c.search(" ", projects="code"),
    "a long query": lambda c: c.search("x" * 20_001, projects="code"),
    "a query that is no text": lambda c: c.search(7, projects="code"),
    "a limit": lambda c: c.search("walrus", projects="code", limit=0),
    "a score": lambda c: c.search("walrus", projects="code", min_score=float("nan")),
    "an unknown field": lambda c: c.search("walrus", projects="code", where={"colour": "red"}),
    "a filter that is none": lambda c: c.search(
        "walrus", projects="code", where={"path": {"like": "x"}}
    ),
    "a continuation": lambda c: c.more("never"),
    "a continuation that is gone": lambda c: c.more(
        c.search("walrus", projects="*", limit=1).continuation[:-2] + "zz"
    ),
    "a continuation that is no text": lambda c: c.more(7),
    "no document": lambda c: c.related("none", project="code"),
    "a line": lambda c: c.related("guide.md", 0, project="code"),
    "a vector": lambda c: c.nearest([1.0, 2.0], projects="code"),
    "a vector of words": lambda c: c.nearest(["x"], projects="code"),
    "no direction": lambda c: c.nearest([0.0] * 256, projects="code"),
    "a blank text": lambda c: c.embed(" "),
    "a blank question": lambda c: c.ask("", projects="code"),
    "a turn that is none": lambda c: c.ask("x", projects="code", conversation=["y"]),
    "nothing to read": lambda c: c.read("none", project="code"),
    "a path that nothing has": lambda c: c.read("", project="code"),
    "a path that nothing can have": lambda c: c.read("a\0b", project="code"),
    "forgetting what nothing can be called": lambda c: c.forget(project="code", path="x" * 5_000),
    "what is like nothing": lambda c: c.related("", project="code"),
    "nowhere to read": lambda c: c.read("guide.md", project="none"),
    "one of several to read": lambda c: c.read("guide.md"),
    "lines the wrong way": lambda c: c.read("guide.md", project="code", first=3, last=1),
    "a status": lambda c: c.documents(status="lost"),
    "documents of no project": lambda c: c.documents(project="none", path="x"),
    "documents after nothing": lambda c: c.documents(after="x"),
    "a count of nothing": lambda c: c.count(project="none"),
    "the status of nothing": lambda c: c.status(project="none"),
    "forgetting nothing": lambda c: c.forget(project="code", path="none"),
    "forgetting no project": lambda c: c.forget(project="none"),
    "putting nothing": lambda c: c.put(),
    "putting into two projects": lambda c: c.put(
        Document(path="x", text=""), Document(project="y", path="x", text="")
    ),
    "putting the same twice": lambda c: c.put(
        Document(path="x", text=""), Document(path="x", text="")
    ),
    "a version": lambda c: c.put(Document(project="notes", path="copy.md", text="x", version=9)),
    "saving nothing": lambda c: c.remember(),
    "saving what is none": lambda c: c.remember("x"),
    "saving the same twice": lambda c: c.remember(WHALES, WHALES),
    "loading nothing": lambda c: c.remember_files([]),
    "loading what is not there": lambda c: c.remember_files("none.json"),
    "appending nothing": lambda c: c.conversations.append("x"),
    "an id": lambda c: c.conversations.get(""),
    "how many messages": lambda c: c.conversations.get("2", project="said", last=-1),
    "how many conversations": lambda c: c.conversations.list(limit=0),
    "a stream": lambda c: c.history("\n"),
    "a body": lambda c: c.history("x").append(7),
    "a naive time": lambda c: c.history("x").append("y", datetime(2026, 1, 1)),
    "a range": lambda c: c.history("x").read(0),
    "a page that is too long": lambda c: c.history("x").page(11),
    "no source": lambda c: c.index(" "),
}
OF_THE_FORM = (
    "a limit",
    "a score",
    "a line",
    "a vector of words",
    "a blank text",
    "a blank question",
    "how many messages",
    "how many conversations",
)
OF_THE_FORM += ("an empty list", "a continuation that is gone", "nothing to read")


@pytest.mark.parametrize("face", FACES[1:])
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_ends_with_the_same_error(
    faces: Mapping[str, Any], name: str, face: str
) -> None:
    """On failure: the service refuses something before a corpus sees it, with another class."""
    with pytest.raises(UnspoolError) as wanted:
        WRONG[name](faces["embedded"])
    with pytest.raises(UnspoolError) as found:
        WRONG[name](faces[face])
    assert (found.value.code, found.value.exit_code) == (wanted.value.code, wanted.value.exit_code)
    assert isinstance(wanted.value, type(found.value))
    if name not in OF_THE_FORM:
        assert str(found.value) == str(wanted.value)


def outcome(work: Callable[[], Any]) -> Any:
    try:
        return timeless(work())
    except UnspoolError as error:
        return type(error).__name__, re.sub(r"version \d+", "version N", str(error))


def timeless(value: Any) -> Any:
    """A result without when it was made and how long that took."""
    if is_dataclass(value) and not isinstance(value, type):
        values = {
            one.name: timeless(getattr(value, one.name))
            for one in fields(value)
            if one.name
            not in (
                "seconds",
                "indexed_at",
                "updated_at",
                "follow",
                "cut",
                "continuation",
                "version",
            )
        }
        return type(value).__name__, {**values, "id": 0} if isinstance(
            value, DocumentRecord
        ) else values
    return [timeless(one) for one in value] if isinstance(value, tuple | list) else value


def putting(corpus: Any, folder: Path) -> Iterator[Callable[[], Any]]:
    many = [
        Document(
            project="many",
            path=f"{number:02}/x",
            text=f"number {number} of many " * 20,
            title=f"T{number}",
        )
        for number in range(20)
    ]
    yield lambda: corpus.put(*many)
    yield lambda: corpus.put(
        replace(many[0], text="number zero"),
        Document(project="many", path="secret", text="AKIA" + "Z7Q2WMX4PLK9VD3T"),
    )
    yield lambda: corpus.documents(project="many")
    yield lambda: corpus.put(replace(many[0], version=0))
    yield lambda: corpus.put(
        replace(many[0], version=corpus.documents(project="many", path=many[0].path)[0].version)
    )
    yield lambda: corpus.search("zero number", projects="many", limit=3)
    yield lambda: [corpus.forget(project="many", path="01/x"), corpus.count(project="many")]
    yield lambda: corpus.forget(project="many")
    yield lambda: corpus.projects()


def indexing(corpus: Any, folder: Path) -> Iterator[Callable[[], Any]]:
    root = write(folder / "source", FILES)
    (root / "empty.md").write_text("")
    (root / "broken.pdf").write_bytes(b"%PDF-1.4 nothing of the kind")
    yield lambda: replace(corpus.index(root), skips=())  # a job's report counts them
    yield lambda: [replace(one, root="") for one in corpus.status()]
    (root / "guide.md").write_text("# Another\n")
    yield lambda: replace(corpus.index(str(root)), skips=())
    yield lambda: replace(corpus.index(root / "deep"), skips=())  # part of a project that there is
    yield lambda: corpus.index("https://127.0.0.1:1/nobody/there.git")[0]
    yield lambda: corpus.forget(project="source")


def remembering(corpus: Any, folder: Path) -> Iterator[Callable[[], Any]]:
    lines = [
        json.dumps(
            {
                "id": f"c{n}",
                "messages": [
                    {"role": "user", "content": f"message {n} {part}" * 10} for part in range(3)
                ],
            }
        )
        for n in range(12)
    ]
    (folder / "export.jsonl").write_text("\n".join([*lines, "broken", lines[0]]))
    told: list[unspool.Progress] = []
    yield lambda: _timeless_bad(
        corpus.remember_files(folder / "export.jsonl", project="talks", on_progress=told.append),
        folder,
    )
    yield lambda: [told[-1].task, told[-1].done == told[-1].total]
    yield lambda: _timeless_bad(
        corpus.conversations.load([str(folder / "export.jsonl")], project="talks"), folder
    )
    yield lambda: corpus.remember(replace(WHALES, project="talks"))
    yield lambda: corpus.remember(
        replace(WHALES, project="talks", messages=SAID[:2]),
        Conversation(id="empty", project="talks"),
    )
    yield lambda: corpus.conversations.append(
        WHALES.id, SAID[0], Message(text="again", at=NOON, id="m9"), project="talks"
    )
    yield lambda: corpus.conversations.append(
        "new/one", Message(text="a beginning", at=NOON), project="talks"
    )
    yield lambda: corpus.conversations.get(WHALES.id, project="talks")
    yield lambda: [
        corpus.conversations.delete("new/one", project="talks"),
        corpus.conversations.delete("new/one", project="talks"),
    ]
    yield lambda: corpus.conversations.count(project="talks")


def _timeless_bad(report: unspool.RememberReport, folder: Path) -> unspool.RememberReport:
    return replace(
        report,
        bad=tuple(replace(one, source=one.source.replace(str(folder), "")) for one in report.bad),
    )


def keeping(corpus: Any, folder: Path) -> Iterator[Callable[[], Any]]:
    log = corpus.history("nightly/build #1", project="kept")
    yield lambda: log.append("the key is AKIA" + "Z7Q2WMX4PLK9VD3T", NOON)
    yield lambda: log.append("half of \ud83d a character", NOON.astimezone() - timedelta(days=1))
    yield lambda: log.read()
    yield lambda: log.page(1)
    yield lambda: [log.stream, log.count(), log.prune(), log.clear(), log.count(), log.clear()]
    yield lambda: log.append("", NOON).number


@pytest.mark.parametrize("face", FACES[1:])
@pytest.mark.parametrize("story", [putting, indexing, remembering, keeping])
def test_what_is_written_becomes_the_same(
    own: Mapping[str, Any], told: dict[Any, Any], story: Callable[..., Any], face: str
) -> None:
    if story not in told:
        told[story] = [outcome(step) for step in story(*own["embedded"])]
    assert [outcome(step) for step in story(*own[face])] == told[story]


@pytest.fixture(scope="module")
def told() -> dict[Any, Any]:
    """How stories ended in this process."""
    return {}


def test_a_page_leads_to_the_next(faces: Mapping[str, Any]) -> None:
    page, wanted = (
        faces[face].search("walrus", projects="*", limit=4) for face in ("remote", "embedded")
    )
    assert plain(page.more().more()) == plain(wanted.more().more())
    with pytest.raises(InputError, match="not tied to a corpus"):
        faces["async"].search("walrus", projects="*", limit=4).more()


def test_settings_of_the_caller_hold_where_they_are_set(
    faces: Mapping[str, Any], catalog: Path
) -> None:
    place = repr(faces["remote"]).split("'")[1]
    with unspool.open(
        place,
        key=None,
        settings=settings_for(catalog, limit=2, project="notes", max_tokens=40, alpha=0),
    ) as remote:
        page = remote.search("walrus note")
        assert (len(page.hits), page.projects, page.alpha) == (2, ("notes",), 0)
        assert page.tokens <= 40
        assert remote.read("copy.md").project == "notes"
        assert remote.history("jobs/nightly").count() == 3
        assert remote.conversations.list() == remote.conversations.list(project="notes")


def test_what_only_a_corpus_of_this_process_can_do_is_said_so(faces: Mapping[str, Any]) -> None:
    remote = faces["remote"]
    for work in (
        lambda: remote.search("x", projects="code", caller="ann"),
        lambda: remote.ask("x", projects="code", model="openai:m"),
        lambda: remote.history("x", retention=unspool.Retention(max_records=1)),
    ):
        with pytest.raises(UnsupportedError, match="leave `"):
            work()
    for name in ("refresh", "warm", "observe", "size_bytes", "keys"):
        with pytest.raises(AttributeError, match="where the service runs"):
            getattr(remote, name)
    with pytest.raises(InputError, match="absolute"):
        remote.index("docs")


def test_a_closed_corpus_says_so(faces: Mapping[str, Any]) -> None:
    closed = unspool.open(
        repr(faces["remote"]).split("'")[1], key=None, settings=faces["remote"].settings
    )
    closed.close()
    for work in (
        lambda: closed.search("x", projects="code"),
        lambda: closed.answering("x", projects="code"),
        closed.projects,
    ):
        with pytest.raises(InputError, match="closed"):
            work()


def _methods(kind: type) -> list[str]:
    return [
        name for name, member in vars(kind).items() if not name.startswith("_") and callable(member)
    ]


_PAIRS = [
    (RemoteCorpus, Corpus),
    (RemoteConversations, Conversations),
    (RemoteHistory, History),
]
_LEFT_OUT = set("document has_stream observe passage project_of refresh root_of scoped".split())
_LEFT_OUT |= {"size_bytes", "source_of", "warm"}


@pytest.mark.parametrize(("remote", "local"), _PAIRS, ids=lambda kind: kind.__name__)
def test_every_method_has_the_signature_and_the_words_of_its_twin(
    remote: type, local: type
) -> None:
    """On failure: copy the changed signature and docstring into `unspool/client`; or name the
    method among those that are left out.
    """
    assert set(_methods(remote)) == set(_methods(local)) - _LEFT_OUT
    for name in _methods(remote):
        own, twin = getattr(remote, name), getattr(local, name)
        assert inspect.signature(own).parameters == inspect.signature(twin).parameters, name
        assert inspect.iscoroutinefunction(own) == inspect.iscoroutinefunction(twin), name
        assert own.__doc__ == twin.__doc__, name


def test_a_history_in_a_service_is_a_history(faces: Mapping[str, Any]) -> None:
    history: History = faces["remote"].history("jobs/nightly", project="notes")
    assert history.stream == "jobs/nightly"
    assert issubclass(NotFoundError, LookupError) and issubclass(ConflictError, UnspoolError)
