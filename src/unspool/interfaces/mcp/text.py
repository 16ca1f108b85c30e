"""What the tools answer, as compact text for a model. Pure.

A header begins with `[number] `. A line of what is quoted that begins in the same way, or like a
line of ours at the end, gets a space in front: whatever is stored, nothing in it can pass for the
end of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from unspool.domain.documents import Lines, Passage
from unspool.domain.history import HistoryPage, StreamStatus
from unspool.interfaces.mcp.showing import Shown

_BREAKS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"  # what else may be taken for the end of a line
_OURS = re.compile(
    rf"(?:^|(?<=[{_BREAKS}]))(?=\[\d+\] |note: |more: |stop: |end: |older records: |error \()",
    re.MULTILINE,
)
_BROKEN = re.compile(rf"[\r\n{_BREAKS}]")


def guarded(text: str) -> str:
    """Quoted text in which no line looks like one of ours."""
    return _OURS.sub(" ", text.replace("\r\n", "\n").replace("\r", "\n"))


def line(text: str) -> str:
    """A name in a line of ours; one that has line breaks in it stays on that line."""
    return _BROKEN.sub(" ", text)


def page(hits: Sequence[Shown], ending: Sequence[str], *, first_rank: int = 1) -> str:
    """Hits under their headers, then what there is to say about them."""
    blocks = [
        f"{_header(hit, rank)}\n{guarded(hit.text)}" if hit.text else _header(hit, rank)
        for rank, hit in enumerate(hits, first_rank)
    ]
    return "\n\n".join([*blocks, "\n".join(ending)] if ending else blocks)


def _header(hit: Shown, rank: int) -> str:
    head = f"[{rank}] {hit.at}"
    head += f" {hit.within}" if hit.within else ""
    head += f" (project {hit.project})" if hit.project else ""
    head += (
        f" (showing {'line' if hit.lines.first == hit.lines.last else 'lines'} {hit.lines})"
        if hit.lines is not None
        else ""
    )
    head += " (changed since the first page)" if hit.is_changed else ""
    head += " (file changed since it was indexed)" if hit.is_stale else ""
    return line(head + (f" (also in {', '.join(hit.also)})" if hit.also else ""))


def passage(passage: Passage, text: str, lines: Lines, ending: Sequence[str]) -> str:
    """Lines of a document under where they stand."""
    unit = "messages" if passage.kind == "chat" else "lines"
    title = f" {passage.title}" if passage.title and passage.title != passage.path else ""
    head = line(f"[1] {passage.path}:{lines} of {passage.last_line} {unit}{title}")
    return "\n".join([head, guarded(text), *ending])


def history(page: HistoryPage, notes: Sequence[str]) -> str:
    """Records of a stream, newest first."""
    records = tuple(
        replace(entry, body=None if entry.body is None else guarded(entry.body))
        for entry in page.records
    )
    return "\n".join([replace(page, records=records).text, *notes])


def streams(found: Sequence[StreamStatus], ending: Sequence[str], *, is_start: bool = True) -> str:
    """Streams of responses, one a line."""
    lines = [line(f"{one.stream} ({one.records} records, project {one.project})") for one in found]
    return "\n".join(
        [*(lines or ["no streams of responses yet" if is_start else "no further streams"]), *ending]
    )


def notes(found: Sequence[str]) -> list[str]:
    """What to know about an answer, one a line."""
    return [f"note: {one}" for one in found]
