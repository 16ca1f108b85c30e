"""A vector index outside the catalog's database, killed, frozen and wiped at random instants while
two processes write and two search: is anything lost, wrong or returned after it was deleted?

Every page that came without an error is compared with what the writers did during its call. At the
end the catalog, the index and a search are compared with what was written.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from pathlib import Path

from common import HERE, Figure, parser, show, tell, workspace

sys.path.append(str(HERE.parent / "tests"))
import disturbances
from servers import PostgresServer

TIMES = 200


def main() -> None:
    """Parse the options and run on each engine."""
    options = parser(__doc__)
    options.add_argument("--times", type=int, default=TIMES, help="disturbances on each engine")
    options.add_argument(
        "--engines", nargs="+", default=["sqlite", "postgresql"], choices=["sqlite", "postgresql"]
    )
    options.add_argument(
        "--stores",
        nargs="+",
        default=["served"],
        help="served: in the memory of a server of the tests; or adapters, such as qdrant",
    )
    given = options.parse_args()
    figures: list[Figure] = []
    for engine, store in itertools.product(given.engines, given.stores):
        tell(f"disturbing the index in {store} of a catalog on {engine}")
        with workspace(given.keep) as folder:
            figures += measure(engine, store, folder, times=given.times, seed=given.seed)
    show("outside", figures, as_json=given.json)


def measure(engine: str, store: str, folder: Path, *, times: int, seed: int) -> list[Figure]:
    """Run on one engine and one store, with a catalog of its own."""
    with contextlib.ExitStack() as stack:
        address = f"sqlite:///{folder}/outside.db"
        if engine == "postgresql":
            address = stack.enter_context(PostgresServer.start()).create_database()
        outcome = disturbances.disturb(address, times=times, seed=seed, store=store)
    for message in (*outcome.write_errors[:5], *outcome.other_errors[:5]):
        tell(message)
    kinds = ", ".join(f"{count} {how}" for how, count in outcome.disturbances.items())
    errors = ", ".join(f"{count} {name}" for name, count in outcome.search_errors.items())
    return [
        Figure(
            name=f"{engine}, {store}: disturbances",
            value=outcome.disturbances.total(),
            note=kinds or "none",
        ),
        Figure(name=f"{engine}, {store}: writes", value=outcome.writes),
        Figure(
            name=f"{engine}, {store}: pages",
            value=outcome.pages,
            note=f"besides: {errors or 'none'}",
        ),
        *(
            Figure(name=f"{engine}, {store}: {name}", value=count, bound=0)
            for name, count in outcome.failures.items()
        ),
    ]


if __name__ == "__main__":
    main()
