"""What the corpus gives back, for people.

Everything is a list of lines, and a line a list of spans with a style. Without colour the spans are
joined and written, so a pipe gets the same layout as a terminal and rich is not even imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from unspool.domain.documents import DocumentRecord, Kind, Status
from unspool.domain.history import HistoryEntry, HistoryPage, StreamStatus
from unspool.domain.keys import Key
from unspool.domain.reports import (
    Check,
    IndexReport,
    ProjectStatus,
    ReembedPlan,
    ReembedReport,
    RememberReport,
)
from unspool.interfaces.controls import clean, clean_lines

if TYPE_CHECKING:
    from rich.console import Console

    from unspool.settings.folders import IgnoredSetting
    from unspool.settings.trust import FolderState, ReviewedSetting, TrustedFolder

Span = tuple[str, str]
Line = list[Span]

PATH, NAME, FAINT, MARK, GOOD, BAD, WARN = (
    "magenta",
    "cyan",
    "dim",
    "bold yellow",
    "green",
    "bold red",
    "yellow",
)
SHOWN = 20  # masked secrets and failures that are listed; the rest is counted


class Screen:
    """Where lines are written. `color` None means: colour if the stream is a terminal."""

    def __init__(self, stream: TextIO, *, color: bool | None = None) -> None:
        self._stream = stream
        self._color = color
        self._console: Console | None = None
        self._plain = color is False or (color is None and not stream.isatty())

    def write(self, lines: Iterable[Line]) -> None:
        """Write lines, each with its line end."""
        for line in lines:
            if self._plain:
                self._stream.write(
                    _encodable("".join(clean(text) for text, _ in line).rstrip(), self._stream)
                    + "\n"
                )
            else:
                self._pretty(line)

    def put(self, text: str) -> None:
        """Write text as it comes, at once and as it is; where it ends, the next goes on."""
        self._stream.write(_encodable(clean_lines(text), self._stream))
        self._stream.flush()

    def _pretty(self, line: Line) -> None:
        from rich.console import Console
        from rich.text import Text

        if self._console is None:
            forced = self._color is True
            self._console = Console(
                file=self._stream,
                force_terminal=True if forced else None,
                color_system="standard" if forced else "auto",
                no_color=False if forced else None,
                highlight=False,
                markup=False,
                emoji=False,
            )
        text = Text.assemble(*((clean(part), style) for part, style in line))
        text.rstrip()
        self._console.print(text, soft_wrap=True)


def _encodable(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def index_report(report: IndexReport, *, with_skips: bool = False) -> Iterator[Line]:
    """What a run did: counts, then what needs attention."""
    yield [(report.project, NAME), (f"  {counts(report)}", "")]
    rate = (
        f" ({report.chunks / report.seconds:.0f}/s)" if report.chunks and report.seconds > 0 else ""
    )
    yield [
        (
            (
                f"  {report.chunks} chunks in {report.seconds:.2f} s{rate}, {report.embedded} of "
                f"them embedded anew"
            ),
            "",
        )
    ]
    if report.busy:
        yield [(f"  {report.busy} left to another run that is at them", "")]
    if report.skipped:
        reasons = ", ".join(
            f"{reason} {count}"
            for reason, count in sorted(report.skipped.items(), key=lambda one: (-one[1], one[0]))
        )
        yield [(f"  {sum(report.skipped.values())} skipped: {reasons}", FAINT)]
    if with_skips:
        for skip in report.skips:
            yield [
                (f"    {skip.path}", PATH),
                (f"  {skip.reason}", ""),
                (f"  {skip.detail}" if skip.detail else "", FAINT),
            ]
    if report.masked:
        yield [(f"  {len(report.masked)} secrets masked:", WARN)]
        yield from (
            [(f"    {one.path}", PATH), (f":{one.line}", FAINT), (f"  {one.kind}", "")]
            for one in report.masked[:SHOWN]
        )
        yield from _more(len(report.masked))
    if report.failures:
        yield [(f"  {len(report.failures)} failed:", BAD)]
        yield from (
            [(f"    {one.path}", PATH), (f": {one.error}", "")] for one in report.failures[:SHOWN]
        )
        yield from _more(len(report.failures))


def remember_report(report: RememberReport) -> Iterator[Line]:
    """What became of conversations: counts, then what could not be read."""
    yield [
        (report.project, NAME),
        (f"  {report.added} added, {report.updated} updated, {report.unchanged} unchanged", ""),
    ]
    yield [
        (
            (
                f"  {report.messages} messages in {report.chunks} chunks in {report.seconds:.2f} "
                f"s, "
                f"{report.embedded} of them embedded anew"
            ),
            "",
        )
    ]
    if report.duplicates:
        yield [(f"  {report.duplicates} were there twice", FAINT)]
    if report.masked:
        yield [(f"  {len(report.masked)} secrets masked:", WARN)]
        yield from (
            [(f"    {one.path}", PATH), (f":{one.line}", FAINT), (f"  {one.kind}", "")]
            for one in report.masked[:SHOWN]
        )
        yield from _more(len(report.masked))
    if report.bad_count:
        yield [(f"  {report.bad_count} records could not be read:", BAD)]
        yield from (
            [(f"    {one.source}", PATH), (f" {one.position}", FAINT), (f": {one.reason}", "")]
            for one in report.bad[:SHOWN]
        )
        yield from _more(report.bad_count)


def counts(report: IndexReport) -> str:
    """What changed, in a few words."""
    parts = [
        f"{report.added} added",
        f"{report.updated} updated",
        f"{report.unchanged} unchanged",
        f"{report.removed} removed",
    ]
    return ", ".join([*parts, f"{report.failed} failed"] if report.failed else parts)


def _more(count: int) -> Iterator[Line]:
    if count > SHOWN:
        yield [(f"    and {count - SHOWN} more", FAINT)]


def documents(records: Sequence[DocumentRecord]) -> Iterator[Line]:
    """A table, one document a line; what failed says why."""
    rows = [
        [
            (
                record.status.value,
                GOOD
                if record.status is Status.INDEXED
                else BAD
                if record.status is Status.FAILED
                else WARN,
            ),
            (str(record.chunk_count), ""),
            (str(record.size_bytes), ""),
            (record.language or record.kind.value, FAINT),
            (record.project, NAME),
            (record.path, PATH),
            (
                record.error or (record.title if record.kind is Kind.CHAT else ""),
                BAD if record.error else FAINT,
            ),
        ]
        for record in records
    ]
    return table(
        ["status", "chunks", "bytes", "language", "project", "path", ""], rows, right=(1, 2)
    )


def status(projects: Sequence[ProjectStatus], *, catalog: str, size_bytes: int) -> Iterator[Line]:
    """Projects with their counts, the totals, and where the catalog is."""
    if projects:
        head = ["project", "documents", "not indexed", "chunks", "waiting", "root"]
        yield from table(head, [_project(one) for one in projects], right=(1, 2, 3, 4))
        yield []
    total = sum(sum(one.documents.values()) for one in projects)
    yield [
        (
            (
                f"{len(projects)} projects, {total} documents, "
                f"{sum(one.chunks for one in projects)} "
                f"chunks"
            ),
            "",
        )
    ]
    yield [("catalog ", FAINT), (catalog, PATH), (f"  {size_bytes / 1e6:.1f} MB", FAINT)]


def _project(one: ProjectStatus) -> Line:
    total = sum(one.documents.values())
    rest = total - one.documents.get(Status.INDEXED, 0)
    return [
        (one.name, NAME),
        (str(total), ""),
        (str(rest), WARN if rest else FAINT),
        (str(one.chunks), ""),
        (str(one.waiting), FAINT),
        (one.root, PATH),
    ]


def settings(rows: Sequence[tuple[str, str, str, str]]) -> Iterator[Line]:
    """Return a table of all settings."""
    body = [
        [
            (name, NAME),
            (value, ""),
            (origin, FAINT if origin == "default" else GOOD),
            (about, FAINT),
        ]
        for name, value, origin, about in rows
    ]
    return table(["name", "value", "origin", "meaning"], body)


def ignored_settings(ignored: Sequence[IgnoredSetting]) -> Iterator[Line]:
    """Return a table of the settings that are ignored."""
    body: list[Line] = [
        [(one.name, NAME), (one.value, ""), (one.file, GOOD), (one.reason, WARN)] for one in ignored
    ]
    return table(["ignored", "value", "file", "reason"], body)


def reviewed_settings(reviewed: Sequence[ReviewedSetting]) -> Iterator[Line]:
    """Return a table of the settings of a folder's files."""
    body: list[Line] = [
        [
            (one.name, NAME),
            (one.file, ""),
            (one.state, GOOD if one.state == "applies" else FAINT),
            (one.value, ""),
        ]
        for one in reviewed
    ]
    return table(["name", "file", "state", "value"], body)


