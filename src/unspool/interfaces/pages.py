"""Pages of hits and the sources of answers, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unspool.domain.answers import Answer, Citation
from unspool.domain.queries import Form, Hit, Page, Said
from unspool.interfaces.controls import clean
from unspool.interfaces.terminal import FAINT, MARK, NAME, PATH, WARN, Line, Span, cells

# columns that speakers share; a longer name pushes only its own message to the right
NAME_CELLS = 24


def page(page: Page, *, full: bool = False) -> Iterator[Line]:
    """Each hit with a header and its lines, a blank line between; the hits of a conversation
    together, where the best of them stands.
    """
    several = len(page.projects) > 1
    for index, hits in enumerate(_together(page.hits)):
        if index:
            yield []
        if hits[0].message is not None:
            yield from exchange(hits, with_project=several, full=full)
            continue
        for hit in hits:
            yield _header(hit, with_project=several)
            yield from _body(hit, full=full)
            if hit.reason:
                yield [(f"  {hit.reason}", FAINT)]


def _together(hits: Sequence[Hit]) -> list[list[Hit]]:
    groups: dict[tuple[str, str, int], list[Hit]] = {}
    for index, hit in enumerate(hits):
        groups.setdefault(
            (hit.chunk.project, hit.chunk.path, -1 if hit.message is not None else index), []
        ).append(hit)
    return list(groups.values())


def exchange(
    hits: Sequence[Hit], *, with_project: bool = False, full: bool = False
) -> Iterator[Line]:
    """The hits of one conversation in the order in which they were said, with what was said
    around them.
    """
    chunk = hits[0].chunk
    head: Line = [(chunk.path, PATH)]
    if chunk.title:
        head += [("  ", ""), (chunk.title, NAME)]
    if with_project:
        head += [("  ", ""), (f"[{chunk.project}]", FAINT)]
    yield head
    lines: list[tuple[tuple[int, int], Said, Hit | None]] = []
    for hit in hits:
        assert hit.message is not None
        lines.append(((hit.message.number, hit.chunk.index), hit.message, hit))
        lines += [((said.number, 0), said, None) for said in (*hit.before, *hit.after)]
    lines.sort(key=lambda one: one[0])
    width = max(len(str(said.number)) for _, said, _ in lines)
    name = min(max(cells(clean(said.speaker)) for _, said, _ in lines), NAME_CELLS)
    hours = "%H:%M  " if any(said.at is not None for _, said, _ in lines) else ""
    last, day = None, None
    for (number, _), said, found in lines:
        if said.at is not None and said.at.date() != day:
            day = said.at.date()
            yield [(f"  {'':>{width}}  {day.isoformat()} (UTC)", FAINT)]
        elif last is not None and number > last + 1:
            yield [(f"  {'':>{width}}  ...", FAINT)]
        yield from _said(said, found, width, name, hours, full=full)
        last = number


def _said(
    said: Said, hit: Hit | None, width: int, name: int, hours: str, *, full: bool
) -> Iterator[Line]:
    speaker = said.speaker + " " * (name - cells(clean(said.speaker)))
    clock = " " * len(hours) if said.at is None else said.at.strftime(hours)
    margin = " " * (width + name + 6 + len(clock))
    if hit is None:
        yield [(f"  {said.number:>{width}}  {speaker}  {clock}{said.text}", FAINT)]
        return
    start: Line = [
        ("> ", MARK),
        (f"{said.number:>{width}}", FAINT),
        (f"  {speaker}  ", NAME),
        (clock, FAINT),
    ]
    score: Line = [(f"  {hit.score:.3f}", FAINT), *([("  changed", WARN)] if hit.changed else [])]
    if hit.form is Form.LOCATION:
        yield [*start, *score]
        return
    text, marks = hit.snippet.text, hit.snippet.marks
    if full and hit.form is Form.WHOLE:
        text, marks = hit.chunk.text, _moved(hit)
    position = 0
    for index, row in enumerate(text.split("\n")):
        inside = [
            (max(a - position, 0), min(b - position, len(row)))
            for a, b in marks
            if a < position + len(row) and b > position
        ]
        yield [
            *([(margin, "")] if index else start),
            *_marked(row.removesuffix("\r"), inside),
            *([] if index else score),
        ]
        position += len(row) + 1
    if hit.reason:
        yield [(f"{margin}{hit.reason}", FAINT)]


def _header(hit: Hit, *, with_project: bool) -> Line:
    chunk = hit.chunk
    place = chunk.symbol or " > ".join(chunk.headings) or chunk.title
    line: Line = [(chunk.path, PATH), (f":{chunk.lines}", FAINT)]
    if place:
        line += [("  ", ""), (place, NAME)]
    if with_project:
        line += [("  ", ""), (f"[{chunk.project}]", FAINT)]
    line += [("  ", ""), (f"{hit.score:.3f}", FAINT)]
    if hit.changed:
        line.append(("  changed", WARN))
    if hit.stale:
        line.append(("  stale", WARN))
    if hit.copies:
        others = f" and {len(hit.copies) - 1} more" if len(hit.copies) > 1 else ""
        line.append((f"  also in {hit.copies[0]}{others}", FAINT))
    return line


def _body(hit: Hit, *, full: bool) -> Iterator[Line]:
    if hit.form is Form.LOCATION:
        return
    text, first, marks = hit.snippet.text, hit.snippet.first_line, hit.snippet.marks
    if full and hit.form is Form.WHOLE:
        text, first, marks = hit.chunk.text, hit.chunk.lines.first, _moved(hit)
    rows = text.split("\n")
    width = len(str(first + len(rows) - 1))
    position = 0
    for number, row in enumerate(rows, first):
        inside = [
            (max(a - position, 0), min(b - position, len(row)))
            for a, b in marks
            if a < position + len(row) and b > position
        ]
        yield [(f"  {number:>{width}}  ", FAINT), *_marked(row.removesuffix("\r"), inside)]
        position += len(row) + 1


def _moved(hit: Hit) -> tuple[tuple[int, int], ...]:
    """The snippet's marks as positions in the whole chunk."""
    start = 0
    for _ in range(hit.snippet.first_line - hit.chunk.lines.first):
        start = hit.chunk.text.find("\n", start) + 1
    offset = hit.chunk.text.find(hit.snippet.text, start)
    return tuple((a + offset, b + offset) for a, b in hit.snippet.marks) if offset >= 0 else ()


def _marked(row: str, marks: Sequence[tuple[int, int]]) -> Iterator[Span]:
    position = 0
    for begin, end in marks:
        yield row[position:begin], ""
        yield row[begin:end], MARK
        position = end
    yield row[position:], ""


def after_answer(answer: Answer) -> Iterator[Line]:
    """What follows the text of an answer: the sources it cites; where there is no model, what
    one would be shown.
    """
    if answer.found and not answer.model:
        yield from ([(row.removesuffix("\r"), "")] for row in answer.context.split("\n"))
        return
    if not answer.text.endswith("\n"):
        yield []
    if answer.citations:
        yield []
    several = len({one.project for one in answer.citations}) > 1
    yield from (_source(one, with_project=several) for one in answer.citations)


def _source(citation: Citation, *, with_project: bool) -> Line:
    chunk = citation.hit.chunk
    place = citation.hit.within or chunk.title
    line: Line = [(f"[{citation.number}] ", ""), (chunk.path, PATH), (f":{chunk.lines}", FAINT)]
    if place:
        line += [("  ", ""), (place, NAME)]
    return [*line, (f"  [{chunk.project}]", FAINT)] if with_project else line
