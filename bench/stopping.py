"""When the rest is no longer worth reading: how much a walk that ends at the signal saves, and what
it loses.

For each query the hits are read ten at a time down to the hundredth. A page says that relevance has
dropped when the score of its last hit is below a share of the best score. The table shows, for
several shares, how many of the relevant documents that the walk would find it loses by ending
there, how much it reads, and how many of a page's ten hits are relevant before and after the end.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import NamedTuple

from common import HERE, address, machine_line, parser, table, tell
from unspool import evaluation
from unspool.corpus import Corpus
from unspool.evaluation import beir
from unspool.search import pages
from unspool.settings import Settings

PAGE, PAGES = 10, 10
SHARES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6)


class Read(NamedTuple):
    """One query: after each page the last score as a share of the best, and how many relevant
    documents were on it.
    """

    shares: list[float]
    relevant: list[int]


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "sets",
        type=Path,
        nargs="*",
        metavar="DIR",
        help="folders in BEIR layout; by default those in ../shared/eval",
    )
    given = options.parse_args()
    folders = given.sets or sorted(
        folder for folder in (HERE.parent.parent / "shared" / "eval").glob("*") if folder.is_dir()
    )
    rows = []
    for folder in folders:
        tell(f"reading {folder.name}")
        walks = read(folder)
        for share in (*SHARES, None):
            rows.append(
                [
                    folder.name,
                    "never"
                    if share is None
                    else f"{share:.2f}{' *' if share == pages.DROP else ''}",
                    *_judged(walks, share),
                ]
            )
    head = [
        "set",
        "ends below",
        "relevant lost",
        "pages read",
        "walks ended",
        "rightly",
        "relevant a page before",
        "after",
        "",
    ]
    if given.json:
        print(json.dumps([dict(zip(head, row, strict=True)) for row in rows]))
        return
    table(head, rows)
    print(
        "* is what the product does. Rightly: nothing relevant followed within the first hundred."
    )
    print(machine_line())


def read(folder: Path) -> list[Read]:
    """Every query of a set."""
    out = []
    with (
        tempfile.TemporaryDirectory(prefix="unspool-bench-") as temporary,
        Corpus(Settings.of(database=address(Path(temporary) / "stop.db"))) as corpus,
    ):
        names = evaluation._fill(corpus, folder, lambda progress: None)
        corpus.refresh()
        for question in beir.read_questions(folder):
            wanted = {name for name, grade in question.grades.items() if grade > 0}
            hits = corpus.search(
                question.text, projects=[question.project], limit=PAGE * PAGES
            ).hits
            shares, relevant = [], []
            for start in range(0, len(hits), PAGE):
                some = hits[start : start + PAGE]
                found = {names[(hit.chunk.project, hit.chunk.path)] for hit in some} & wanted
                wanted -= found
                shares.append(some[-1].score / hits[0].score if hits[0].score > 0 else 1.0)
                relevant.append(len(found))
            out.append(Read(shares, relevant))
    return out


def _judged(walks: list[Read], share: float | None) -> list[str]:
    total = lost = pages = ended = rightly = unread = 0
    for walk in walks:
        stop = len(walk.shares)
        if share is not None:
            stop = next(
                (number for number, value in enumerate(walk.shares, 1) if value < share), stop
            )
        total += sum(walk.relevant)
        missed = sum(walk.relevant[stop:])
        lost += missed
        pages += stop
        unread += len(walk.shares) - stop
        ended += stop < len(walk.shares)
        rightly += stop < len(walk.shares) and not missed
    return [
        f"{lost / max(total, 1):.3f}",
        f"{pages / len(walks):.2f}",
        f"{ended / len(walks):.2f}",
        f"{rightly / max(ended, 1):.3f}",
        f"{(total - lost) / pages:.2f}",
        f"{lost / max(unread, 1):.2f}",
        "",
    ]


if __name__ == "__main__":
    main()
