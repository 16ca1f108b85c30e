"""Documents and conversations as resources: listed in pages, read up to a number of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import mcp_types as types

from unspool.corpus import Corpus
from unspool.domain.documents import DocumentRecord, Kind, storable
from unspool.errors import InputError, NotFoundError
from unspool.interfaces.mcp.catalogue import MOST_TOKENS
from unspool.interfaces.mcp.excerpts import clip
from unspool.interfaces.mcp.places import (
    CONVERSATIONS,
    DOCUMENTS,
    SCHEME,
    Address,
    parse_address,
)

PAGE = 100
MAX_LINES = 5_000  # of a document, or messages of a conversation, that are read
MAX_TOKENS = MOST_TOKENS - 60  # of the text, without the remark that it was cut
TEMPLATES = types.ListResourceTemplatesResult(
    resource_templates=[
        types.ResourceTemplate(
            uri_template=f"{SCHEME}://{{project}}/{kind}/{{+{variable}}}",
            name=name,
            description=description,
        )
        for kind, variable, name, description in (
            (DOCUMENTS, "path", "document", "An indexed document"),
            (CONVERSATIONS, "id", "conversation", "The messages of a conversation"),
        )
    ]
)


def list_resources(
    corpus: Corpus, cursor: str | None, *, limit: int = PAGE
) -> types.ListResourcesResult:
    """Return resources by project and path.

    The cursor is the address of the last resource on the page before.
    """
    after = Address(project="", path="") if cursor is None else parse_address(cursor)
    if after is None or not storable(after.project) or not storable(after.path):
        raise InputError("this cursor was not given out here; list again without one")
    records = list(islice(_iterate_records(corpus, after, limit), limit + 1))
    found = [_describe_resource(record) for record in records[:limit]]
    next_cursor = found[-1].uri if len(records) > limit else None
    return types.ListResourcesResult(resources=found, next_cursor=next_cursor)


def read_resource(corpus: Corpus, uri: str) -> types.ReadResourceResult:
    """Return the beginning of a document, or the end of a conversation."""
    address = parse_address(uri)
    if address is None:
        raise NotFoundError(
            f"no resource {uri[:200]!r}; resources are called "
            f"{SCHEME}://PROJECT/{DOCUMENTS}/PATH or {SCHEME}://PROJECT/{CONVERSATIONS}/ID"
        )
    record = corpus.document(address.path, project=address.project)
    resource = _describe_resource(record)
    is_conversation = record.kind is Kind.CHAT
    if address.is_conversation != is_conversation:
        raise NotFoundError(f"no resource {uri[:200]!r}; it is called {resource.uri}")
    text = (_read_conversation if is_conversation else _read_document)(corpus, record)
    contents = types.TextResourceContents(uri=uri, mime_type=resource.mime_type, text=text)
    return types.ReadResourceResult(contents=[contents])


def _iterate_records(corpus: Corpus, start: Address, limit: int) -> Iterator[DocumentRecord]:
    """Yield the documents with text behind an address."""
    for project in sorted(name for name in corpus.projects() if name >= start.project):
        after = start.path if project == start.project else None
        while page := corpus.documents(project=project, after=after, limit=limit + 1):
            yield from (record for record in page if record.chunk_count)
            after = page[-1].path


def _describe_resource(record: DocumentRecord) -> types.Resource:
    is_conversation = record.kind is Kind.CHAT
    address = Address(project=record.project, path=record.path, is_conversation=is_conversation)
    return types.Resource(
        uri=str(address),
        name=record.path,
        title=record.title if record.title not in ("", record.path) else None,
        mime_type="text/markdown" if record.language == "markdown" else "text/plain",
        size=record.size_bytes,
    )


def _read_document(corpus: Corpus, record: DocumentRecord) -> str:
    _, passage = corpus.passage(record.path, project=record.project, last=MAX_LINES)
    text = clip(passage.text, corpus.count_tokens, MAX_TOKENS)
    if text == passage.text and passage.is_whole:
        return text
    shown = text.count("\n") + 1
    return (
        f"{text}\n[truncated: lines 1-{shown} of {passage.last_line} are shown; the tool `read` "
        f"gives the others]"
    )


def _read_conversation(corpus: Corpus, record: DocumentRecord) -> str:
    found = corpus.conversations.get(record.path, project=record.project, last=MAX_LINES)
    lines: list[str] = []
    room = MAX_TOKENS
    for message in reversed(found.messages if found else ()):
        time = f" ({message.at:%Y-%m-%d %H:%M} UTC)" if message.at else ""
        line = f"{message.speaker}{time}: {message.text}"
        room -= corpus.count_tokens(line) + 1
        if room < 0:
            # The newest message is cut, an older one is left out.
            lines += [] if lines else [clip(line, corpus.count_tokens, MAX_TOKENS)]
            lines.append("[truncated: earlier messages are missing; the tool `read` gives them]")
            break
        lines.append(line)
    return "\n".join(reversed(lines))
