"""What a search over HTTP takes beside the same in process, and what a service does for many
clients at once.

The service and whoever asks it run on the same machine and take processor time from each other.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from common import Figure, address, call_fresh, parser, percentile, show, tell, workspace
from filling import PROJECT, fill
from unspool.corpus import Corpus
from unspool.settings import Settings
from words import questions

WARM_UP = 20
FACTOR, PLUS_MS = 1.5, 3.0  # of the same in process


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--chunks", type=int, default=10_000)
    options.add_argument("--queries", type=int, default=300)
    options.add_argument("--clients", type=int, default=64)
    options.add_argument("--seconds", type=float, default=60.0, help="how long they ask")
    options.add_argument("--workers", type=int, default=1, help="processes of the service")
    options.add_argument("--database", help="an address instead of a file; it is filled")
    given = options.parse_args()
    with workspace(given.keep) as folder:
        file = folder / f"{given.chunks}.db"
        tell(f"filling a catalog with {given.chunks} chunks")
        fill(file, chunks=given.chunks, seed=given.seed, fast=False)
        database = given.database or address(file)
        asked = questions(given.queries + WARM_UP, given.seed)
        inside = call_fresh("doors:inside", database, asked)
        with served(database, given.workers) as url:
            outside = call_fresh("doors:outside", url, asked)
            tell(f"{given.clients} clients for {given.seconds:g} s")
            crowd = call_fresh("doors:crowd", url, asked, given.clients, given.seconds)
    show("doors", list(_figures(inside, outside, crowd, given)), as_json=given.json)


def _figures(
    inside: list[float], outside: list[float], crowd: dict[str, Any], given: Any
) -> Iterator[Figure]:
    own = percentile(inside, 0.5)
    yield Figure(name="in process, p50", value=own, unit="ms")
    yield Figure(name="in process, p95", value=percentile(inside, 0.95), unit="ms")
    note = f"at most {FACTOR} times the same in process, and {PLUS_MS:g} ms"
    yield Figure(
        name="over HTTP, p50",
        value=percentile(outside, 0.5),
        unit="ms",
        bound=FACTOR * own + PLUS_MS,
        note=note,
    )
    yield Figure(name="over HTTP, p95", value=percentile(outside, 0.95), unit="ms")
    who = (
        f"{given.clients} clients, {given.workers} "
        f"{'process' if given.workers == 1 else 'processes'}"
    )
    yield Figure(name=f"{who}: answers", value=len(crowd["times"]) / given.seconds, unit="/s")
    yield Figure(name=f"{who}: p50", value=percentile(crowd["times"], 0.5), unit="ms")
    yield Figure(name=f"{who}: p95", value=percentile(crowd["times"], 0.95), unit="ms")
    yield Figure(
        name=f"{who}: errors",
        value=sum(crowd["errors"].values()),
        bound=0,
        note=str(crowd["errors"] or ""),
    )


def inside(database: str, asked: list[str]) -> list[float]:
    """How long each search takes in process, in milliseconds."""
    times = []
    with Corpus(Settings.of(database=database)) as corpus:
        for query in asked:
            begun = time.perf_counter()
            corpus.search(query, projects=PROJECT)
            times.append(1000 * (time.perf_counter() - begun))
    return times[WARM_UP:]


def outside(url: str, asked: list[str]) -> list[float]:
    """The same over one connection to a service."""
    times = []
    with httpx2.Client(base_url=url, timeout=60) as client:
        for query in asked:
            begun = time.perf_counter()
            client.post(
                "/v1/search", json={"query": query, "projects": [PROJECT]}
            ).raise_for_status().json()
            times.append(1000 * (time.perf_counter() - begun))
    return times[WARM_UP:]


def crowd(url: str, asked: list[str], clients: int, seconds: float) -> dict[str, Any]:
    """How long each search takes for clients who ask one after the other, all at once."""
    times: list[float] = []
    errors: Counter[str] = Counter()

    async def ask(client: httpx2.AsyncClient, chance: random.Random, until: float) -> None:
        while time.perf_counter() < until:
            begun = time.perf_counter()
            try:
                answer = await client.post(
                    "/v1/search", json={"query": chance.choice(asked), "projects": [PROJECT]}
                )
                errors.update([] if answer.status_code == 200 else [str(answer.status_code)])
            except httpx2.HTTPError as error:
                errors[type(error).__name__] += 1
            times.append(1000 * (time.perf_counter() - begun))

    async def all_of_them() -> None:
        limits = httpx2.Limits(max_connections=clients)
        async with httpx2.AsyncClient(base_url=url, timeout=60, limits=limits) as client:
            until = time.perf_counter() + seconds
            await asyncio.gather(
                *(ask(client, random.Random(number), until) for number in range(clients))
            )

    asyncio.run(all_of_them())
    return {"times": times, "errors": dict(errors)}


@contextmanager
def served(database: str, workers: int) -> Iterator[str]:
    """The address of a service over a catalog."""
    variables = {"UNSPOOL_RATE_LIMIT": "0", "UNSPOOL_LOG_LEVEL": "warning"}
    command = [
        sys.executable,
        "-m",
        "unspool",
        "serve",
        "--database",
        database,
        "--port",
        "0",
        "--workers",
        str(workers),
    ]
    with subprocess.Popen(
        command, env={**os.environ, **variables}, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        url = process.stderr.readline().split("listening on ")[1].partition(",")[0]
        try:
            _wait(url)
            yield url
        finally:
            process.terminate()
            process.communicate()


def _wait(url: str) -> None:
    for _ in range(600):
        try:
            httpx2.get(f"{url}/ready").raise_for_status()
        except httpx2.HTTPError:
            time.sleep(0.1)
        else:
            return


if __name__ == "__main__":
    main()
