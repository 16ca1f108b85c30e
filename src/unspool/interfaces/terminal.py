"""Results of commands, for people.

A result is an iterable of lines, and a line is a list of spans with a style. Without colour the
spans are joined, so a pipe gets the same layout as a terminal and rich is not imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TextIO

from unspool import (
    Check,
    DocumentRecord,
    HistoryEntry,
    HistoryPage,
    IndexReport,
    Key,
    Kind,
    Masked,
    MoveReport,
    ProjectStatus,
    ReembedPlan,
    ReembedReport,
    RememberReport,
    Status,
    StoreStatus,
    StreamStatus,
)
from unspool.interfaces.controls import clean, clean_lines
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
LEAST_AGREEMENT = 0.95  # of sampled searches; approximate indexes are above it
SHOWN = 20  # masked secrets and failures that are listed; the rest is counted
_STATUS_STYLES = {Status.INDEXED: GOOD, Status.FAILED: BAD}


def write_lines(lines: Iterable[Line], stream: TextIO, *, color: bool | None = None) -> None:
    """Write lines. If `color` is None, use colour if the stream is a terminal."""
    if color is False or (color is None and not stream.isatty()):
        for line in lines:
            write_text("".join(clean(text) for text, _ in line).rstrip() + "\n", stream)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(
        file=stream,
        force_terminal=color,
        color_system="standard" if color else "auto",
        no_color=False if color else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for line in lines:
        text = Text.assemble(*((clean(part), style) for part, style in line))
        text.rstrip()
        console.print(text, soft_wrap=True)


def write_text(text: str, stream: TextIO) -> None:
    """Write text, with replacements for characters that the encoding of the stream lacks."""
    encoding = stream.encoding or "utf-8"
    stream.write(clean_lines(text).encode(encoding, "replace").decode(encoding))


def render_index_report(report: IndexReport, *, with_skips: bool = False) -> Iterator[Line]:
    """Yield the counts of an indexing run, then masked secrets and failures."""
    yield [(report.project, NAME), (f"  {format_counts(report)}", "")]
    has_rate = report.chunks and report.seconds > 0
    rate = f" ({report.chunks / report.seconds:.0f}/s)" if has_rate else ""
    took = f"{pluralize(report.chunks, 'chunk')} in {report.seconds:.2f} s{rate}"
    yield [(f"  {took}, {report.embedded} of them embedded anew", "")]
    if report.busy:
        yield [(f"  {report.busy} left to another run that is at them", "")]
    if report.skipped:
        most_first = sorted(report.skipped.items(), key=lambda one: (-one[1], one[0]))
        reasons = ", ".join(f"{reason} {count}" for reason, count in most_first)
        yield [(f"  {sum(report.skipped.values())} skipped: {reasons}", FAINT)]
    for skip in report.skips if with_skips else ():
        detail = f"  {skip.detail}" if skip.detail else ""
        yield [(f"    {skip.path}", PATH), (f"  {skip.reason}", ""), (detail, FAINT)]
    yield from _render_secrets(report.masked)
    failures: list[Line] = [[(one.path, PATH), (f": {one.error}", "")] for one in report.failures]
    yield from _render_items(f"{len(failures)} failed", BAD, failures, len(failures))


def render_remember_report(report: RememberReport) -> Iterator[Line]:
    """Yield the counts of an import of conversations, then masked secrets and bad records."""
    counts = f"{report.added} added, {report.updated} updated, {report.unchanged} unchanged"
    yield [(report.project, NAME), (f"  {counts}", "")]
    parts = f"{pluralize(report.messages, 'message')} in {pluralize(report.chunks, 'chunk')}"
    took = f"{parts} in {report.seconds:.2f} s"
    yield [(f"  {took}, {report.embedded} of them embedded anew", "")]
    if report.duplicates:
        yield [(f"  {report.duplicates} were there twice", FAINT)]
    yield from _render_secrets(report.masked)
    bad: list[Line] = [
        [(one.source, PATH), (f" {one.position}", FAINT), (f": {one.reason}", "")]
        for one in report.bad
    ]
    title = f"{pluralize(report.bad_count, 'record')} could not be read"
    yield from _render_items(title, BAD, bad, report.bad_count)


def format_counts(report: IndexReport) -> str:
    """Return the numbers of changed documents in a few words."""
    names = ("added", "updated", "unchanged", "removed", *(("failed",) if report.failed else ()))
    return ", ".join(f"{getattr(report, name)} {name}" for name in names)


def _render_secrets(masked: Sequence[Masked]) -> Iterator[Line]:
    rows: list[Line] = [
        [(one.path, PATH), (f":{one.line}", FAINT), (f"  {one.kind}", "")] for one in masked
    ]
    return _render_items(f"{pluralize(len(rows), 'secret')} masked", WARN, rows, len(rows))


def _render_items(title: str, style: str, rows: Sequence[Line], count: int) -> Iterator[Line]:
    """Yield a title and the first rows; nothing for a count of 0."""
    if count:
        yield [(f"  {title}:", style)]
    yield from ([("    ", ""), *row] for row in islice(rows, SHOWN))
    if count > SHOWN:
        yield [(f"    and {count - SHOWN} more", FAINT)]


def render_documents(records: Iterable[DocumentRecord]) -> Iterator[Line]:
    """Return a table with a row for each document, and the error of a failed one."""
    return render_table(
        ["status", "chunks", "bytes", "language", "project", "path", ""],
        [
            [
                (record.status.value, _STATUS_STYLES.get(record.status, WARN)),
                (str(record.chunk_count), ""),
                (str(record.size_bytes), ""),
                (record.language or record.kind.value, FAINT),
                (record.project, NAME),
                (record.path, PATH),
                (record.error, BAD)
                if record.error
                else (record.title if record.kind is Kind.CHAT else "", FAINT),
            ]
            for record in records
        ],
        right=(1, 2),
    )


def render_status(
    projects: Sequence[ProjectStatus], *, catalog: str, size_bytes: int
) -> Iterator[Line]:
    """Yield the projects with their counts, the totals, and the place of the catalog."""
    if projects:
        head = ["project", "documents", "not indexed", "chunks", "waiting", "root"]
        yield from render_table(head, [_render_project(one) for one in projects], right=range(1, 5))
        yield []
    totals = [
        pluralize(len(projects), "project"),
        pluralize(sum(sum(one.documents.values()) for one in projects), "document"),
        pluralize(sum(one.chunks for one in projects), "chunk"),
    ]
    yield [(", ".join(totals), "")]
    yield [("catalog ", FAINT), (catalog, PATH), (f"  {size_bytes / 1e6:.1f} MB", FAINT)]


def _render_project(one: ProjectStatus) -> Line:
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


def render_stores(stores: Sequence[StoreStatus]) -> Iterator[Line]:
    """Yield a table of the stores, and below it the capabilities of each."""
    body: list[Line] = [
        [
            (one.name, NAME),
            ("yes" if one.in_use else "no", GOOD if one.in_use else FAINT),
            (one.driver or "-", ""),
            (one.server or "-", ""),
            (one.health or "-", GOOD if one.health == "ok" else WARN if one.health else FAINT),
            (", ".join(one.missing) or "-", FAINT),
        ]
        for one in stores
    ]
    header = ["store", "in use", "driver", "server", "health", "missing"]
    yield from render_table(header, body)
    for one in stores:
        if one.capabilities:
            yield []
            yield [(one.name, NAME)]
        for name, value in one.capabilities.items():
            text = ", ".join(value) if isinstance(value, list) else str(value)
            yield [(f"  {name} ", FAINT), (text or "-", "")]


def render_settings(
    rows: Iterable[tuple[str, str, str, str]], ignored: Sequence[IgnoredSetting]
) -> Iterator[Line]:
    """Yield a table of all settings, and one of those that are ignored."""
    yield from render_table(
        ["name", "value", "origin", "meaning"],
        [
            [
                (name, NAME),
                (value, ""),
                (origin, FAINT if origin == "default" else GOOD),
                (about, FAINT),
            ]
            for name, value, origin, about in rows
        ],
    )

    if ignored:
        yield []
        yield from render_table(
            ["ignored", "value", "file", "reason"],
            [
                [(one.name, NAME), (one.value, ""), (one.file, GOOD), (one.reason, WARN)]
                for one in ignored
            ],
        )


def render_reviewed_settings(reviewed: Iterable[ReviewedSetting]) -> Iterator[Line]:
    """Return a table of the settings of a folder's files."""
    return render_table(
        ["name", "file", "state", "value"],
        [
            [
                (one.name, NAME),
                (one.file, ""),
                (one.state, GOOD if one.state == "applies" else FAINT),
                (one.value, ""),
            ]
            for one in reviewed
        ],
    )


