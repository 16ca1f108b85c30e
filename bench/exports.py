"""How much memory reading an export of conversations takes, whatever its size.

    python bench/exports.py --megabytes 400

Writes exports of that size into a temporary folder, reads each in a process of its own, and prints
the peak of its memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

WORDS = "the bowline holds, and the sheet bend joins two ropes of different thickness; "


def chatgpt(size: int) -> Iterator[str]:
    """A ChatGPT export: very many conversations of forty messages."""
    yield "["
    for number in range(size // 32_000 + 1):
        mapping = {
            f"n{at}": {
                "id": f"n{at}",
                "message": {
                    "id": f"n{at}",
                    "author": {"role": ("user", "assistant")[at % 2], "name": None, "metadata": {}},
                    "create_time": 1_700_000_000.5 + at,
                    "content": {"content_type": "text", "parts": [WORDS * 6 + str(number)]},
                    "metadata": {"model_slug": "m", "citations": [], "request_id": "r"},
                    "recipient": "all",
                },
                "parent": f"n{at - 1}" if at else None,
                "children": [f"n{at + 1}"],
            }
            for at in range(40)
        }
        one = {
            "title": f"Talk {number}",
            "create_time": 1_700_000_000.5,
            "mapping": mapping,
            "current_node": "n39",
            "conversation_id": f"c{number}",
        }
        yield ("," if number else "") + json.dumps(one)
    yield "]"


def interleaved(size: int) -> Iterator[str]:
    """A thousand sessions, message by message in turn."""
    for number in range(size // 560 + 1):
        yield (
            json.dumps(
                {
                    "conversation": f"s{number % 1000}",
                    "role": "user",
                    "text": WORDS * 6,
                    "at": 1_700_000_000 + number,
                }
            )
            + "\n"
        )


def transcript(size: int) -> Iterator[str]:
    """One session of an agent without end."""
    for number in range(size // 640 + 1):
        message = {"role": "user", "content": [{"type": "text", "text": WORDS * 6}]}
        yield (
            json.dumps(
                {
                    "type": "user",
                    "sessionId": "s",
                    "uuid": f"u{number}",
                    "timestamp": "2026-01-05T10:00:00Z",
                    "message": message,
                }
            )
            + "\n"
        )


def written(path: Path, pieces: Iterator[str]) -> Path:
    """A file of these pieces; an archive where the name says so."""
    if path.suffix == ".zip":
        with (
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
            archive.open("conversations.json", "w") as member,
        ):
            for piece in pieces:
                member.write(piece.encode())
    else:
        with path.open("w") as file:
            file.writelines(pieces)
    return path


def read(path: Path) -> None:
    """Read an export and say what it took."""
    from unspool.domain.reports import BadRecord
    from unspool.sources import conversations

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    started = time.perf_counter()
    count = messages = bad = 0
    for one in conversations.read(path, project="bench"):
        if isinstance(one, BadRecord):
            bad += 1
        else:
            count += 1
            messages += len(one.messages)
    seconds = time.perf_counter() - started
    size = conversations.measure(path) / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{path.name:20} {size:5.0f} MB {count:7} conversations {messages:8} messages {bad} bad "
        f"{seconds:5.1f} s {size / seconds:4.0f} MB/s",
        end=" ",
    )
    print(f"peak {peak:.0f} MiB, of which {before:.0f} before it began")


EXPORTS: dict[str, Callable[[int], Iterator[str]]] = {
    "chatgpt.json": chatgpt,
    "chatgpt.zip": chatgpt,
    "interleaved.jsonl": interleaved,
    "transcript.jsonl": transcript,
}


def main() -> None:
    """Write, read and measure each export."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--read", type=Path, help="only read this file, in this process")
    options = parser.parse_args()
    if options.read:
        read(options.read)
        return
    for name, made in EXPORTS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = written(Path(folder) / name, made(options.megabytes * 10**6))
            subprocess.run([sys.executable, __file__, "--read", str(path)], check=True)


if __name__ == "__main__":
    main()