def trusted_folders(folders: Sequence[tuple[TrustedFolder, FolderState]]) -> Iterator[Line]:
    """Return a table of the trusted folders."""
    body: list[Line] = [
        [
            (str(state), GOOD if state == "trusted" else WARN),
            (_moment(one.trusted_at), FAINT),
            (one.folder, PATH),
        ]
        for one, state in folders
    ]
    return table(["state", "since", "folder"], body)


def history_page(page: HistoryPage) -> Iterator[Line]:
    """Each record with a header and its body, a blank line between."""
    for index, entry in enumerate(page.records):
        if index:
            yield []
        yield _record(entry)
        if entry.body:
            yield from (
                [("  ", ""), (row.removesuffix("\r"), "")]
                for row in entry.body.removesuffix("\n").split("\n")
            )


def _record(entry: HistoryEntry) -> Line:
    line: Line = [
        (str(entry.number), NAME),
        (f"  {_moment(entry.at)}", ""),
        (f"  {entry.length} characters", FAINT),
    ]
    if entry.is_truncated:
        line.append(("  cut", WARN))
    if entry.same_as_newer:
        line.append(("  the same as the newer one", WARN))
    return line


def streams(found: Sequence[StreamStatus]) -> Iterator[Line]:
    """A table, one stream a line."""
    rows = [
        [
            (str(one.records), ""),
            (_moment(one.newest), FAINT),
            (one.project, NAME),
            (one.stream, PATH),
        ]
        for one in found
    ]
    return table(["records", "newest", "project", "stream"], rows, right=(0,))


