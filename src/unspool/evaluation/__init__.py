"""Evaluation of search quality on a test set, with the code that serves users."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from unspool.corpus import Corpus
from unspool.domain.conversations import Conversation
from unspool.domain.documents import Document, Kind
from unspool.domain.reports import OnProgress, Progress
from unspool.errors import InputError
from unspool.evaluation import beir, metrics
from unspool.settings import Settings

DEPTH = 100  # hits of a query: as many as a search ranks by default
_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Results of an evaluation.

    Quality is measured by document: a document has the rank of its first chunk.
    """

    name: str
    documents: int
    chunks: int
    queries: int
    ndcg_10: float
    recall_10: float
    recall_100: float
    mrr: float
    index_seconds: float
    search_ms: float  # median


def evaluate(
    folder: Path,
    *,
    settings: Settings,
    alpha: float | None = None,
    server: str = "",
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Index a test set into a temporary catalog, search every query, and compare the results with
    the judgements.

    The catalog is a file or, with the address of a `server`, a schema there.
    """
    asked = beir.read_questions(folder)
    report = on_progress or (lambda progress: None)
    with _create_catalog(server) as address:
        own = settings.with_arguments(
            {"database": address, "database_read": "", "project": "", "window": 0}
        )
        with Corpus(own) as corpus:
            started = time.monotonic()
            names = _fill(corpus, folder, report)
            corpus.refresh()
            index_seconds = time.monotonic() - started
            rows: list[tuple[float, ...]] = []
            for number, question in enumerate(asked, 1):
                begun = time.perf_counter()
                ranking = _rank(corpus, question, names, alpha)
                rows.append((time.perf_counter() - begun, *_score(ranking, question)))
                report(Progress(task="asking", done=number, total=len(asked)))
            times, *scores = zip(*rows, strict=True)
            ndcg, recall_10, recall_100, mrr = (round(fmean(column), 4) for column in scores)
            return Evaluation(
                name=folder.resolve().name,
                documents=len(names),
                chunks=corpus.count(),
                queries=len(asked),
                ndcg_10=ndcg,
                recall_10=recall_10,
                recall_100=recall_100,
                mrr=mrr,
                index_seconds=round(index_seconds, 2),
                search_ms=round(1000 * median(times), 2),
            )


@contextmanager
def _create_catalog(server: str) -> Iterator[str]:
    """Yield the address of a catalog that is deleted afterwards."""
    if not server:
        with tempfile.TemporaryDirectory(prefix="unspool-eval-") as folder:
            yield f"sqlite:///{folder}/eval.db"
        return
    from unspool.catalog.database import get_engine_name
    from unspool.catalog.options import DatabaseOptions

    if get_engine_name(server) != "postgresql":
        raise InputError(
            "the server is none of PostgreSQL; give postgresql://user@host/name, or leave it out "
            "to measure in a temporary file"
        )
    from unspool.catalog import postgres, postgres_server

    address = postgres_server.replace_schema(server, f"unspool_eval_{secrets.token_hex(6)}")
    try:
        yield address
    finally:
        postgres.drop_catalog(address, options=DatabaseOptions())


def _fill(corpus: Corpus, folder: Path, report: OnProgress) -> dict[tuple[str, str], str]:
    names: dict[tuple[str, str], str] = {}
    waiting: dict[str, list[Document]] = defaultdict(list)
    turns: dict[tuple[str, str], list[beir.Turn]] = defaultdict(list)
    for item in beir.read_documents(folder):
        if isinstance(item, beir.Turn):
            turns[item.project, item.conversation].append(item)
            continue
        document = item.document
        place = document.project, document.path
        if place in names:
            raise InputError(
                f"two documents in {folder} are called {document.path!r} in project "
                f"{document.project!r}; give each its own path"
            )
        names[place] = item.id
        waiting[document.project].append(document)
        if len(waiting[document.project]) >= _BATCH:
            corpus.put(*waiting.pop(document.project))
            report(Progress(task="indexing", done=len(names), total=0))
    for documents in waiting.values():
        corpus.put(*documents)
    for (project, conversation), said in turns.items():
        said.sort(key=lambda turn: turn.number)
        corpus.remember(
            Conversation(project=project, id=conversation, messages=[turn.message for turn in said])
        )
        names |= {
            (project, f"{conversation}:{number}"): turn.id for number, turn in enumerate(said, 1)
        }
        report(Progress(task="indexing", done=len(names), total=0))
    return names


def _rank(
    corpus: Corpus, question: beir.Question, names: dict[tuple[str, str], str], alpha: float | None
) -> list[str]:
    page = corpus.search(question.text, projects=[question.project], limit=DEPTH, alpha=alpha)
    # A hit lists the locations of its copies. The name of a message is its conversation and number.
    places = (
        (hit.chunk.project, hit.chunk.location if hit.chunk.kind is Kind.CHAT else path)
        for hit in page.hits
        for path in (hit.chunk.path, *(copy.rpartition(":")[0] for copy in hit.copies))
    )
    return list(dict.fromkeys(names[place] for place in places))


def _score(ranking: list[str], question: beir.Question) -> tuple[float, float, float, float]:
    grades = question.grades
    return (
        metrics.ndcg(ranking, grades, 10),
        metrics.recall(ranking, grades, 10),
        metrics.recall(ranking, grades, 100),
        metrics.reciprocal_rank(ranking, grades),
    )
