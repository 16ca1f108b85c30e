"""Measuring search quality on a test set, with the same code that serves users."""

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

DEPTH = 100  # hits asked for: as many as a user's search ranks without being asked for more
_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What was measured.

    Quality is by document: a document counts at the rank of its first chunk.
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
    """Index a test set into a catalog of its own, ask every query, and compare with the judgements.

    The catalog is a temporary file or, with the address of a `server`, a temporary schema there.
    """
    asked = beir.questions(folder)
    if not asked:
        raise InputError(
            f"no query in {folder} has a judgement; check that the ids in qrels/test.tsv are "
            f"those of queries.jsonl"
        )
    tell = on_progress or (lambda progress: None)
    with _temporary(server) as address:
        own = settings.with_arguments(
            {"database": address, "database_read": "", "project": "", "window": 0}
        )
        with Corpus(own) as corpus:
            started = time.monotonic()
            names = _fill(corpus, folder, tell)
            corpus.refresh()
            index_seconds = time.monotonic() - started
            rows: list[tuple[float, float, float, float]] = []
            times: list[float] = []
            for number, question in enumerate(asked, 1):
                begun = time.perf_counter()
                ranking = _ranking(corpus, question, names, alpha)
                times.append(time.perf_counter() - begun)
                rows.append(_score(ranking, question))
                tell(Progress(task="asking", done=number, total=len(asked)))
            ndcg, recall_10, recall_100, mrr = (fmean(column) for column in zip(*rows, strict=True))
            return Evaluation(
                name=folder.resolve().name,
                documents=len(names),
                chunks=corpus.count(),
                queries=len(asked),
                ndcg_10=round(ndcg, 4),
                recall_10=round(recall_10, 4),
                recall_100=round(recall_100, 4),
                mrr=round(mrr, 4),
                index_seconds=round(index_seconds, 2),
                search_ms=round(1000 * median(times), 2),
            )


@contextmanager
def _temporary(server: str) -> Iterator[str]:
    """The address of a catalog that is gone afterwards."""
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


def _fill(corpus: Corpus, folder: Path, tell: OnProgress) -> dict[tuple[str, str], str]:
    names: dict[tuple[str, str], str] = {}
    waiting: dict[str, list[Document]] = defaultdict(list)
    turns: dict[tuple[str, str], list[beir.Turn]] = defaultdict(list)
    for item in beir.documents(folder):
        if isinstance(item, beir.Turn):
            turns[item.project, item.conversation].append(item)
            continue
        if (item.project, item.path) in names:
            raise InputError(
                f"two documents in {folder} are called {item.path!r} in project "
                f"{item.project!r}; give each its own path"
            )
        names[(item.project, item.path)] = item.id
        document = Document(
            project=item.project,
            path=item.path,
            title=item.title,
            text=item.text,
            language=item.language or _language(item),
            metadata=item.metadata,
        )
        waiting[item.project].append(document)
        if len(waiting[item.project]) >= _BATCH:
            corpus.put(*waiting.pop(item.project))
            tell(Progress(task="indexing", done=len(names), total=0))
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
        tell(Progress(task="indexing", done=len(names), total=0))
    return names


def _language(item: beir.Item) -> str:
    """A set without paths is prose; a path decides by itself."""
    return "" if "path" in item.metadata else "text"


def _ranking(
    corpus: Corpus, question: beir.Question, names: dict[tuple[str, str], str], alpha: float | None
) -> list[str]:
    page = corpus.search(question.text, projects=[question.project], limit=DEPTH, alpha=alpha)
    # A hit stands for its copies too: it names their places. A message is called by its
    # conversation and its number.
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
