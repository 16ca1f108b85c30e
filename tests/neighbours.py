"""Two projects of one catalog whose owners must not hear of each other: everything that one has,
holds a word of its own that nobody else uses.
"""

from __future__ import annotations

import random
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import unspool
from support import Place, beside, open_corpus, write
from unspool.access.scope import admit
from unspool.corpus import Corpus
from unspool.domain.conversations import Conversation, Message
from unspool.jobs import JobQueue

SEED = 20_240_501

SHARED = (
    "The walrus cache evicts the oldest entry when its island is full, and both of us have "
    "written this down.\n"
)
NEUTRAL = (
    "walrus cache eviction",
    "open a session by its name",
    "what happens when the island is full",
    "return",
    "' OR 1=1 --",
    'NEAR("a*',
)
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
DOCUMENTS = 24  # more than a page holds


@dataclass(kw_only=True)
class Neighbour:
    """What somebody who owns a project, or has guessed at one, can name.

    `mark` is in every name and text of its own.
    """

    mark: str
    root: str = ""
    chunk_ids: list[int] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    continuations: list[str] = field(default_factory=list)
    is_own: bool = False  # then only what was made meanwhile may be removed

    @property
    def project(self) -> str:
        return f"{self.mark}ery"

    @property
    def paths(self) -> list[str]:
        return [
            f"{self.mark}dir/{self.mark}path.py",
            f"{self.mark}dir/{self.mark}read.md",
            f"{self.mark}note 1.md",
            "same.md",
        ]

    @property
    def talks(self) -> list[str]:
        return [f"{self.mark}talk", f"{self.mark}talk/two"]

    @property
    def stream(self) -> str:
        return f"{self.mark}stream"

    @property
    def queries(self) -> list[str]:
        return [f"{self.mark}text", f"{self.mark}symbol", f"{self.mark}said", *NEUTRAL]

    def spare(self, what: str) -> str:
        """The name of something that may be lost: one's own, made meanwhile, or anything of
        somebody else.
        """
        if self.is_own:
            return f"extra-{self.mark}{what}"
        return {"path": self.paths[0], "talk": self.talks[0], "stream": self.stream}[what]

    def filters(self) -> list[dict[str, object] | None]:
        return [
            None,
            {"path": f"{self.mark}*"},
            {"path": self.paths[0]},
            {"conversation": self.talks[0]},
            {"speaker": f"{self.mark}speaker"},
            {f"{self.mark}key": f"{self.mark}value"},
            {"kind": "chat"},
            {"author": self.mark},
        ]


def documents_of(mark: str, project: str) -> list[unspool.Document]:
    texts = [
        (
            f"# {mark}title {number}\n\n## {mark}heading\n\nThe {mark}text of walrus {number} says "
            f"{mark}word.\n"
        )
        for number in range(DOCUMENTS)
    ]
    metadata = {f"{mark}key": f"{mark}value"}
    found = [
        unspool.Document(
            project=project,
            path=f"{mark}note {number}.md",
            text=text,
            title=f"{mark}title",
            metadata=metadata,
        )
        for number, text in enumerate(texts)
    ]
    return [*found, unspool.Document(project=project, path="same.md", text=SHARED)]


def talk_of(mark: str, project: str, id_: str) -> Conversation:
    said = [
        Message(
            text=f"{mark}said number {number} about the walrus",
            author=f"{mark}speaker",
            id=f"{mark}{number}",
            at=NOON,
        )
        for number in range(4)
    ]
    names = {
        "title": f"{mark}title",
        "scenario_title": f"{mark}scenario",
        "url": f"https://{mark}.invalid/",
    }
    return Conversation(
        id=id_, project=project, messages=said, metadata={f"{mark}key": f"{mark}value"}, **names
    )


def settle(corpus: unspool.Corpus, jobs: JobQueue, folder: Path, mark: str) -> Neighbour:
    """Give a project something of every kind."""
    files = {
        f"{mark}dir/{mark}path.py": (
            f'"""{mark}text."""\n\n\ndef {mark}symbol(name):\n    """Open a session: '
            f'{mark}word."""\n    return 1\n'
        ),
        f"{mark}dir/{mark}read.md": f"# {mark}title\n\n{SHARED}\n{mark}text\n",
        f"{mark}dir/{mark}secret.env": f"password = '{mark}Zq8Rk2Lm5Tn9'\n",
    }
    root = folder / f"{mark}root"
    if not root.exists():  # written again, its files would be stale to who has indexed them before
        write(root, files)
    one = Neighbour(mark=mark, root=str(root))
    job = jobs.start(
        one.project,
        one.root,
        lambda tell: corpus.index(root, project=one.project, on_progress=tell),
    )
    while not (seen := jobs.get(job.id)).state.is_over:
        pass
    assert seen.state == "done", seen
    one.jobs = [job.id]
    corpus.put(*documents_of(mark, one.project))
    corpus.conversations.save(*(talk_of(mark, one.project, id_) for id_ in one.talks))
    log = corpus.history(one.stream, project=one.project)
    for number in range(5):
        log.append(f'{{"{mark}body": {number}}}')
    one.chunk_ids = [
        chunk.id for chunk in corpus.conversations.chunks(one.talks[0], project=one.project)
    ]
    return one


