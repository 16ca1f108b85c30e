"""Page steps on vector stores while a writer adds, changes and deletes documents.

Many documents have the same text, so that many scores are equal. Every walk has to show each text
that nobody touches exactly once, and no document that was deleted.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import unspool
from common import HERE, Figure, parser, show, tell, workspace

sys.path.append(str(HERE.parent / "tests"))
from store_servers import get_server

STABLE, CHANGING = 300, 60  # documents
COPIES = 5  # documents with the same text
LIMIT, WINDOW = 10, 30  # most pages are past the window
PROJECT = "notes"
WORDS = "walrus cache eviction parse config token island seal".split()


def main() -> None:
    """Parse the options and run on each store."""
    options = parser(__doc__)
    options.add_argument("stores", nargs="+", help="embedded, or adapters, such as qdrant")
    options.add_argument("--steps", type=int, default=10_000)
    given = options.parse_args()
    figures: list[Figure] = []
    for store in given.stores:
        tell(f"{store}: {given.steps} pages")
        with workspace(given.keep) as folder:
            figures += _measure(store, folder, given.steps)
    show("steps", figures, as_json=given.json)


def _open(store: str, folder: Path) -> unspool.Corpus:
    arguments: dict[str, object] = {
        "database": f"sqlite:///{folder}/steps-{store}.db",
        "window": WINDOW,
    }
    if store != "embedded":
        server = get_server(store)
        arguments |= {"vectors": server.address, "vectors_key": server.key}
    settings = unspool.Settings.load(arguments=arguments, environment={}, folder=folder)
    return unspool.open(settings=settings)


def _make(number: int, version: int = 0) -> unspool.Document:
    """Return a document. Stable ones have no version, and share their text with some others."""
    group = number // COPIES
    name = f"changing/{number}.md" if number >= STABLE else f"stable/{number}.md"
    words = [WORDS[(group * step) % len(WORDS)] for step in (1, 3, 5)]
    text = f"{' '.join(words)} note {group if number < STABLE else f'{number} {version}'}"
    return unspool.Document(project=PROJECT, path=name, text=text)


class _Writer(threading.Thread):
    """Writer of the changing documents, which notes when each was deleted."""

    def __init__(self, corpus: unspool.Corpus) -> None:
        super().__init__(daemon=True)
        self.corpus = corpus
        self.deleted: dict[str, float] = {}  # by path; the time after the call
        self.guard = threading.Lock()
        self.stopping = threading.Event()
        self.rounds = 0

    def run(self) -> None:
        """Put, change and delete until told to stop."""
        while not self.stopping.wait(0.01):
            self.rounds += 1
            number = STABLE + self.rounds % CHANGING
            path = _make(number).path
            if self.rounds % 3:
                with self.guard:
                    self.deleted.pop(path, None)
                self.corpus.put(_make(number, self.rounds))
            elif self.corpus.documents(project=PROJECT, path=path):
                self.corpus.forget(project=PROJECT, path=path)
                with self.guard:
                    self.deleted[path] = time.monotonic()


def _measure(store: str, folder: Path, steps: int) -> Iterator[Figure]:
    counts: Counter[str] = Counter()
    served: Counter[str] = Counter()
    with _open(store, folder) as corpus:
        corpus.put(*(_make(number) for number in range(STABLE + CHANGING)))
        writer = _Writer(corpus)
        writer.start()
        try:
            while counts["pages"] < steps:
                _walk(corpus, writer, WORDS[counts["walks"] % len(WORDS)], counts, served)
        finally:
            writer.stopping.set()
            writer.join()
    kinds = ", ".join(f"{count} {kind}" for kind, count in served.items())
    yield Figure(
        name=f"{store}: pages",
        value=counts["pages"],
        note=f"{counts['walks']} walks; {kinds}; {writer.rounds} writes",
    )
    for what in ("repeated", "skipped", "deleted shown"):
        yield Figure(name=f"{store}: {what}", value=counts[what], bound=0)


def _walk(
    corpus: unspool.Corpus,
    writer: _Writer,
    query: str,
    counts: Counter[str],
    served: Counter[str],
) -> None:
    """Follow one search to its end."""
    ids: list[int] = []
    shown: list[str] = []
    page: unspool.Page | None = None
    while page is None or page.continuation is not None:
        begun = time.monotonic()
        if page is None:
            page = corpus.search(query, projects=PROJECT, limit=LIMIT, alpha=1.0)
        else:
            page = page.more()
        with writer.guard:
            gone = {path for path, when in writer.deleted.items() if when < begun}
        counts["pages"] += 1
        served[page.served] += 1
        ids += [hit.chunk.id for hit in page.hits]
        paths = [hit.chunk.path for hit in page.hits]
        counts["deleted shown"] += len(gone.intersection(paths))
        shown += paths
    counts["walks"] += 1
    texts = [int(Path(path).stem) // COPIES for path in shown if path.startswith("stable/")]
    counts["repeated"] += len(ids) - len(set(ids)) + len(texts) - len(set(texts))
    counts["skipped"] += STABLE // COPIES - len(set(texts))


if __name__ == "__main__":
    main()