def _moment(value: datetime | None) -> str:
    return "-" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def reembed_plan(plan: ReembedPlan) -> Iterator[Line]:
    """What going over to another embedder will cost."""
    yield [("from  ", FAINT), (plan.before or "nothing", "")]
    yield [("to    ", FAINT), (plan.after, NAME)]
    if plan.is_done:
        yield [("it is in use already", "")]
        return
    price = (
        ""
        if plan.price is None
        else ", at no charge"
        if not plan.price
        else f", about ${plan.price:,.2f}"
    )
    yield [
        ("cost  ", FAINT),
        (f"{plan.texts:,} texts to embed, about {plan.tokens:,} tokens{price}", ""),
    ]
    if plan.too_long:
        yield [
            (
                (
                    f"      about {plan.too_long:,} chunks are longer than it reads, and cut until "
                    f"their documents are indexed again"
                ),
                WARN,
            )
        ]


def reembed_report(report: ReembedReport) -> Iterator[Line]:
    """What going over to another embedder came to."""
    yield [
        ("in use: ", ""),
        (report.after, NAME),
        (
            (
                f"  {report.chunks:,} chunks, {report.embedded:,} texts embedded in "
                f"{report.seconds:.1f} s"
            ),
            FAINT,
        ),
    ]
    if report.kept:
        yield [(f"kept to go back to: {', '.join(report.kept)}; --drop-old forgets that", FAINT)]
    if report.dropped:
        yield [(f"forgotten: {', '.join(report.dropped)}", FAINT)]


def checks(found: Sequence[Check]) -> Iterator[Line]:
    """What was looked at, whether it is well, and the cure where there is one."""
    width = max((cells(one.name) for one in found), default=0)
    for one in found:
        name = one.name + " " * (width - cells(one.name))
        yield [
            ("ok      " if one.ok else "not ok  ", GOOD if one.ok else BAD),
            (name, ""),
            (f"  {one.detail}", FAINT),
        ]
        if one.cure:
            yield [(f"        {' ' * width}  -> {one.cure}", FAINT if one.ok else WARN)]


def keys(found: Sequence[Key], now: datetime) -> Iterator[Line]:
    """Every key in a row, those that cannot be used any more as such."""
    rows: list[Line] = []
    for one in found:
        state = (
            "revoked" if one.revoked_at is not None else "valid" if one.is_valid(now) else "expired"
        )
        until = "" if one.expires_at is None else f"{one.expires_at:%Y-%m-%d}"
        rows.append(
            [
                (one.id, PATH),
                (one.role.value, ""),
                (state, "" if state == "valid" else WARN),
                (f"{one.created_at:%Y-%m-%d}", FAINT),
                (until, FAINT),
                (", ".join(one.projects), NAME),
                (one.name, ""),
            ]
        )
    return table(["id", "role", "state", "created", "expires", "projects", "name"], rows)


def table(
    head: Sequence[str], rows: Sequence[Line], *, right: Sequence[int] = ()
) -> Iterator[Line]:
    """Aligned columns; the last one is as long as it likes."""
    widths = [
        max(cells(clean(row[index][0])) for row in [[(name, "") for name in head], *rows])
        for index in range(len(head))
    ]
    for row in [[(name, "bold") for name in head], *rows]:
        line: Line = []
        for index, (text, style) in enumerate(row):
            fill = " " * (widths[index] - cells(clean(text)))
            line += [(fill, ""), (text, style)] if index in right else [(text, style), (fill, "")]
            line.append(("  ", ""))
        yield line


def cells(text: str) -> int:
    """How many columns a text takes; an East Asian character takes two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
