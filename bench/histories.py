"""Random edit histories on SQLite and on PostgreSQL: each must rank like a fresh index of the
content it ends in.

A history puts, replaces, forgets, searches and absorbs at random. Then the documents that are left
are put into another catalog, and both are asked the same questions by words, by meaning and by
both. Orders must be the same, ties included, and scores equal to a millionth.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from unittest.mock import patch

from common import Figure, address, parser, show, tell, workspace
from pgdata import add_options, place
from unspool import Document
from unspool.corpus import Corpus
from unspool.index import follower as store
from unspool.index.embedded import segments
from unspool.settings import Settings
from words import Vocabulary, questions

PROJECT = "notes"
STEPS = 40
PATHS = 25
TOLERANCE = 1e-6


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--histories", type=int, default=200)
    add_options(options)
    given = options.parse_args()
    figures: list[Figure] = []
    with workspace(given.keep) as folder, ExitStack() as stack:
        # So that a few chunks are enough for the tail, commits and merges.
        stack.enter_context(patch.object(store, "TAIL_LIMIT", 4))
        stack.enter_context(patch.object(segments, "MAX_SEGMENTS", 2))
        server = stack.enter_context(place(given.server))
        databases = {
            "sqlite": [address(folder / f"{name}.db") for name in ("edited", "fresh")],
            "postgresql": [stack.enter_context(server.fresh()) for _ in range(2)],
        }
        for engine, (edited, fresh) in databases.items():
            tell(engine)
            with (
                Corpus(Settings.of(database=edited)) as one,
                Corpus(Settings.of(database=fresh)) as other,
            ):
                different = sum(_compare(one, other, given.histories, given.seed))
            figures.append(
                Figure(
                    name=f"{engine}: histories that rank differently",
                    value=different,
                    bound=0,
                    note=f"of {given.histories}",
                )
            )
    show("histories", figures, as_json=given.json)


def _compare(edited: Corpus, fresh: Corpus, histories: int, seed: int) -> Iterator[bool]:
    """Yield for each history whether it ranks differently.

    Both catalogs give a project the same number, on which chunk ids depend.
    """
    vocabulary, asked = Vocabulary.load(), questions(6, seed)
    for number in range(histories):
        content = _apply_history(edited, random.Random(f"{seed}/{number}"), vocabulary)
        fresh.put(
            *(
                Document(project=PROJECT, path=path, text=text)
                for path, text in sorted(content.items())
            )
        )
        yield not _are_equal(_rank(edited, asked), _rank(fresh, asked))
        for corpus in (edited, fresh):
            corpus.forget(project=PROJECT)
        if number % 50 == 49:
            tell(f"  {number + 1}")


def _apply_history(corpus: Corpus, rng: random.Random, vocabulary: Vocabulary) -> dict[str, str]:
    content = {"first.md": "the first document"}
    corpus.put(Document(project=PROJECT, path="first.md", text=content["first.md"]))
    for _ in range(STEPS):
        path = f"{rng.randrange(PATHS)}.md"
        action = rng.random()
        if action < 0.7:
            content[path] = " ".join(vocabulary.sample(rng, rng.randrange(5, 300)))
            corpus.put(Document(project=PROJECT, path=path, text=content[path]))
        elif action < 0.85 and content.pop(path, None):
            corpus.forget(project=PROJECT, path=path)
        elif action < 0.95:
            corpus.search("first", projects=PROJECT)
        else:
            corpus.refresh()
    return content


def _rank(corpus: Corpus, asked: list[str]) -> list[list[tuple[float, str, int]]]:
    pages = [
        corpus.search(one, projects=PROJECT, alpha=alpha, limit=50)
        for one in asked
        for alpha in (None, 0.0, 1.0)
    ]
    return [
        [(hit.score, hit.chunk.path, hit.chunk.lines.first) for hit in page.hits] for page in pages
    ]


def _are_equal(
    one: list[list[tuple[float, str, int]]], other: list[list[tuple[float, str, int]]]
) -> bool:
    pairs = [
        pair
        for mine, fresh in zip(one, other, strict=True)
        for pair in zip(mine, fresh, strict=False)
    ]
    return list(map(len, one)) == list(map(len, other)) and all(
        a[1:] == b[1:] and abs(a[0] - b[0]) <= TOLERANCE for a, b in pairs
    )


if __name__ == "__main__":
    main()
