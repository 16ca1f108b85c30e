"""Pages of hits and the sources of answers, for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from unspool import Answer, Chunk, Form, Hit, Page, Said
from unspool.interfaces.controls import clean
from unspool.interfaces.terminal import FAINT, MARK, NAME, PATH, WARN, Line, Span, count_cells

# columns that speakers share; a longer name pushes only its own message to the right
NAME_CELLS = 24


def render_page(page: Page, *, full: bool = False) -> Iterator[Line]:
    """Yield each hit with a header and its lines, separated by a blank line.

    The hits of a conversation are together, at the place of the best of them.
    """
    with_project = len(page.projects) > 1
    for index, hits in enumerate(_group_hits(page.hits)):
        if index:
            yield []
        if hits[0].message is not None:
            yield from _render_conversation(hits, with_project=with_project, full=full)
        else:
            yield from _render_hit(hits[0], with_project=with_project, full=full)


def _group_hits(hits: Sequence[Hit]) -> Iterable[list[Hit]]:
    """Return the hits of each conversation together, and each other hit by itself."""
    groups: dict[tuple[str, str, int], list[Hit]] = {}
    for index, hit in enumerate(hits):
        number = index if hit.message is None else -1
        groups.setdefault((hit.chunk.project, hit.chunk.path, number), []).append(hit)
    return groups.values()


def _render_hit(hit: Hit, *, with_project: bool, full: bool) -> Iterator[Line]:
    """Yield the header of a hit, its lines with their numbers, and its reason."""
    others = f" and {len(hit.copies) - 1} more" if len(hit.copies) > 1 else ""
    yield [
        *_render_place(hit, with_project=with_project),
        (f"  {hit.score:.3f}", FAINT),
        ("  changed" if hit.changed else "", WARN),
        ("  stale" if hit.stale else "", WARN),
        (f"  also in {hit.copies[0]}{others}" if hit.copies else "", FAINT),
    ]
    first, rows = _split_rows(hit, full=full)
    width = len(str(first + len(rows) - 1))
    yield from ([(f"  {n:>{width}}  ", FAINT), *row] for n, row in enumerate(rows, first))
    if hit.reason:
        yield [(f"  {hit.reason}", FAINT)]


def _render_place(hit: Hit, *, with_project: bool) -> Line:
    chunk = hit.chunk
    return [
        (chunk.path, PATH),
        (f":{chunk.lines}", FAINT),
        *_render_title(chunk, hit.within or chunk.title, with_project=with_project),
    ]


def _render_title(chunk: Chunk, title: str, *, with_project: bool) -> Line:
    return [
        (f"  {title}" if title else "", NAME),
        (f"  [{chunk.project}]" if with_project else "", FAINT),
    ]


def _render_conversation(hits: Sequence[Hit], *, with_project: bool, full: bool) -> Iterator[Line]:
    """Yield the hits of one conversation in its order, with the messages around them."""
    chunk = hits[0].chunk
    yield [(chunk.path, PATH), *_render_title(chunk, chunk.title, with_project=with_project)]
    lines: list[tuple[tuple[int, int], Said, Hit | None]] = []
    for hit in hits:
        assert hit.message is not None
        lines.append(((hit.message.number, hit.chunk.index), hit.message, hit))
        lines += [((said.number, 0), said, None) for said in (*hit.before, *hit.after)]
    lines.sort(key=lambda one: one[0])
    width = max(len(str(said.number)) for _, said, _ in lines)
    name = min(max(count_cells(clean(said.speaker)) for _, said, _ in lines), NAME_CELLS)
    hours = "%H:%M  " if any(said.at is not None for _, said, _ in lines) else ""
    last, day = None, None
    for (number, _), said, found in lines:
        if said.at is not None and said.at.date() != day:
            day = said.at.date()
            yield [(f"  {'':>{width}}  {day.isoformat()} (UTC)", FAINT)]
        elif last is not None and number > last + 1:
            yield [(f"  {'':>{width}}  ...", FAINT)]
        last = number
        speaker = said.speaker + " " * (name - count_cells(clean(said.speaker)))
        clock = " " * len(hours) if said.at is None else said.at.strftime(hours)
        start = (f"{said.number:>{width}}", f"  {speaker}  ", clock)
        if found is None:
            yield [(f"  {''.join(start)}{said.text}", FAINT)]
        else:
            margin = " " * (width + name + 6 + len(clock))
            yield from _render_message(found, start, margin, full=full)


def _render_message(
    hit: Hit, start: tuple[str, str, str], margin: str, *, full: bool
) -> Iterator[Line]:
    """Yield a message that is a hit. `start` is its number, speaker and time."""
    first, *rest = _split_rows(hit, full=full)[1] or [[]]
    number, speaker, clock = start
    yield [
        ("> ", MARK),
        (number, FAINT),
        (speaker, NAME),
        (clock, FAINT),
        *first,
        (f"  {hit.score:.3f}", FAINT),
        ("  changed" if hit.changed else "", WARN),
    ]
    yield from ([(margin, ""), *row] for row in rest)
    if hit.reason:
        yield [(f"{margin}{hit.reason}", FAINT)]


def _split_rows(hit: Hit, *, full: bool) -> tuple[int, list[Line]]:
    """Return the number of the first line of a hit's text, and its lines with marked matches."""
    if hit.form is Form.LOCATION:
        return 1, []
    text, first, marks = hit.snippet.text, hit.snippet.first_line, hit.snippet.marks
    if full and hit.form is Form.WHOLE:
        marks = _move_marks(hit)
        text, first = hit.chunk.text, hit.chunk.lines.first
    rows: list[Line] = [[]]
    for part, style in _mark_spans(text.removesuffix("\r"), marks):
        start, *others = re.split("\r?\n", part)
        rows[-1].append((start, style))
        rows += [[(row, style)] for row in others]
    return first, rows


def _move_marks(hit: Hit) -> tuple[tuple[int, int], ...]:
    """Return the marks of the snippet as positions in the whole chunk."""
    start = 0
    for _ in range(hit.snippet.first_line - hit.chunk.lines.first):
        start = hit.chunk.text.find("\n", start) + 1
    offset = hit.chunk.text.find(hit.snippet.text, start)
    return tuple((a + offset, b + offset) for a, b in hit.snippet.marks) if offset >= 0 else ()


def _mark_spans(text: str, marks: Sequence[tuple[int, int]]) -> Iterator[Span]:
    position = 0
    for begin, end in marks:
        yield text[position:begin], ""
        yield text[begin:end], MARK
        position = end
    yield text[position:], ""


def render_sources(answer: Answer) -> Iterator[Line]:
    """Yield the sources that an answer cites; without a model, the context for one."""
    if answer.found and not answer.model:
        yield from ([(row.removesuffix("\r"), "")] for row in answer.context.split("\n"))
        return
    if not answer.text.endswith("\n"):
        yield []
    if answer.citations:
        yield []
    with_project = len({one.project for one in answer.citations}) > 1
    for one in answer.citations:
        yield [(f"[{one.number}] ", ""), *_render_place(one.hit, with_project=with_project)]
