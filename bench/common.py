"""What every script here shares: a table of figures, percentiles, the machine's state, a folder
to work in, and fresh processes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# The function's answer is the last line that a fresh process prints, so that a stray print does no
# harm.
_CALL = (
    "import importlib, json, sys; sys.path.insert(0, sys.argv[1]); module, name = "
    "sys.argv[2].split(':'); "
    "answer = getattr(importlib.import_module(module), name)(*json.loads(sys.argv[3])); print(); "
    "print(json.dumps(answer))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number, with the promise it is held against where there is one."""

    name: str
    value: float
    unit: str = ""
    bound: float | None = None
    at_least: bool = False  # the bound is a minimum, not a maximum
    note: str = ""

    @property
    def ok(self) -> bool | None:
        """Whether the promise is kept; None where nothing is promised."""
        if self.bound is None:
            return None
        return self.value >= self.bound if self.at_least else self.value <= self.bound


def parser(about: str | None) -> argparse.ArgumentParser:
    """The options that all scripts have."""
    options = argparse.ArgumentParser(description=(about or "").split("\n\n")[0])
    options.add_argument(
        "--json", action="store_true", help="print one JSON object instead of a table"
    )
    options.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="work in this folder, leave it there, and use again what is in it",
    )
    options.add_argument("--seed", type=int, default=1, help="of everything that is random")
    return options


@contextmanager
def workspace(keep: Path | None) -> Iterator[Path]:
    """The folder to work in: one that is kept, or one that goes when the script ends."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="unspool-bench-") as folder:
        yield Path(folder)


def show(title: str, figures: Sequence[Figure], *, as_json: bool) -> None:
    """Print the figures, and the machine they were taken on."""
    if as_json:
        rows = [{**asdict(figure), "ok": figure.ok} for figure in figures]
        print(json.dumps({"bench": title, "machine": machine(), "figures": rows}))
        return
    print(f"\n{title}")
    table(
        ["what", "figure", "bound", "", ""],
        [
            [
                figure.name,
                _amount(figure.value, figure.unit),
                _bound(figure),
                _verdict(figure),
                figure.note,
            ]
            for figure in figures
        ],
    )
    print(machine_line())


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their longest entry; numbers to the right."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in [head, ["-" * width for width in widths], *rows]:
        cells = [
            cell.ljust(width) if index == 0 or index == len(head) - 1 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def tell(text: str) -> None:
    """Say on stderr what is going on."""
    print(text, file=sys.stderr, flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies; the nearest one, not an average of
    two.
    """
    ordered = sorted(values)
    return (
        ordered[min(len(ordered) - 1, max(0, round(share * len(ordered)) - 1))]
        if ordered
        else float("nan")
    )


def machine() -> dict[str, Any]:
    """Where the figures were taken, and how busy it was with other things."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = os.getloadavg() if hasattr(os, "getloadavg") else (float("nan"),) * 3
    return {
        "cores": cores,
        "load_1min": round(load[0], 2),
        "load_5min": round(load[1], 2),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def machine_line() -> str:
    """The same in one line."""
    now = machine()
    return (
        f"{now['cores']} cores, load {now['load_1min']} (1 min) {now['load_5min']} (5 min), "
        f"Python {now['python']}, {now['system']}"
    )


def memory_mb(pid: int | str = "self") -> dict[str, float]:
    """VmRSS and its parts (private memory, mapped files) in MB; empty where there is no /proc."""
    file = Path(f"/proc/{pid}/status")
    if not file.exists():
        return {}
    lines = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
    return {
        name: round(int(lines[name].split()[0]) / 1024, 1)
        for name in ("VmRSS", "RssAnon", "RssFile", "VmHWM")
        if name in lines
    }


def folder_mb(path: Path) -> float:
    """What a file, or all files under a folder, take, in MB."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return round(sum(file.stat().st_size for file in files) / 1e6, 1)


def call_fresh(target: str, *arguments: object, timeout_s: float = 3600) -> Any:
    """What `module:function` returns when it is called in a new process.

    Arguments and answer are JSON.
    """
    process = start_fresh(target, *arguments)
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return answer_of(process, output)


def start_fresh(target: str, *arguments: object) -> subprocess.Popen[str]:
    """The same, under way; `answer_of` reads what it said."""
    command = [sys.executable, "-c", _CALL, str(HERE), target, json.dumps(arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def answer_of(process: subprocess.Popen[str], output: str) -> Any:
    """The answer of a fresh process that has ended."""
    if process.returncode:
        raise RuntimeError(
            f"a measuring process ended with {process.returncode}; its own message stands above"
        )
    return json.loads(output.rstrip("\n").rsplit("\n", 1)[-1])


def empty(folder: Path) -> Path:
    """The folder, with nothing in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def address(file: Path) -> str:
    """The catalog address of a file."""
    return f"sqlite:///{file.as_posix()}"


def _amount(value: float, unit: str) -> str:
    if value != value:
        return "-"
    digits = (
        0
        if value == int(value) or abs(value) >= 1000
        else 1
        if abs(value) >= 100
        else 2
        if abs(value) >= 1
        else 4
    )
    return f"{value:.{digits}f} {unit}".rstrip()


def _bound(figure: Figure) -> str:
    return "" if figure.bound is None else f"{'>=' if figure.at_least else '<='} {figure.bound:g}"


def _verdict(figure: Figure) -> str:
    return "" if figure.ok is None else "ok" if figure.ok else "not ok"
