"""PostgreSQL: what a search costs beyond its statements, the vector index and its recall, writing,
opening, indexing and quality.

The texts are this Python's own sources. Without --server a server is started that waits for the
disk with every commit.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import pgdata
import pggrow
import pghand
import trees
from common import (
    Figure,
    address,
    call_fresh,
    empty,
    folder_mb,
    parser,
    percentile,
    show,
    tell,
    workspace,
)
from pgdata import FilledProject, Place
from unspool import evaluation
from unspool.catalog import Catalog, postgres_server
from unspool.catalog.filters import SelectionCache
from unspool.catalog.options import DatabaseOptions
from unspool.corpus import Corpus
from unspool.domain.documents import Document
from unspool.evaluation import beir
from unspool.index.options import VectorOptions
from unspool.index.vectors.pgvector import EXACT_BELOW, PgvectorIndex
from unspool.settings import Settings
from words import questions

PARTS = ("search", "nearest", "writing", "opening", "building", "exact", "indexing", "quality")
NEAREST_MS = {10_000: 50.0, 100_000: 200.0}
RATIO = {100_000: 1.3}
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)  # of the comparison of exact with HNSW
DEPTH = 200  # hits that a search asks each retriever for
WARM_UP = 20
DOCUMENTS = 1_000
FILES = 600


def main() -> None:
    options = parser(__doc__)
    pgdata.add_options(options)
    options.add_argument(
        "--chunks",
        type=int,
        nargs="+",
        default=[10_000, 100_000],
        help="sizes at which searches are measured",
    )
    options.add_argument("--queries", type=int, default=200)
    options.add_argument(
        "--files", type=int, default=FILES, help="files that are indexed on PostgreSQL and SQLite"
    )
    options.add_argument("--documents", type=int, default=DOCUMENTS, help="documents that are put")
    options.add_argument(
        "--sets", type=Path, nargs="+", default=[], metavar="DIR", help="test sets in BEIR layout"
    )
    options.add_argument(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=list(PARTS),
        help="what to measure; all of it by default, quality only with --sets",
    )
    given = options.parse_args()
    parts = set(given.parts)
    figures: list[Figure] = []
    with pgdata.place(given.server) as place, workspace(given.keep) as folder:
        filled = []
        if parts & {"search", "nearest", "exact"}:
            filled = [
                pgdata.fill(place.address, folder, chunks=chunks, seed=given.seed)
                for chunks in sorted(given.chunks)
            ]
        asked = questions(given.queries + WARM_UP, given.seed)
        for project in filled:
            figures += _filling(project)
            if "search" in parts:
                tell(f"searching {project.name}, through unspool and by hand")
                figures += list(against_hand(place.address, project, asked))
            if "nearest" in parts:
                tell(f"nearest in {project.name}")
                figures += list(near(place.address, project, asked, given.seed))
        if "exact" in parts:
            figures += list(exact_against_index(place.address, filled[-1], asked))
        if "writing" in parts:
            tell("writing")
            figures += list(
                writing(place.address, given.documents, given.seed, filled[-1] if filled else None)
            )
        if "opening" in parts:
            tell("opening")
            figures += list(opening(place))
        if "building" in parts:
            tell("building an index over 10000 vectors")
            grown = pggrow.measure(place, 10_000, 384, VectorOptions(), 20, 5, given.seed)
            note = f"{grown.index_mb:.0f} MB over {grown.table_mb:.0f} MB"
            figures.append(
                Figure(
                    name="HNSW over 10000 vectors of 384",
                    value=grown.build_s,
                    unit="s",
                    bound=30,
                    note=note,
                )
            )
        if "indexing" in parts:
            figures += list(indexing(place, folder, given.files))
        if "quality" in parts:
            for one in given.sets:
                tell(f"evaluating {one.name}")
                figures += list(quality(place, one))
    show("postgres", figures, as_json=given.json)


def _filling(project: FilledProject) -> Iterator[Figure]:
    if project.seconds:
        yield Figure(
            name=f"{project.name}: filling",
            value=project.chunks / project.seconds,
            unit="chunks/s",
            note=project.note,
        )
    if project.build_seconds > 0.1:
        yield Figure(
            name=f"{project.name}: HNSW of 256 dimensions", value=project.build_seconds, unit="s"
        )


# Searches


def against_hand(database: str, project: FilledProject, asked: Sequence[str]) -> Iterator[Figure]:
    """Each query through unspool, then its statements over a plain connection.

    All pages were read once before, by another corpus.
    """
    name, settings = f"{project.chunks} chunks", Settings.of(database=database)
    with Corpus(settings) as corpus:
        for query in asked:
            corpus.search(query, projects=project.name)
    with pgdata.by_hand(database, autocommit=True) as connection:
        connection.execute("DELETE FROM query_vectors")  # so that each query is as new as it was
    through, hand, inside, pings, steps = [], [], [], [], []
    own, own_by_hand = [], []
    with (
        Corpus(settings) as corpus,
        pghand.recording() as log,
        pgdata.by_hand(database) as connection,
    ):
        for number, query in enumerate(asked):
            log.take()
            begun, cpu = time.perf_counter(), time.thread_time()
            corpus.search(query, projects=project.name)
            spent, cpu = time.perf_counter() - begun, time.thread_time() - cpu
            sent = log.take()
            steps_again, cpu_again = pghand.fresh_keys(sent.steps), time.thread_time()
            again = pghand.replay(connection, steps_again)
            if number >= WARM_UP:
                through.append(1000 * spent)
                hand.append(1000 * again)
                own.append(1000 * cpu)
                own_by_hand.append(1000 * (time.thread_time() - cpu_again))
                inside.append(1000 * (sent.seconds - sent.ping_seconds))
                pings.append(1000 * sent.ping_seconds)
                steps.append(sent)
    p50, by_hand = percentile(through, 0.5), percentile(hand, 0.5)
    trips = percentile([one.round_trips for one in steps], 0.5)
    count = percentile([one.pings for one in steps], 0.5)
    yield Figure(name=f"{name}: search p50", value=p50, unit="ms", note=project.note)
    yield Figure(name=f"{name}: search p95", value=percentile(through, 0.95), unit="ms")
    yield Figure(
        name=f"{name}: the same statements by hand, p50",
        value=by_hand,
        unit="ms",
        note=f"{trips:.0f} round trips, {count:.0f} pings left out",
    )
    yield Figure(
        name=f"{name}: the same statements by hand, p95", value=percentile(hand, 0.95), unit="ms"
    )
    yield Figure(
        name=f"{name}: search / by hand, p50", value=p50 / by_hand, bound=RATIO.get(project.wanted)
    )
    rest = [all_ - within - ping for all_, within, ping in zip(through, inside, pings, strict=True)]
    yield Figure(
        name=f"{name}: in statements, p50",
        value=percentile(inside, 0.5),
        unit="ms",
        note="as unspool waits for them",
    )
    yield Figure(name=f"{name}: in pings, p50", value=percentile(pings, 0.5), unit="ms")
    yield Figure(
        name=f"{name}: in neither, p50",
        value=percentile(rest, 0.5),
        unit="ms",
        note="embedding, ranking, SQLAlchemy",
    )
    note = (
        f"{percentile(own_by_hand, 0.5):.1f} by hand; the rest is the server's, or waiting for a "
        f"core"
    )
    yield Figure(
        name=f"{name}: CPU of the client, p50", value=percentile(own, 0.5), unit="ms", note=note
    )


def near(
    database: str, project: FilledProject, asked: Sequence[str], seed: int
) -> Iterator[Figure]:
    """The nearest by vector, with a filter and without, against an exact scan."""
    name = f"{project.chunks} chunks"
    with Corpus(Settings.of(database=database)) as corpus:
        store = corpus._resources.session.indexes.vectors.index
        assert isinstance(store, PgvectorIndex)
        vectors = [np.asarray(corpus.embed(query), dtype=np.float32) for query in asked]
        for vector in vectors[:WARM_UP]:
            corpus.nearest(vector.tolist(), k=10, projects=project.name)
        times, recalls = [], []
        for vector in vectors[WARM_UP:]:
            begun = time.perf_counter()
            hits = corpus.nearest(vector.tolist(), k=10, projects=project.name)
            times.append(1000 * (time.perf_counter() - begun))
            recalls.append(
                pgdata.recall(
                    [hit.score for hit in hits], _exact(corpus, store, project.id, vector, 10)
                )
            )
        way = "every vector is compared" if project.chunks <= EXACT_BELOW else "by the index"
        yield Figure(
            name=f"{name}: nearest, top 10, p50",
            value=percentile(times, 0.5),
            unit="ms",
            bound=NEAREST_MS.get(project.wanted),
            note=way,
        )
        yield Figure(name=f"{name}: nearest, top 10, p95", value=percentile(times, 0.95), unit="ms")
        yield Figure(
            name=f"{name}: nearest, recall@10",
            value=fmean(recalls),
            bound=0.95,
            at_least=True,
            note=f"worst query {min(recalls):.1f}",
        )
        yield from _filtered(corpus, store, project, asked, vectors, seed)


def _filtered(
    corpus: Corpus,
    store: PgvectorIndex,
    project: FilledProject,
    asked: Sequence[str],
    vectors: Sequence[Any],
    seed: int,
) -> Iterator[Figure]:
    name = f"{project.chunks} chunks: 1 % of the documents"
    paths = [record.path for record in corpus.documents(project=project.name) if record.chunk_count]
    chosen = random.Random(seed).sample(paths, max(1, len(paths) // 100))
    where = {"document": chosen}
    with Corpus(Settings.of(database=corpus._resources.catalog.address, exact_below=1)) as indexed:
        is_indexed = project.chunks > EXACT_BELOW
        times, rows, recalls, found_rows, by_index, index_ms = [], [], [], [], [], []
        total = 0
        for query, vector in list(zip(asked, vectors, strict=True))[WARM_UP : WARM_UP + 50]:
            begun = time.perf_counter()
            hits = corpus.nearest(vector.tolist(), k=20, projects=project.name, where=where)
            times.append(1000 * (time.perf_counter() - begun))
            with corpus._resources.catalog.read() as connection:
                selection = SelectionCache().get(connection, project.id, _parsed(where))
                exact = store.queries.search_exact(
                    connection, project.id, vector, 20, selection
                ).scores.tolist()
                total = selection.total
            rows.append(len(hits))
            recalls.append(pgdata.recall([hit.score for hit in hits], exact))
            found_rows.append(
                len(corpus.search(query, projects=project.name, where=where, limit=20).hits)
            )
            if is_indexed:
                begun = time.perf_counter()
                others = indexed.nearest(vector.tolist(), k=20, projects=project.name, where=where)
                index_ms.append(1000 * (time.perf_counter() - begun))
                by_index.append(pgdata.recall([hit.score for hit in others], exact))
    note = f"{len(chosen)} documents, {total} chunks"
    yield Figure(
        name=f"{name}: nearest, rows of 20",
        value=min(rows),
        bound=min(20, total),
        at_least=True,
        note=f"fewest of {len(rows)} queries; {note}",
    )
    yield Figure(
        name=f"{name}: nearest, recall@20", value=fmean(recalls), bound=0.95, at_least=True
    )
    yield Figure(name=f"{name}: nearest, p50", value=percentile(times, 0.5), unit="ms")
    yield Figure(
        name=f"{name}: search, rows of 20",
        value=min(found_rows),
        note="copies of a text count once",
    )
    if is_indexed:
        yield Figure(
            name=f"{name}: recall@20 by the index",
            value=fmean(by_index),
            note=f"as with exact_below 1; p50 {percentile(index_ms, 0.5):.1f} ms",
        )


def _parsed(where: dict[str, Any]) -> Any:
    from unspool.domain import filters

    return filters.parse(where)


def _exact(corpus: Corpus, store: PgvectorIndex, project: int, vector: Any, k: int) -> list[float]:
    with corpus._resources.catalog.read() as connection:
        return store.queries.search_exact(connection, project, vector, k, None).scores.tolist()


def exact_against_index(
    database: str, project: FilledProject, asked: Sequence[str]
) -> Iterator[Figure]:
    """Where comparing every vector is as good as an index: the same real vectors, so many of
    them at a time.
    """
    with Corpus(Settings.of(database=database)) as corpus:
        store = corpus._resources.session.indexes.vectors.index
        assert isinstance(store, PgvectorIndex)
        source, dimension = store._table.name, store._table.dimension
        vectors = [
            np.asarray(corpus.embed(query), dtype=np.float32) for query in asked[: WARM_UP + 60]
        ]
    options = VectorOptions(exact_below=1)
    for size in [size for size in SIZES if size <= 1.05 * project.chunks]:
        tell(f"exact against HNSW with {size} vectors")
        with (
            pggrow.opened(database) as catalog,
            pggrow.own_space(catalog, dimension, options) as table,
        ):
            with catalog.write() as connection:
                connection.exec_driver_sql(
                    f"INSERT INTO {table.name} SELECT 1, chunk_id, document_id, vector FROM "
                    f"{source} "
                    f"WHERE project_id = {project.id:d} ORDER BY hashint8(chunk_id) LIMIT {size:d}"
                )
            build_s = pggrow.build(catalog, table, 1, options)
            own = pggrow.searching(catalog, table, 1, size, options)
            exact_ms, index_ms, recalls = [], [], []
            for number, vector in enumerate(vectors):
                begun = time.perf_counter()
                with catalog.read() as connection:
                    exact = own.queries.search_exact(connection, 1, vector, DEPTH, None)
                between = time.perf_counter()
                with catalog.read() as connection:
                    found = own.queries.search_index(
                        connection, 1, vector, DEPTH, None, chunks=size
                    )
                if number >= WARM_UP:
                    exact_ms.append(1000 * (between - begun))
                    index_ms.append(1000 * (time.perf_counter() - between))
                    recalls.append(pgdata.recall(found.scores.tolist(), exact.scores.tolist()))
        note = f"recall@{DEPTH} {fmean(recalls):.3f}, built in {build_s:.1f} s"
        yield Figure(
            name=f"{size} vectors of {dimension}: exact, p50",
            value=percentile(exact_ms, 0.5),
            unit="ms",
        )
        yield Figure(
            name=f"{size} vectors of {dimension}: HNSW, p50",
            value=percentile(index_ms, 0.5),
            unit="ms",
            note=note,
        )


# Writing and opening


def writing(database: str, count: int, seed: int, large: FilledProject | None) -> Iterator[Figure]:
    """Putting and forgetting, in projects of their own beside what is there."""
    texts = pgdata.texts(count, seed)
    count = len(texts)

    def documents(project: str) -> list[Document]:
        return [
            Document(project=project, path=f"{number}.py", text=text)
            for number, text in enumerate(texts)
        ]

    with Corpus(Settings.of(database=database)) as corpus:
        for name in ("one", "many", "singly", "long"):
            if name in corpus.projects():
                corpus.forget(project=name)
        times, report = [], None
        for document in documents("one")[:60]:
            times.append(_seconds(lambda document=document: corpus.put(document)))
        note = (
            f"p50 of {len(times[10:])}; p95 {1000 * percentile(times[10:], 0.95):.0f}, the first "
            f"{1000 * times[0]:.0f}"
        )
        yield Figure(
            name="put one document",
            value=1000 * percentile(times[10:], 0.5),
            unit="ms",
            bound=100,
            note=note,
        )
        if large is not None and large.chunks > EXACT_BELOW:
            given = [
                Document(project=large.name, path=f"bench/{number}.py", text=text)
                for number, text in enumerate(texts[:30])
            ]
            times = [_seconds(lambda document=document: corpus.put(document)) for document in given]
            yield Figure(
                name=f"put one document into {large.chunks} chunks with an index",
                value=1000 * percentile(times, 0.5),
                unit="ms",
            )
            for document in given:
                corpus.forget(project=large.name, path=document.path)
        begun, cpu = time.perf_counter(), time.process_time()
        report = corpus.put(*documents("many"))
        spent, cpu = time.perf_counter() - begun, time.process_time() - cpu
        note = f"{report.chunks} chunks; {cpu:.1f} s of CPU in the client"
        yield Figure(
            name=f"put {count} documents in one call", value=spent, unit="s", bound=10, note=note
        )
        begun, cpu = time.perf_counter(), time.process_time()
        for document in documents("singly"):
            corpus.put(document)
        spent, cpu = time.perf_counter() - begun, time.process_time() - cpu
        note = f"{1000 * spent / count:.1f} ms each; {cpu:.1f} s of CPU in the client"
        yield Figure(
            name=f"put {count} documents in as many calls",
            value=spent,
            unit="s",
            bound=10,
            note=note,
        )
        yield _long(corpus, seed)
        for name in ("many", "singly"):
            spent = _seconds(lambda name=name: corpus.forget(project=name))
            yield Figure(
                name=f"forget a project of {count} documents",
                value=spent,
                unit="s",
                bound=5,
                note=name,
            )
        for name in ("one", "long"):
            corpus.forget(project=name)


def _long(corpus: Corpus, seed: int) -> Figure:
    """A document of a hundred chunks; the length that it takes is tried out first."""
    text = "\n".join(pgdata.texts(200, seed, length=4_000))
    length = 60_000
    for _ in range(4):
        chunks = corpus.put(Document(project="long", path="tried.py", text=text[:length])).chunks
        length = max(1_000, round(length * 100 / max(chunks, 1)))
    times = []
    for number in range(5):
        document = Document(
            project="long",
            path=f"long-{number}.py",
            text=f"number = {number}\n" + text[:length].replace("self", f"self_{number}"),
        )
        times.append(_seconds(lambda document=document: corpus.put(document)))
    chunks = corpus.documents(project="long", path="long-0.py")[0].chunk_count
    return Figure(
        name="put a document of 100 chunks",
        value=1000 * percentile(times, 0.5),
        unit="ms",
        bound=500,
        note=f"{chunks} chunks; p50 of 5",
    )


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def opening(place: Place) -> Iterator[Figure]:
    """A catalog that is new, and one that is there."""
    new, checks, again, searched = [], [], [], []
    for _ in range(3):
        with place.fresh() as database:
            target = postgres_server.parse_address(database)
            engine = postgres_server.create_engine(target, DatabaseOptions())
            checks.append(
                _seconds(
                    lambda engine=engine, target=target: postgres_server.check_server(
                        engine, target
                    )
                )
            )
            engine.dispose()
            new.append(_seconds(lambda database=database: Catalog.open(database).close()))
            again.append(_seconds(lambda database=database: Catalog.open(database).close()))
            with Corpus(Settings.of(database=database)) as corpus:
                corpus.put(Document(path="a.txt", text="nothing much"))
            searched.append(_seconds(lambda database=database: _ask(database)))
    note = "makes it" if place.server is not None else "finds it"
    yield Figure(name="new catalog, all migrations", value=percentile(new, 0.5), unit="s", bound=5)
    yield Figure(
        name="extension check", value=percentile(checks, 0.5), unit="s", bound=1, note=note
    )
    yield Figure(name="opening an existing catalog", value=percentile(again, 0.5), unit="s")
    yield Figure(
        name="opening a corpus and its first search", value=percentile(searched, 0.5), unit="s"
    )


def _ask(database: str) -> None:
    with Corpus(Settings.of(database=database)) as corpus:
        corpus.search("nothing")


# Indexing and quality


def indexing(place: Place, folder: Path, files: int) -> Iterator[Figure]:
    """One tree into both engines, by turns."""
    tell(f"indexing {files} files")
    tree = empty(folder / "tree")
    count = trees.copy_python(tree, files=files)
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    sizes: dict[str, float] = {}
    by_table: list[Figure] = []
    for number in range(2):
        file = empty(folder / "sqlite") / "indexing.db"
        runs["SQLite"].append(call_fresh("indexing:measure", str(tree), address(file)))
        sizes["SQLite"] = 1e6 * folder_mb(file.parent)
        with place.fresh() as database:
            runs["PostgreSQL"].append(call_fresh("indexing:measure", str(tree), database))
            if number:
                with Corpus(Settings.of(database=database)) as corpus:
                    sizes["PostgreSQL"] = corpus.size_bytes()
                by_table += _by_table(database, runs["PostgreSQL"][0]["chunks"])
    for name, measured in runs.items():
        best = max(measured, key=lambda run: run["chunks"] / run["seconds"])
        cpu = (
            f"{best['cpu_own']:.1f} s of CPU in the parent, {best['cpu_children']:.1f} s in workers"
        )
        note = f"better of 2; {count} files, {best['chunks']} chunks, {cpu}"
        yield Figure(
            name=f"indexing on {name}",
            value=best["chunks"] / best["seconds"],
            unit="chunks/s",
            note=note,
        )
        yield Figure(
            name=f"bytes per chunk on {name}", value=sizes[name] / best["chunks"], unit="bytes"
        )
    yield from by_table


def _by_table(database: str, chunks: int) -> Iterator[Figure]:
    query = (
        "SELECT relname, pg_table_size(oid), pg_indexes_size(oid) FROM pg_class WHERE relkind = "
        "'r' "
        "AND relnamespace = current_schema()::regnamespace ORDER BY pg_total_relation_size(oid) "
        "DESC LIMIT 5"
    )
    with pgdata.by_hand(database) as connection:
        for name, own, indexes in connection.execute(query).fetchall():
            note = f"{float(str(indexes)) / chunks:.0f} of it indexes"
            yield Figure(
                name=f"  of which {name}",
                value=(float(str(own)) + float(str(indexes))) / chunks,
                unit="bytes",
                note=note,
            )


def quality(place: Place, folder: Path) -> Iterator[Figure]:
    """nDCG@10 on both engines, by both retrievers and by words alone, and by PostgreSQL's own
    ranking of words.
    """
    for name, alpha in (("hybrid", None), ("words only", 0.0)):
        embedded = evaluation.evaluate(folder, settings=Settings(), alpha=alpha)
        server = evaluation.evaluate(folder, settings=Settings(), alpha=alpha, server=place.address)
        note = (
            f"{server.queries} queries, {server.chunks} chunks; search {server.search_ms:.1f} "
            f"ms, embedded {embedded.search_ms:.1f}"
        )
        yield Figure(name=f"{folder.name}, {name}: nDCG@10 embedded", value=embedded.ndcg_10)
        yield Figure(
            name=f"{folder.name}, {name}: nDCG@10 PostgreSQL", value=server.ndcg_10, note=note
        )
        yield Figure(
            name=f"{folder.name}, {name}: embedded - PostgreSQL",
            value=round(embedded.ndcg_10 - server.ndcg_10, 4),
            bound=0.01,
        )
    yield Figure(
        name=f"{folder.name}, ts_rank by hand: nDCG@10",
        value=_by_ts_rank(place, folder),
        note="to_tsvector('english'), any of the words",
    )


def _by_ts_rank(place: Place, folder: Path) -> float:
    scores = []
    with place.fresh() as database:
        Catalog.open(database).close()  # so that there is a schema to work in
        with pgdata.by_hand(database, autocommit=True) as connection:
            connection.execute("CREATE TABLE by_hand (project text, id text, body tsvector)")
            with connection.cursor() as cursor:
                insert = (
                    "INSERT INTO by_hand VALUES (%s, %s, to_tsvector('english', left(%s, 200000)))"
                )
                cursor.executemany(
                    insert,
                    [
                        (one.project, item.id, f"{one.path} {one.title} {one.text}")
                        for item in beir.read_documents(folder)
                        if isinstance(item, beir.Item)
                        for one in [item.document]
                    ],
                )
            connection.execute("CREATE INDEX ON by_hand USING gin (body)")
            query = (
                "WITH q AS (SELECT replace(plainto_tsquery('english', %s)::text, '&', "
                "'|')::tsquery AS q) "
                "SELECT id FROM by_hand, q WHERE project = %s AND body @@ q ORDER BY "
                "ts_rank(body, q) DESC, id LIMIT 100"
            )
            for question in beir.read_questions(folder):
                found = [
                    str(row[0])
                    for row in connection.execute(
                        query, (question.text, question.project)
                    ).fetchall()
                ]
                scores.append(evaluation._score(found, question)[0])
    return fmean(scores)


if __name__ == "__main__":
    main()