def render_trusted_folders(
    folders: Iterable[tuple[TrustedFolder, FolderState]],
) -> Iterator[Line]:
    """Return a table of the trusted folders."""
    return render_table(
        ["state", "since", "folder"],
        [
            [
                (str(state), GOOD if state == "trusted" else WARN),
                (_format_time(one.trusted_at), FAINT),
                (one.folder, PATH),
            ]
            for one, state in folders
        ],
    )


def render_history_page(page: HistoryPage) -> Iterator[Line]:
    """Yield each record with a header and its body, separated by a blank line."""
    for index, entry in enumerate(page.records):
        if index:
            yield []
        yield _render_header(entry)
        if entry.body:
            rows = entry.body.removesuffix("\n").split("\n")
            yield from ([("  ", ""), (row.removesuffix("\r"), "")] for row in rows)


def _render_header(entry: HistoryEntry) -> Line:
    return [
        (str(entry.number), NAME),
        (f"  {_format_time(entry.at)}", ""),
        (f"  {pluralize(entry.length, 'character')}", FAINT),
        ("  cut" if entry.is_truncated else "", WARN),
        ("  the same as the newer one" if entry.same_as_newer else "", WARN),
    ]


def render_streams(found: Iterable[StreamStatus]) -> Iterator[Line]:
    """Return a table with a row for each stream."""
    return render_table(
        ["records", "newest", "project", "stream"],
        [
            [
                (str(one.records), ""),
                (_format_time(one.newest), FAINT),
                (one.project, NAME),
                (one.stream, PATH),
            ]
            for one in found
        ],
        right=(0,),
    )