def nobody(mark: str, folder: Path) -> Neighbour:
    """One who never was; his continuations are to be found elsewhere."""
    chance = random.Random(mark)
    ids = [chance.getrandbits(62) for _ in range(4)]
    return Neighbour(
        mark=mark, root=str(folder / f"{mark}root"), chunk_ids=ids, jobs=[secrets.token_hex(8)]
    )


def swept(place: Place, project: str) -> list[str]:
    """Continuations that were given out by a process that has ended, and are not known any more."""
    with open_corpus(place) as corpus:
        pages = [
            corpus.search(query, projects=project, limit=2, caller="a third one")
            for query in NEUTRAL[:2]
        ]
    with beside(place, windows=True) as tables:
        tables.run("DELETE FROM substitutes", "DELETE FROM segments", "DELETE FROM windows")
    return [page.continuation for page in pages if page.continuation]


@dataclass(kw_only=True)
class Street:
    """A catalog with two neighbours, a key for each, and one who never was."""

    place: Place
    corpus: unspool.Corpus
    jobs: JobQueue
    own: dict[str, Neighbour]
    keys: dict[str, str]
    nobody: Neighbour

    def view(self, mark: str) -> Corpus:
        return self.corpus.scoped(admit(self.corpus, self.keys[mark]))

    def other(self, mark: str) -> Neighbour:
        return next(one for one in self.own.values() if one.mark != mark)

    def check(self) -> None:
        """What was there is still there, and nobody has written where he cannot see."""
        for mark, one in self.own.items():
            found, streams = (
                self.corpus.documents(project=one.project),
                self.corpus.streams(project=one.project),
            )
            assert {record.path for record in found} >= {*one.paths, *one.talks}
            assert self.corpus.history(one.stream, project=one.project).count() == 5
            everything = repr(
                [
                    found,
                    streams,
                    self.corpus.search("walrus text", projects=one.project, limit=500),
                    self.jobs.list(projects=[one.project]),
                ]
            )
            assert self.other(mark).mark not in everything
            assert self.nobody.mark not in everything
        assert sorted(self.corpus.projects()) == sorted(one.project for one in self.own.values())
        assert {job.project for job in self.jobs.list()} == set(self.corpus.projects())


@contextmanager
def street_at(place: Place, folder: Path) -> Iterator[Street]:
    """Two projects with something of every kind, at an empty place; what was indexed lies in the
    folder, where both may index.
    """
    with open_corpus(place, roots=str(folder), limit=5) as corpus, JobQueue(corpus) as jobs:
        own = {mark: settle(corpus, jobs, folder, mark) for mark in ("gromm", "vexil")}
        keys = {
            mark: corpus.keys.create(projects=one.project, role="admin")[1]
            for mark, one in own.items()
        }
        # between the others, so that it sorts on the same side of either as the other does
        never = nobody("plimm", folder)
        made = Street(place=place, corpus=corpus, jobs=jobs, own=own, keys=keys, nobody=never)
        never.continuations = swept(place, own["gromm"].project)
        for mark, one in own.items():
            pages = [made.view(mark).search(query, limit=2) for query in one.queries[:4]]
            one.continuations = [page.continuation for page in pages if page.continuation]
        yield made


_VARIES = [
    (re.compile(r"datetime\.datetime\([^()]*\)"), "MOMENT"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[^\"' ]*"), "MOMENT"),
    (re.compile(r"(seconds[\"']?[=:] ?)[\d.e-]+"), r"\1SECONDS"),
    # what a model is shown stands between random words
    (re.compile(r"((?:context|prompt)_tokens[\"']?[=:] ?)\d+"), r"\1TOKENS"),
    (re.compile(r"(continuation\W{1,8})[A-Za-z0-9_-]{18,}"), r"\1CONTINUATION"),
]


def without_chance(text: str) -> str:
    """Return an answer without times, random words and continuations."""
    for pattern, name in _VARIES:
        text = pattern.sub(name, text)
    return text


def settled(text: str, whose: Neighbour) -> str:
    """An answer without what is different each time, and with the asked one's names made
    anybody's.
    """
    text = without_chance(text)
    for id_ in (*whose.jobs, *map(str, whose.chunk_ids), *whose.continuations):
        text = text.replace(id_, "ID")
    return text.replace(whose.mark, "MARK")


def turns(names: list[str], count: int, chance: random.Random) -> Iterator[str]:
    """So many of the names, each about as often as the others, in a random order."""
    for _ in range(-(-count // len(names))):
        yield from chance.sample(names, len(names))
