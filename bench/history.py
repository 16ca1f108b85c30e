"""Histories of responses: reading far from the newest record, appending, keeping to the retention;
on SQLite and on PostgreSQL.

The stream is filled by one statement, with times a little out of order, and read at once: nothing
is vacuumed or analysed by hand first.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import sqlalchemy as sa

import pgdata
from common import Figure, address, parser, percentile, show, tell, workspace
from unspool.catalog import Catalog, history
from unspool.corpus import Corpus
from unspool.domain.history import Retention
from unspool.settings import Settings

STREAM = "filled"
OFFSETS = (0, 1_000, 100_000, 900_000)
BOUNDS_MS = {100_000: 50.0}
LIMIT = 10
THREADS = 8
JITTER_S = 600  # by which a time may be out of order
_BODY = (
    '{"status": "ok", "endpoint": "/v1/orders", "items": ['
    + ", ".join(f'{{"id": {n}, "state": "shipped"}}' for n in range(6))
    + '], "run": '
)
_FILL = {
    "sqlite": (
        "WITH RECURSIVE counted(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM counted WHERE n < "
        ":count) "
        "INSERT INTO records (stream_id, number, at, sha, length, body) SELECT :stream, n, "
        "strftime('%Y-%m-%d %H:%M:%S.000000', 1700000000 + n + (n * 7919) % :jitter, "
        "'unixepoch'), :sha, :length, :body || n || '}' FROM counted"
    ),
    "postgresql": (
        "INSERT INTO records (stream_id, number, at, sha, length, body) SELECT :stream, n, "
        "to_timestamp(1700000000 + n + (n % :jitter * 7919) % :jitter), :sha, :length, :body || "
        "n || '}' FROM generate_series(2, :count) n"
    ),
}


def main() -> None:
    options = parser(__doc__)
    pgdata.add_options(options)
    options.add_argument("--records", type=int, default=1_000_000)
    options.add_argument("--reads", type=int, default=100, help="of each kind")
    options.add_argument(
        "--engines", nargs="+", choices=sorted(_FILL), default=sorted(_FILL, reverse=True)
    )
    given = options.parse_args()
    figures: list[Figure] = []
    if "sqlite" in given.engines:
        with workspace(given.keep) as folder:
            figures += measured(
                "sqlite",
                address(folder / f"history-{given.records}.db"),
                given.records,
                given.reads,
                given.seed,
            )
    if "postgresql" in given.engines:
        with pgdata.place(given.server) as place, place.fresh() as fresh:
            figures += measured("postgresql", fresh, given.records, given.reads, given.seed)
    show("history", figures, as_json=given.json)


def measured(engine: str, place: str, count: int, reads: int, seed: int) -> Iterator[Figure]:
    """The figures of one engine."""
    tell(f"{engine}: filling a stream with {count} records")
    with Corpus(Settings.load(arguments={"database": place}, environment={})) as corpus:
        stream = corpus.history(STREAM)
        if stream.count() < count:
            fill(place, count)
        chance = random.Random(seed)
        for offset in OFFSETS:
            if offset >= count:
                continue
            tell(f"{engine}: reading at {offset}")
            near = [offset + chance.randrange(100) for _ in range(reads)]
            assert len(stream.read(LIMIT, near[0])) == LIMIT
            pages = [timed(lambda at=at: stream.page(LIMIT, at)) for at in near]
            whole = [timed(lambda at=at: stream.read(LIMIT, at)) for at in near]
            name = f"{engine}, {LIMIT} records at offset {offset}"
            yield Figure(
                name=f"{name}, p50",
                value=percentile(whole, 0.5),
                unit="ms",
                bound=BOUNDS_MS.get(offset),
                note=f"{count} records",
            )
            yield Figure(
                name=f"{name}, as an agent's page, p50",
                value=percentile(pages, 0.5),
                unit="ms",
                bound=BOUNDS_MS.get(offset),
            )
            yield Figure(name=f"{name}, p95", value=percentile(whole, 0.95), unit="ms")
        yield Figure(
            name=f"{engine}, count, p50",
            value=percentile([timed(stream.count) for _ in range(reads)], 0.5),
            unit="ms",
        )
        tell(f"{engine}: appending")
        for label, retention in (
            ("no bound", Retention()),
            ("100 kept", Retention(max_records=100)),
            ("a day kept", Retention(max_age_s=86_400)),
        ):
            target = corpus.history(f"appended, {label}", retention=retention)
            target.clear()
            taken = [
                timed(lambda target=target, n=n: target.append(f"{_BODY}{n}}}"))
                for n in range(3 * reads)
            ]
            yield Figure(
                name=f"{engine}, append, {label}, p50", value=percentile(taken, 0.5), unit="ms"
            )
        taken = [timed(lambda: stream.append(_BODY + "0}")) for _ in range(reads)]
        yield Figure(
            name=f"{engine}, append to the filled stream, p50",
            value=percentile(taken, 0.5),
            unit="ms",
        )
        shared = corpus.history("appended by threads")
        shared.clear()
        begun = time.perf_counter()
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda n: shared.append(f"{_BODY}{n}}}"), range(THREADS * reads)))
        rate = THREADS * reads / (time.perf_counter() - begun)
        assert shared.count() == THREADS * reads
        yield Figure(
            name=f"{engine}, {THREADS} threads appending to one stream",
            value=rate,
            unit="records/s",
        )


def fill(place: str, count: int) -> None:
    """Put records into the stream in one go."""
    with Corpus(Settings.load(arguments={"database": place}, environment={})) as corpus:
        corpus.history(STREAM).clear()
        corpus.history(STREAM).append(_BODY + "1}", at=datetime.fromtimestamp(1_700_000_000, UTC))
    catalog = Catalog.open(place)
    try:
        with catalog.write() as connection:
            row = history.find_stream(connection, "default", STREAM, lock=True)
            assert row is not None
            if catalog.engine_name == "postgresql":
                connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            values = {
                "stream": row.id,
                "count": count,
                "jitter": JITTER_S,
                "sha": bytes(32),
                "length": len(_BODY) + 8,
                "body": _BODY,
            }
            connection.execute(sa.text(_FILL[catalog.engine_name]), values)
            connection.execute(
                sa.text("UPDATE streams SET kept = :count, last = :count WHERE id = :stream"),
                {"count": count, "stream": row.id},
            )
    finally:
        catalog.close()


def timed(work: Callable[[], object]) -> float:
    """How long a call takes, in milliseconds."""
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


if __name__ == "__main__":
    main()
