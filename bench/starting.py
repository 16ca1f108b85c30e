"""How long it takes to begin: `import unspool`; on an indexed project of 10 000 chunks `unspool
search`, and `unspool mcp` to its first answer.

For scale the same run also times Python doing nothing, and Python importing numpy and SQLAlchemy.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import trees
from common import Figure, address, call_fresh, empty, parser, show, table, tell, workspace

CHUNKS = 10_000
TREE_BYTES = 9_500_000  # of the standard library's sources are about 10 000 chunks
QUERY = "parse the command line arguments"
MCP = "unspool mcp, to the answer of its first search"
# What a client of the protocol says before it has an answer: the words of the SDK, without the time
# that the SDK takes to be imported
CLIENT = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}
SAID = (
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": CLIENT},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "search", "arguments": {"query": QUERY}},
    },
)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=10)
    options.add_argument(
        "--imports",
        action="store_true",
        help="also print what takes longest to import for a search",
    )
    given = options.parse_args()
    with workspace(given.keep) as folder:
        tree, database = folder / "tree", folder / "starting.db"
        if not (tree.exists() and database.exists()):
            trees.copy_python(empty(tree), total_bytes=TREE_BYTES)
            tell("indexing")
            call_fresh("indexing:measure", str(tree), address(database))
        search = [sys.executable, "-m", "unspool", "search", QUERY, "--database", address(database)]
        figures = list(_figures(search, tree, given.runs, folder))
        if given.imports:
            _show_imports(search, folder)
    show("starting", figures, as_json=given.json)


def _figures(search: list[str], tree: Path, runs: int, folder: Path) -> Iterator[Figure]:
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "python -c 'import numpy, sqlalchemy'": [sys.executable, "-c", "import numpy, sqlalchemy"],
        "import unspool": [sys.executable, "-c", "import unspool"],
        "unspool search": search,
        "unspool search, the folder refreshed first": [*search, str(tree)],
        MCP: [sys.executable, "-m", "unspool", "mcp", "--database", search[-1]],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs + 1):  # taken in turns, so that a busy moment falls on all of them
        for name, command in commands.items():
            times[name].append(
                _answered(command, folder) if name == MCP else _seconds(command, folder)
            )
    middle = {name: median(some[1:]) for name, some in times.items()}
    nothing = middle["python -c pass"]
    chunks = call_fresh("starting:count", address(folder / "starting.db"))
    yield Figure(name="python -c pass", value=nothing, unit="s")
    scale = middle["python -c 'import numpy, sqlalchemy'"]
    yield Figure(name="python -c 'import numpy, sqlalchemy'", value=scale, unit="s")
    yield Figure(
        name="import unspool, beyond Python itself",
        value=middle["import unspool"] - nothing,
        unit="s",
        bound=0.15,
        note=f"{middle['import unspool']:.3f} s with it",
    )
    note = (
        f"{chunks} chunks; {middle['unspool search'] / scale:.1f} times importing numpy and "
        f"SQLAlchemy"
    )
    yield Figure(
        name="unspool search", value=middle["unspool search"], unit="s", bound=1.0, note=note
    )
    yield Figure(
        name="unspool search, the folder refreshed first",
        value=middle["unspool search, the folder refreshed first"],
        unit="s",
    )
    yield Figure(name=MCP, value=middle[MCP], unit="s", bound=2.0)


def count(database: str) -> int:
    """How many chunks a catalog holds."""
    from unspool.corpus import Corpus
    from unspool.settings import Settings

    with Corpus(Settings.of(database=database)) as corpus:
        return corpus.count()


def _seconds(command: Sequence[str], folder: Path) -> float:
    begun = time.perf_counter()
    subprocess.run(
        command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return time.perf_counter() - begun


def _answered(command: Sequence[str], folder: Path) -> float:
    """Seconds until a server that speaks over its pipes has answered a search."""
    begun = time.perf_counter()
    with subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        answer = {}
        for said in SAID:
            server.stdin.write(json.dumps(said).encode() + b"\n")
            server.stdin.flush()
            while "id" in said and answer.get("id") != said["id"]:
                answer = json.loads(server.stdout.readline())
        taken = time.perf_counter() - begun
        assert answer["result"]["structuredContent"]["hits"], answer
        server.stdin.close()
        server.wait(60)
    return taken


def _show_imports(search: list[str], folder: Path) -> None:
    """The modules whose own code takes longest, and the packages that take longest with all they
    import.
    """
    done = subprocess.run(
        [search[0], "-X", "importtime", *search[1:]],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    found = re.findall(r"^import time:\s+(\d+) \|\s+(\d+) \| ( *)(\S+)$", done.stderr, re.MULTILINE)
    rows = [(int(own) / 1000, int(total) / 1000, name) for own, total, _, name in found]
    print(
        f"\nimports of a search: {sum(row[0] for row in rows):.0f} ms in {len(rows)} modules "
        f"(measuring slows them down)"
    )
    for column, head in ((0, "own ms"), (1, "with its imports ms")):
        longest = sorted(rows, key=lambda row: -row[column])[:20]
        table(["module", head, ""], [[row[2], f"{row[column]:.1f}", ""] for row in longest])


if __name__ == "__main__":
    main()
