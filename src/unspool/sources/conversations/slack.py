"""Slack exports, with one conversation for each channel and day."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, NamedTuple

from unspool.domain.conversations import AuthorKind, Conversation, Message
from unspool.domain.reports import BadRecord
from unspool.sources.conversations import schema
from unspool.sources.conversations.building import MAX_CHARS, MAX_MESSAGES, ConversationMerger
from unspool.sources.conversations.opening import Export, StreamError
from unspool.sources.conversations.records import (
    ErrorLog,
    RecordError,
    clean_author,
    get_dict,
    get_text,
    join_line,
    list_dicts,
    name_type,
    parse_id,
)
from unspool.sources.conversations.streams import JsonItem, read_elements

_DAY = re.compile(r"(?P<root>(?:[^/]+/)*?)(?P<channel>[^/]+)/(?P<day>\d{4}-\d\d-\d\d)\.json")
_LISTS = ("users.json", "channels.json", "groups.json", "mpims.json", "dms.json")
_MARKUP = re.compile(r"<([@#!]?)([^<>|]*)(?:\|([^<>]*))?>")
_IGNORED = frozenset(
    {
        "channel_join",
        "channel_leave",
        "group_join",
        "group_leave",
        "bot_add",
        "bot_remove",
        "tombstone",
    }
)
_MAX_DEPTH = 12
_EARLIEST = datetime.min.replace(tzinfo=UTC)


class ChannelDay(NamedTuple):
    """File with the messages of one channel on one day."""

    channel: str
    day: str
    name: str


def list_days(export: Export) -> list[ChannelDay]:
    """List the files that contain messages, by channel and day.

    Names that lead out of the archive are ignored.
    """
    return sorted(
        ChannelDay(match["channel"], match["day"], name)
        for name in export.sizes
        if (match := _DAY.fullmatch(name)) and not {"..", ".", "__MACOSX"} & set(name.split("/"))
    )


def has_lists(export: Export) -> bool:
    """Return whether an export has the lists of users and channels of a workspace."""
    return {"users.json", "channels.json"} <= {name.rpartition("/")[2] for name in export.sizes}


def read_export(
    export: Export, merger: ConversationMerger, log: ErrorLog
) -> Iterator[Conversation | BadRecord]:
    """Yield the conversations by channel and day, and bad records between them."""
    names = _Names()
    for name in sorted(export.sizes):
        label = name.rpartition("/")[2]
        for item in _read_items(export, name) if label in _LISTS else ():
            with log.at(f"{label} record {item.number}"):
                names.add(label, item.get_record())
    for name in export.links:
        with log.at(name) as link_log:
            link_log.add("it is a link; links are not followed")
    yield from log.drain()
    for day in list_days(export):
        yield from _read_day(export, day, names, merger, log)


def _read_day(
    export: Export, day: ChannelDay, names: _Names, merger: ConversationMerger, log: ErrorLog
) -> Iterator[Conversation | BadRecord]:
    builder = merger.open_conversation(day.name)
    builder.id = f"{parse_id(day.channel)}/{day.day}"
    title = names.format_channel(day.channel)
    builder.title = f"{title} {day.day}"
    builder.metadata = {"source": "slack", "channel": title.removeprefix("#")}
    with log.at(day.name) as day_log:
        builder.created_at = day_log.parse_time(day.day)
    messages: list[Message] = []
    chars = 0
    for item in _read_items(export, day.name):
        with log.at(f"{day.channel}/{day.day}.json record {item.number}") as record_log:
            record = _convert_message(item.get_record(), names)
            found = schema.read_messages(builder, record, record_log)
            messages += found
            chars += sum(len(message.text) for message in found)
        if len(messages) >= MAX_MESSAGES or chars > MAX_CHARS:
            yield from merger.add_messages(day.name, _sort_messages(messages))
            messages, chars = [], 0
        yield from log.drain()
    yield from merger.add_messages(day.name, _sort_messages(messages))
    yield from merger.close()
    yield from log.drain()


def _read_items(export: Export, name: str) -> Iterator[JsonItem]:
    """Yield the records of a file. If it cannot be opened, the only item has the reason."""
    try:
        with export.open_text(name) as text:
            yield from read_elements(text)
    except StreamError as error:
        yield JsonItem(1, None, str(error))


def _sort_messages(messages: list[Message]) -> list[Message]:
    """Sort messages by time, so that the answers of a thread appear among the others.

    A message without a time follows the one before it.
    """
    last = _EARLIEST
    timed = []
    for message in messages:
        last = message.at or last
        timed.append((last, message))
    return [message for _, message in sorted(timed, key=itemgetter(0))]


class _Names:
    """Names of the users and channels by their ids."""

    def __init__(self) -> None:
        self.users: dict[str, str] = {}
        self._channels: dict[str, str] = {}
        self._members: dict[str, list[str]] = {}

    def add(self, label: str, record: dict[str, Any]) -> None:
        """Add a record of one of the lists."""
        key = str(record.get("id"))
        name = join_line(record.get("name"))
        if label == "users.json":
            self.users[key] = (
                _find_name(record.get("profile"))
                or clean_author(record.get("real_name"))
                or clean_author(record.get("name"))
            )
        elif name:
            self._channels[key] = name
        elif isinstance(record.get("members"), list):
            self._members[key] = [str(member) for member in record["members"]]

    def format_channel(self, folder: str) -> str:
        """Return the title of a channel: '#general', or the names of its members."""
        if folder in self._members:
            members = (self.users.get(one) or one for one in self._members[folder])
            return join_line(", ".join(members) or folder)
        return f"#{join_line(self._channels.get(folder, folder))}"

    def format_text(self, text: str) -> str:
        """Replace mentions and links in a text by readable ones."""
        return html.unescape(_MARKUP.sub(self._format_markup, text))

    def _format_markup(self, match: re.Match[str]) -> str:
        sign, target, label = match[1], match[2], match[3] or ""
        if sign == "@":
            return "@" + (self.users.get(target) or label or target)
        if sign == "#":
            return "#" + (label or self._channels.get(target) or target)
        if sign == "!":
            return label or "@" + target.partition("^")[0]
        if not target:
            return match[0]
        bare = target.removeprefix("mailto:")
        return f"{label} ({target})" if label and label not in (target, bare) else bare


def _find_name(profile: Any) -> str:
    fields = get_dict(profile)
    names = (clean_author(fields.get(key)) for key in ("display_name", "real_name", "name"))
    return next(filter(None, names), "")


def _convert_message(record: dict[str, Any], names: _Names) -> dict[str, Any]:
    """Convert a message to the documented schema. It is empty if there is nothing to show."""
    subtype, text = get_text(record.get("subtype")), record.get("text")
    if subtype in _IGNORED or record.get("hidden"):
        return {}
    if not isinstance(text, str | None):
        raise RecordError(f"its text is {name_type(text)}; text was expected")
    text = names.format_text(text or "").strip() or names.format_text(_join_attachments(record))
    kind = AuthorKind.USER
    if record.get("bot_id") or subtype == "bot_message":
        kind = AuthorKind.ASSISTANT
    elif subtype.startswith(("channel_", "group_")):
        kind = AuthorKind.SYSTEM
    return {
        "id": record.get("ts"),
        "role": kind,
        "author": names.users.get(get_text(record.get("user")))
        or _find_name(record.get("user_profile"))
        or clean_author(record.get("username"))
        or _find_name(record.get("bot_profile"))
        or clean_author(record.get("user")),
        "at": record.get("ts"),
        "content": [text.strip(), *map(_convert_file, list_dicts(record.get("files")))],
    }


def _convert_file(file: dict[str, Any]) -> dict[str, str]:
    name = join_line(file.get("title")) or join_line(file.get("name"))
    return {"type": "file", "file_name": name}


def _join_attachments(record: dict[str, Any]) -> str:
    """Return the text of a message's attachments, or else of its blocks."""
    attachments = list_dicts(record.get("attachments"))
    lines = [line for one in attachments for line in _list_lines(one)]
    return "\n".join(lines) or _join_words(record.get("blocks"))


def _list_lines(attachment: dict[str, Any]) -> list[str]:
    """List the lines of an attachment.

    The fallback is for programs that show nothing else, and often says only that.
    """
    lines = [get_text(attachment.get(key)).strip() for key in ("pretext", "title", "text")]
    for field in list_dicts(attachment.get("fields")):
        title, value = get_text(field.get("title")), get_text(field.get("value"))
        lines.append(f"{title}: {value}".strip(": "))
    lines.append(_join_words(attachment.get("blocks")))
    fallback = get_text(attachment.get("fallback")).strip()
    return list(filter(None, lines)) or list(filter(None, [fallback]))


def _join_words(blocks: Any) -> str:
    return " ".join(_list_words(blocks, 0)).strip()


def _list_words(blocks: Any, depth: int) -> Iterator[str]:
    for block in list_dicts(blocks) if depth <= _MAX_DEPTH else []:
        text = block.get("text")
        if isinstance(text, str):
            yield text
        yield from _list_words([text], depth + 1)
        yield from _list_words(block.get("elements"), depth + 1)
