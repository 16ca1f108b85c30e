"""Answers of the tools as compact text for a model. Pure.

A header begins with `[number] `. A stored line that begins like a header, or like a line of the
ending, gets a space in front. So no stored text can pass for a line of the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

Values = Mapping[str, Any]

_BREAKS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"  # other characters that may end a line
_OURS = re.compile(
    rf"(?:^|(?<=[{_BREAKS}]))(?=\[\d+\] |note: |more: |stop: |end: |older records: |error \()",
    re.MULTILINE,
)
_BROKEN = re.compile(rf"[\r\n{_BREAKS}]")

# For each kind of answer, by a key that only it has: a separator, and parts of a header. A part is
# left out if the value of its key is empty. The header of a list is repeated for each of its rows.
_HEADERS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "hits": (
        " ",
        {
            "at": "[{rank}] {at}",
            "within": "{within}",
            "project": "(project {project})",
            "shown": "(showing {shown})",
            "changed": "(changed since the first page)",
            "stale": "(file changed since it was indexed)",
            "also": "(also in {also})",
        },
    ),
    "records": (
        ", ",
        {
            "at": "[{number}] {at}",
            "length": "{length} characters",
            "same_as_newer": "same as the newer one",
        },
    ),
    "streams": ("", {"stream": "{stream} ({records} records, project {project})"}),
    "projects": (
        ", ",
        {
            "name": "{name}: {documents} documents, {chunks} chunks",
            "pending": "{pending} not indexed yet",
            "failed": "{failed} failed",
            "root": "from {root}",
        },
    ),
    "text": (" ", {"at": "[1] {at}", "of": "of {of} {unit}", "title": "{title}"}),
    "conversation": ("", {"conversation": "stored in {conversation!r} of project {project!r}"}),
    "added": (
        ", ",
        {
            "project": "{project}: {added} added",
            "updated": "{updated} updated",
            "unchanged": "{unchanged} unchanged",
            "removed": "{removed} removed",
            "failed": "{failed} failed",
            "seconds": "{chunks} chunks in {seconds:.1f} s",
        },
    ),
}


def render_text(values: Values, *, first_rank: int, unit: str) -> str:
    """Return an answer as text: its rows, then notes, the next call and advice."""
    kind = next(key for key in _HEADERS if key in values)
    rows = values[kind] if isinstance(values[kind], list) else [values]
    blocks = [_render_row(row, kind, rank, unit) for rank, row in enumerate(rows, first_rank)]
    separator = "\n\n" if kind == "hits" else "\n"
    return separator.join(filter(None, (*blocks, "\n".join(_list_endings(values)))))


def join_line(text: str) -> str:
    """Return a text without line breaks."""
    return _BROKEN.sub(" ", text)


def _render_row(row: Values, kind: str, rank: int, unit: str) -> str:
    separator, parts = _HEADERS[kind]
    lists = {key: ", ".join(value) for key, value in row.items() if isinstance(value, list)}
    fields = {**row, **lists, "rank": rank, "unit": unit}
    head = separator.join(part.format_map(fields) for key, part in parts.items() if row.get(key))
    body = row.get("text", row.get("body", "")).replace("\r\n", "\n").replace("\r", "\n")
    return "\n".join(filter(None, (join_line(head), _OURS.sub(" ", body))))


def _list_endings(values: Values) -> Iterator[str]:
    yield from (f"failed: {failure}" for failure in values.get("failures", ()))
    yield from (f"note: {note}" for note in values.get("notes", ()))
    more = values.get("next", "")
    if "continuation" in values:
        more = (
            f"{values['remaining']} further hits, each less relevant; "
            f'more(continuation="{values["continuation"]}") gives the next page'
        )
    elif "after" in values:
        more = f'list_projects(after="{values["after"]}") gives the next ones'
    elif more and "text" in values:
        more = f'read(path="{more}") gives the next lines'
    if more:
        yield join_line(f"more: {more}")
    if "advice" in values:
        yield f"{'stop' if more else 'end'}: {values['advice']}"