def _format_time(value: datetime | None) -> str:
    return "-" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def render_reembed_plan(plan: ReembedPlan) -> Iterator[Line]:
    """Yield the cost of the switch to another embedder."""
    yield [("from  ", FAINT), (plan.before or "nothing", "")]
    yield [("to    ", FAINT), (plan.after, NAME)]
    if plan.is_done:
        yield [("it is in use already", "")]
        return
    price = f", about ${plan.price:,.2f}" if plan.price else ", at no charge"
    cost = f"{plan.texts:,} texts to embed, about {plan.tokens:,} tokens"
    yield [("cost  ", FAINT), (cost if plan.price is None else cost + price, "")]
    if plan.too_long:
        about = f"      about {plan.too_long:,} chunks are longer than it reads, and cut until "
        yield [(f"{about}their documents are indexed again", WARN)]


def render_reembed_report(report: ReembedReport) -> Iterator[Line]:
    """Yield the result of the switch to another embedder."""
    work = (
        f"  {report.chunks:,} chunks, {report.embedded:,} texts embedded in {report.seconds:.1f} s"
    )
    yield [("in use: ", ""), (report.after, NAME), (work, FAINT)]
    if report.kept:
        kept = f"kept, to switch back: {', '.join(report.kept)}; --drop-old deletes the vectors"
        yield [(kept, FAINT)]
    if report.dropped:
        yield [(f"deleted: {', '.join(report.dropped)}", FAINT)]


def render_move_report(report: MoveReport) -> Iterator[Line]:
    """Yield the result of a move, and what is left to do."""
    counts = f"{pluralize(report.projects, 'project')}, {pluralize(report.chunks, 'chunk')}"
    work = f"  {report.copied:,} rows copied, " if report.copied else "  "
    yield [
        ("the target contains: ", ""),
        (counts, NAME),
        (f"{work}{report.seconds:.1f} s", FAINT),
    ]
    is_good = report.agreement >= LEAST_AGREEMENT
    text = f"sampled searches find {report.agreement:.1%} of the ten best chunks"
    yield [(text, GOOD if is_good else WARN)]
    yield [(f"to switch, set {report.setting} to the address you gave", FAINT)]


def render_checks(checks: Sequence[Check]) -> Iterator[Line]:
    """Yield the result of each check, and its cure if it has one."""
    width = max((count_cells(one.name) for one in checks), default=0)
    for one in checks:
        yield [
            ("ok      " if one.ok else "not ok  ", GOOD if one.ok else BAD),
            (one.name + " " * (width - count_cells(one.name)), ""),
            (f"  {one.detail}", FAINT),
        ]
        if one.cure:
            yield [(f"        {' ' * width}  -> {one.cure}", FAINT if one.ok else WARN)]


def render_keys(keys: Iterable[Key], now: datetime) -> Iterator[Line]:
    """Return a table with a row for each key."""
    rows: list[Line] = []
    for one in keys:
        is_revoked = one.revoked_at is not None
        state = "revoked" if is_revoked else "valid" if one.is_valid(now) else "expired"
        rows.append(
            [
                (one.id, PATH),
                (one.role.value, ""),
                (state, "" if state == "valid" else WARN),
                (f"{one.created_at:%Y-%m-%d}", FAINT),
                ("" if one.expires_at is None else f"{one.expires_at:%Y-%m-%d}", FAINT),
                (", ".join(one.projects), NAME),
                (one.name, ""),
            ]
        )
    return render_table(["id", "role", "state", "created", "expires", "projects", "name"], rows)


def render_table(
    head: Sequence[str], rows: Sequence[Line], *, right: Sequence[int] = ()
) -> Iterator[Line]:
    """Yield rows with aligned columns. The columns in `right` are aligned to the right."""
    lines = [[(name, "bold") for name in head], *rows]
    columns = zip(*lines, strict=True)
    widths = [max(count_cells(clean(text)) for text, _ in column) for column in columns]
    for row in lines:
        line: Line = []
        for index, (text, style) in enumerate(row):
            fill = " " * (widths[index] - count_cells(clean(text)))
            line += [(fill, ""), (text, style)] if index in right else [(text, style), (fill, "")]
            line.append(("  ", ""))
        yield line


def pluralize(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: 1 chunk, 2 chunks."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural or noun + 's'}"


def count_cells(text: str) -> int:
    """Return the number of columns that a text takes. An East Asian character takes two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
