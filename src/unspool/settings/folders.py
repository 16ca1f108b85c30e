"""Settings that the files of a folder contribute, and those that are ignored because the folder is
not trusted.

A folder may have come with somebody else's repository. Until the user trusts it, only harmless
settings count, and nothing in its files can stop a command. In a trusted folder every setting
counts and every fault is an error.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unspool.errors import ConfigError
from unspool.settings.definitions import DEFINITIONS, VARIABLES, mask_value, parse_values
from unspool.settings.files import DOTENV, SettingsFile, compute_digest, read_files
from unspool.settings.trust import TrustStore

NOT_TRUSTED = "the folder is not trusted"
CHANGED = "changed since the folder was trusted"
UNKNOWN = "not a setting"
NEVER_FROM_FOLDER = "counts only as a flag or a variable of your own"
_NEVER = "trust"  # does not count even in a trusted folder
_MAX_SHOWN = 20
_MAX_TEXT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredSetting:
    """Entry of a settings file that does not count.

    `name` is empty where the whole file is ignored.
    """

    file: str
    name: str
    value: str  # secrets masked
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSettings:
    """Settings of a folder's files: by file, in the order of their precedence, and the ignored
    ones.
    """

    folder: Path
    layers: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    ignored: tuple[IgnoredSetting, ...] = ()
    fault: str = ""  # of the list of trusted folders


@dataclass(frozen=True, slots=True)
class _FileEntry:
    file: str
    name: str
    value: object


def load_folder(
    folder: Path, *, is_trusted: bool, open_store: Callable[[], TrustStore]
) -> FolderSettings:
    """Return the settings of a folder.

    `is_trusted` is the user's word; otherwise the list of trusted folders decides.
    """
    files = read_files(folder, follow_links=is_trusted)
    if is_trusted:
        return accept_settings(folder, files)
    accepted = accept_settings(folder, files, distrust=NOT_TRUSTED)
    if not accepted.ignored:
        return accepted
    try:
        entry = open_store().find(folder)
    except ConfigError as error:
        return replace(accepted, fault=str(error))
    if entry is None:
        return accepted
    reviewed = read_files(folder, follow_links=True)
    if compute_digest(reviewed) == entry.digest:
        return accept_settings(folder, reviewed)
    return accept_settings(folder, files, distrust=CHANGED)


def accept_settings(
    folder: Path, files: tuple[SettingsFile, ...], *, distrust: str = ""
) -> FolderSettings:
    """Return the settings of a folder.

    In a trusted folder every setting counts, and every fault raises a ConfigError. `distrust` is
    the reason not to trust a folder: only its valid harmless settings count, the rest is ignored.
    """
    layers: list[tuple[str, Mapping[str, Any]]] = []
    ignored: list[IgnoredSetting] = []
    for file in files:
        values: dict[str, Any] = {}
        try:
            entries = list(_parse_entries(file))
        except ValueError as error:
            if not distrust:
                raise ConfigError(
                    f"{folder / file.name} cannot be read ({error}); correct it or remove it"
                ) from None
            ignored.append(
                IgnoredSetting(file=file.name, name="", value="", reason=_shorten(str(error)))
            )
            continue
        for one in entries:
            if reason := _find_reason(one, distrust):
                ignored.append(_ignore(one, reason))
                continue
            try:
                values |= parse_values({one.name: one.value}, file.name)
            except ConfigError as error:
                if not distrust:
                    raise
                ignored.append(_ignore(one, _shorten(str(error))))
        layers.append((file.name, values))
    return FolderSettings(folder=folder, layers=tuple(layers), ignored=tuple(ignored))


def _find_reason(entry: _FileEntry, distrust: str) -> str:
    """Return the reason to ignore an entry; '' if it counts."""
    if entry.name == _NEVER:
        return NEVER_FROM_FOLDER
    if distrust and entry.name not in DEFINITIONS:
        return UNKNOWN
    return distrust if distrust and not DEFINITIONS[entry.name].from_folder else ""


def describe_ignored_settings(settings: FolderSettings) -> str:
    """Return one line that names the ignored settings, the reasons and the cure."""
    command = f"unspool trust {_make_printable(shlex.quote(str(settings.folder)))}"
    cure = f"`unspool settings` shows them, `{command}` allows them"
    if all(one.reason == NEVER_FROM_FOLDER for one in settings.ignored):
        cure = "remove them from the file"
    return (
        f"settings of this folder are ignored: {summarize_ignored_settings(settings.ignored)}; "
        f"{settings.fault or cure}"
    )


def summarize_ignored_settings(ignored: Sequence[IgnoredSetting]) -> str:
    """Return the names of ignored settings, grouped by reason."""
    shown = ignored[:_MAX_SHOWN]
    parts = []
    for reason in dict.fromkeys(one.reason for one in shown):
        names = [one.name or one.file for one in shown if one.reason == reason]
        parts.append(f"{', '.join(names)} ({reason})")
    if len(ignored) > len(shown):
        parts.append(f"{len(ignored) - len(shown)} more")
    return ", ".join(parts)


def _parse_entries(file: SettingsFile) -> Iterator[_FileEntry]:
    """Yield the settings of a file. Variables of other programs are left out, as are empty ones."""
    for name, value in file.parse().items():
        if file.name != DOTENV:
            yield _FileEntry(file.name, name, value)
        elif name in VARIABLES and value:
            yield _FileEntry(file.name, VARIABLES[name], value)


def _ignore(entry: _FileEntry, reason: str) -> IgnoredSetting:
    return IgnoredSetting(
        file=entry.file,
        name=_shorten(entry.name),
        value=_shorten(mask_value(entry.name, entry.value)),
        reason=reason,
    )


def _shorten(text: str) -> str:
    """Return the beginning of a text that somebody else wrote, fit for a message."""
    return _make_printable(text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…")


def _make_printable(text: str) -> str:
    """Replace characters that a terminal would obey: controls, and signs that change the
    direction of text.
    """
    return (
        text
        if text.isprintable()
        else "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    )
