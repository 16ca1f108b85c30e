"""A stranger's folder: which of its modules are executed, and what one hostile file costs.

First modules are planted in a folder, with names of the standard library, of needed and of optional
packages. Every command that reads the folder is run in it. Then each hostile document is indexed,
and each hostile export imported, in a catalog of its own. The time is that of the whole command,
and the memory the peak of all its processes together, looked at fifty times a second.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from common import HERE, Figure, address, empty, memory_mb, parser, show, table, tell, workspace

sys.path.append(str(HERE.parent / "tests"))
import attacks

SECONDS, MEGABYTES = 30.0, 500.0
LOOKED_EVERY_S = 0.02


class Cost(NamedTuple):
    """Cost of one hostile file."""

    name: str
    size_mb: float
    seconds: float
    peak_mb: float
    outcome: str


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "--only", nargs="*", metavar="NAME", help="these files alone, without the commands"
    )
    given = options.parse_args()
    with workspace(given.keep) as folder:
        figures = [] if given.only else _doors(folder)
        files = {**attacks.DOCUMENTS, **attacks.EXPORTS}
        costs = [_measure(folder, name) for name in files if not given.only or name in given.only]
    if not given.json:
        rows = [
            [
                cost.name,
                f"{cost.size_mb:.2f}",
                f"{cost.seconds:.1f}",
                f"{cost.peak_mb:.0f}",
                cost.outcome,
            ]
            for cost in costs
        ]
        table(["file", "MB", "seconds", "peak MB", "outcome"], rows)
    slowest, largest = (
        max(costs, key=lambda cost: cost.seconds),
        max(costs, key=lambda cost: cost.peak_mb),
    )
    figures += [
        Figure(
            name="longest command",
            value=slowest.seconds,
            unit="s",
            bound=SECONDS,
            note=slowest.name,
        ),
        Figure(
            name="most memory of all processes",
            value=largest.peak_mb,
            unit="MB",
            bound=MEGABYTES,
            note=largest.name,
        ),
        Figure(
            name="files that ended the command",
            value=sum(cost.outcome.startswith("exit") for cost in costs),
            bound=0,
        ),
    ]
    show("hostile", figures, as_json=given.json)


def _doors(folder: Path) -> list[Figure]:
    """Run every command in a folder with planted modules, started as a program and as a module."""
    figures = []
    for name, door in attacks.DOORS.items():
        for launcher in (attacks.PROGRAM, attacks.MODULE):
            base = empty(folder / "doors")
            log = base / "executed"
            prey = attacks.prey(base / "prey", log)
            door(
                attacks.Victim(
                    folder=prey, database=address(base / "catalog.db"), launcher=launcher
                )
            )
            executed = len(log.read_text().splitlines()) if log.exists() else 0
            started = "python -m unspool" if launcher == attacks.MODULE else "unspool"
            tell(f"{started} {name}: {executed} modules executed")
            figures.append(
                Figure(
                    name=f"planted modules executed by {started} {name}", value=executed, bound=0
                )
            )
    return figures


def _measure(folder: Path, name: str) -> Cost:
    """Index or import one hostile file, beside a good one."""
    base = empty(folder / "files")
    tree = empty(base / "tree")
    is_export = name in attacks.EXPORTS
    content = (attacks.EXPORTS if is_export else attacks.DOCUMENTS)[name]()
    (tree / name).write_bytes(content)
    arguments = ["remember", str(tree / name)] if is_export else ["index", str(tree)]
    if not is_export:
        (tree / "good.md").write_text("# Walrus\n\nIt swims.\n")
    started = time.monotonic()
    command = [*attacks.PROGRAM, *arguments, "--database", address(base / "catalog.db")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        peak = [0.0]
        watcher = threading.Thread(target=_watch, args=(process, peak))
        watcher.start()
        output, _ = process.communicate()
        seconds = time.monotonic() - started
        watcher.join()
    cost = Cost(
        name, len(content) / 1e6, seconds, peak[0], _describe(name, process.returncode, output)
    )
    tell(f"{name}: {seconds:.1f} s, {peak[0]:.0f} MB, {cost.outcome}")
    return cost


def _watch(process: subprocess.Popen[str], peak: list[float]) -> None:
    while process.poll() is None:
        peak[0] = max(peak[0], sum(memory_mb(pid).get("VmRSS", 0.0) for pid in _tree(process.pid)))
        time.sleep(LOOKED_EVERY_S)


def _tree(pid: int) -> list[int]:
    """Return a process and those that it has started."""
    found = [pid]
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [inner for child in file.read_text().split() for inner in _tree(int(child))]
        except OSError:
            continue  # the thread has ended
    return found


def _describe(name: str, code: int, output: str) -> str:
    named = (line.partition(name)[2] for line in output.splitlines() if name in line)
    reason = next((text.partition(": ")[2] for text in named if ": " in text), "")
    if code == 2 and "Traceback" not in output:
        return f"refused: {output.strip().splitlines()[-1][:100]}"
    if reason:
        return f"reported: {reason[:100]}"
    skipped = next((line.strip() for line in output.splitlines() if " skipped: " in line), "")
    return skipped or ("read" if code == 0 else f"exit {code}: {output.strip()[-100:]}")


if __name__ == "__main__":
    main()
