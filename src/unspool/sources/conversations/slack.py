"""A Slack export: one conversation for each channel and day."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from unspool.domain.conversations import AuthorKind, Conversation, Message
from unspool.sources.conversations.drafts import MAX_CHARS, MAX_MESSAGES, Binder, Shelf
from unspool.sources.conversations.opening import Export, Meter, StreamError
from unspool.sources.conversations.plain import when
from unspool.sources.conversations.streams import Item, elements
from unspool.sources.conversations.values import (
    author_name,
    clean,
    identity,
    moment,
    named,
    one_line,
    word,
)

Complaint = Callable[[str, str], None]  # the position, and why

_DAY = re.compile(r"(?P<root>(?:[^/]+/)*?)(?P<channel>[^/]+)/(?P<day>\d{4}-\d\d-\d\d)\.json")
_LISTS = ("channels.json", "groups.json", "mpims.json", "dms.json")
_MARKUP = re.compile(r"<([@#!]?)([^<>|]*)(?:\|([^<>]*))?>")
_COMING_AND_GOING = frozenset(
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
_DEEPEST = 12
_EARLIEST = datetime.min.replace(tzinfo=UTC)


class Day(NamedTuple):
    """The file of one day in one channel."""

    name: str
    channel: str
    day: str


def days(names: dict[str, int]) -> list[Day]:
    """The files of an export that hold messages, by channel and day.

    Names with tricks in them are none.
    """
    found = []
    for name in names:
        match = _DAY.fullmatch(name)
        if match and not {"..", ".", "__MACOSX"} & set(name.split("/")):
            found.append(Day(name, match["channel"], match["day"]))
    return sorted(found, key=lambda one: (one.channel, one.day, one.name))


def is_export(names: dict[str, int]) -> bool:
    """Whether files with these names are a Slack export."""
    bare = {name.rpartition("/")[2] for name in names}
    return bool(days(names)) or {"users.json", "channels.json"} <= bare


def read(
    export: Export, binder: Binder, meter: Meter, complain: Complaint
) -> Iterator[Conversation | None]:
    """The conversations in order of channel and day; None between them, so that complaints can
    be passed on.
    """
    directory = _Directory(export, meter, complain)
    for name in export.links():
        complain(name, "it is a link; links are not followed")
    yield None
    for day in days(export.names()):
        shelf = Shelf(binder)
        draft = shelf.draft(day.name)
        draft.id = f"{identity(day.channel)}/{day.day}"
        draft.title = f"{directory.title(day.channel)} {day.day}"
        draft.metadata = {
            "source": "slack",
            "channel": directory.title(day.channel).removeprefix("#"),
        }
        try:
            draft.created_at = moment(day.day)
        except ValueError:
            complain(day.name, f"{day.day} is no day that can be; kept without a time")
        messages: list[Message] = []
        chars = 0
        for item in _items(export, day.name, meter):
            position = f"{day.channel}/{day.day}.json record {item.number}"
            if item.reason:
                complain(position, item.reason)
            elif (
                message := _message(
                    item.value,
                    directory,
                    lambda _, reason, position=position: complain(position, reason),  # type: ignore[misc]
                )
            ) is not None:
                messages.append(message)
                chars += len(message.text)
            if len(messages) >= MAX_MESSAGES or chars > MAX_CHARS:
                yield from shelf.put(day.name, _in_order(messages))
                messages, chars = [], 0
            yield None
        yield from shelf.put(day.name, _in_order(messages))
        yield from shelf.close()


def _in_order(messages: list[Message]) -> list[Message]:
    """By time, so that the answers of a thread stand among what was said meanwhile; one without
    a time follows the one before it.
    """
    last = _EARLIEST
    keyed = []
    for message in messages:
        last = message.at or last
        keyed.append((last, message))
    return [message for _, message in sorted(keyed, key=lambda pair: pair[0])]


def _items(export: Export, name: str, meter: Meter) -> Iterator[Item]:
    try:
        with export.stream(name, meter) as stream:
            yield from elements(stream)
    except StreamError as error:
        yield Item(1, None, str(error))


class _Directory:
    """Names for the ids of users and channels."""

    def __init__(self, export: Export, meter: Meter, complain: Complaint) -> None:
        self.users: dict[str, str] = {}
        self.channels: dict[str, str] = {}
        self._members: dict[str, list[str]] = {}
        for name in sorted(export.names()):
            bare = name.rpartition("/")[2]
            if bare not in (*_LISTS, "users.json"):
                continue
            for item in _items(export, name, meter):
                if item.reason or not isinstance(item.value, dict):
                    complain(
                        f"{bare} record {item.number}",
                        item.reason or f"it is {named(item.value)}; an object was expected",
                    )
                elif bare == "users.json":
                    self._add_user(item.value)
                else:
                    self._add_channel(item.value)

    def _add_user(self, user: dict[str, Any]) -> None:
        if (
            name := _shown(user.get("profile"))
            or author_name(user.get("real_name"))
            or author_name(user.get("name"))
        ):
            self.users[str(user.get("id"))] = name

    def _add_channel(self, channel: dict[str, Any]) -> None:
        key = str(channel.get("id"))
        if name := one_line(channel.get("name")):
            self.channels[key] = name
        elif isinstance(channel.get("members"), list):
            self._members[key] = [str(member) for member in channel["members"]]

    def title(self, folder: str) -> str:
        """What a channel's folder is called: '#general', or who talks in it."""
        if folder in self._members:
            return (
                ", ".join(self.users.get(member, member) for member in self._members[folder])
                or folder
            )
        return f"#{one_line(self.channels.get(folder, folder))}"

    def readable(self, text: str) -> str:
        """A text with its mentions and links as people read them."""
        return html.unescape(_MARKUP.sub(self._replaced, text))

    def _replaced(self, match: re.Match[str]) -> str:
        sign, target, label = match[1], match[2], match[3] or ""
        if sign == "@":
            return "@" + (self.users.get(target) or label or target)
        if sign == "#":
            return "#" + (label or self.channels.get(target) or target)
        if sign == "!":
            return label if label else "@" + target.partition("^")[0]
        if not target:
            return match[0]
        bare = target.removeprefix("mailto:")
        return f"{label} ({target})" if label and label not in (target, bare) else bare


def _shown(profile: Any) -> str:
    if not isinstance(profile, dict):
        return ""
    return (
        author_name(profile.get("display_name"))
        or author_name(profile.get("real_name"))
        or author_name(profile.get("name"))
    )


def _message(record: Any, directory: _Directory, complain: Complaint) -> Message | None:
    if not isinstance(record, dict):
        complain("", f"it is {named(record)}; an object was expected")
        return None
    subtype = word(record.get("subtype"))
    if subtype in _COMING_AND_GOING or record.get("hidden"):
        return None
    text = record.get("text")
    if not isinstance(text, str | None):
        complain("", f"its text is {named(text)}; text was expected")
        return None
    text = directory.readable(text or "").strip() or _without_text(record, directory)
    if not text:
        return None
    user = record.get("user")
    author = directory.users.get(user, "") if isinstance(user, str) else ""
    author = (
        author
        or _shown(record.get("user_profile"))
        or author_name(record.get("username"))
        or _shown(record.get("bot_profile"))
        or author_name(user)
    )
    is_bot = bool(record.get("bot_id")) or subtype == "bot_message"
    kind = (
        AuthorKind.ASSISTANT
        if is_bot
        else AuthorKind.SYSTEM
        if subtype.startswith(("channel_", "group_"))
        else AuthorKind.USER
    )
    return Message(
        text=clean(text),
        author=author,
        kind=kind,
        at=when(record.get("ts"), complain),
        id=identity(record.get("ts")),
    )


def _without_text(record: dict[str, Any], directory: _Directory) -> str:
    """What a message says that has no text of its own: its attachments, its blocks, or that
    there is a file.
    """
    attached = "\n".join(
        line for one in _dicts(record.get("attachments")) for line in _attached(one)
    )
    if attached:
        return directory.readable(attached).strip()
    words = " ".join(_words(record.get("blocks"), 0)).strip()
    if words:
        return directory.readable(words)
    for file in _dicts(record.get("files")):
        name = one_line(file.get("title")) or one_line(file.get("name"))
        return f"[file {name}]" if name else "[file]"
    return ""


def _attached(one: dict[str, Any]) -> list[str]:
    """The lines of an attachment.

    Its fallback is for programs that show nothing else, and often says only that.
    """
    fields = [
        f"{word(field.get('title'))}: {word(field.get('value'))}".strip(": ")
        for field in _dicts(one.get("fields"))
    ]
    lines = [
        *(word(one.get(name)).strip() for name in ("pretext", "title", "text")),
        *fields,
        " ".join(_words(one.get("blocks"), 0)).strip(),
    ]
    return [line for line in lines if line] or [
        line for line in [word(one.get("fallback")).strip()] if line
    ]


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _words(blocks: Any, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    for block in _dicts(blocks):
        text = block.get("text")
        if isinstance(text, str):
            yield text
        elif isinstance(text, dict):
            yield from _words([text], depth + 1)
        yield from _words(block.get("elements"), depth + 1)
