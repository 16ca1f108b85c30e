"""Commands about settings: settings, and trust for the settings files of a folder."""

from __future__ import annotations

from pathlib import Path

import click

from unspool.errors import InputError, NotFoundError
from unspool.interfaces import terminal
from unspool.interfaces.cli.commands import (
    Flags,
    command,
    load_settings,
    note,
    show_result,
)
from unspool.settings import NO_FOLDER, Settings, open_trust_store
from unspool.settings.definitions import DEFINITIONS, mask_value
from unspool.settings.files import NAMES, compute_digest, read_files
from unspool.settings.folders import FolderSettings, accept_settings
from unspool.settings.trust import FolderState, ReviewedSetting, TrustedFolder

# by the address that a key is sent to
_KEYS = {"database": "key", "embedder_url": "embedder_key", "answer_url": "answer_key"}


@command(
    "settings",
    "Show every setting and its origin",
    examples=("unspool settings", "unspool settings --limit 5 --json"),
    takes=tuple(DEFINITIONS),
)
def show_settings(flags: Flags, as_json: bool) -> None:
    """Show every setting, its value and its origin: a flag, the environment, .env, unspool.toml or
    the default. Settings of a folder that is not trusted are listed below, with the reason why they
    are ignored.
    """
    loaded = load_settings(flags)
    names = ("name", "value", "origin", "about")
    show_result(
        {
            "settings": [dict(zip(names, row, strict=True)) for row in loaded.rows()],
            "ignored": loaded.ignored,
        },
        terminal.render_settings(loaded.rows(), loaded.ignored),
        as_json=as_json,
    )


@command(
    "trust",
    "Trust the settings files of a folder",
    examples=("unspool trust", "unspool trust --list"),
    takes=(),
)
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only show what the files set.")
@click.option("--revoke", is_flag=True, help="Stop trusting the folder.")
@click.option("--list", "show_list", is_flag=True, help="List the trusted folders.")
def trust(as_json: bool, folder: Path, dry_run: bool, revoke: bool, show_list: bool) -> None:
    """Show what unspool.toml and .env in FOLDER set, and let all of it count from now on. By
    default FOLDER is the current folder. If one of the files changes, the folder has to be trusted
    again.
    """
    if dry_run + revoke + show_list > 1:
        raise click.UsageError(
            "--dry-run, --revoke and --list exclude each other; give one of them"
        )
    if show_list:
        _list_folders(as_json)
        return
    try:
        folder = folder.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(
            f"{str(folder)[:200]!r} cannot be a folder ({error}); check the path"
        ) from error
    if revoke:
        _revoke(folder, as_json)
    else:
        _trust(folder, as_json, dry_run=dry_run)


def _trust(folder: Path, as_json: bool, *, dry_run: bool) -> None:
    files = read_files(folder, follow_links=True)
    if not any(file.content is not None or file.fault for file in files):
        raise NotFoundError(
            f"{folder} contains no {' and no '.join(NAMES)}; there is nothing to trust"
        )
    environment = Settings.load(folder=NO_FOLDER)
    reviewed = _review(accept_settings(folder, files), environment)
    if not dry_run:
        open_trust_store().add(folder, compute_digest(files))
    applied = {one.name: one.value for one in reviewed if one.state == "applies"}
    for address, key in _KEYS.items():
        if environment.get(key) and applied.get(address, "").startswith("http"):
            note(f"your {key} will be sent to the {address} that this folder names", kind="warning")
    label, state = ("not trusted: ", "would take effect") if dry_run else ("trusted: ", "in effect")
    count = terminal.pluralize(sum(one.state == "applies" for one in reviewed), "setting")
    line = [(label, ""), (str(folder), terminal.PATH), (f", {count} {state}", "")]
    show_result(
        {"folder": str(folder), "trusted": not dry_run, "settings": reviewed},
        [*terminal.render_reviewed_settings(reviewed), line],
        as_json=as_json,
    )


def _review(found: FolderSettings, environment: Settings) -> list[ReviewedSetting]:
    """Return the settings of the files, each with the layer that overrides it."""
    reviewed: list[ReviewedSetting] = []
    overriding = {
        name: origin for name, origin in environment.origins.items() if origin != "default"
    }
    for file, values in reversed(found.layers):
        for name, value in values.items():
            state = f"overridden by {overriding[name]}" if name in overriding else "applies"
            text = mask_value(name, DEFINITIONS[name].format(value))
            reviewed.append(ReviewedSetting(file=file, name=name, value=text, state=state))
        overriding = {**dict.fromkeys(values, file), **overriding}
    return reviewed


def _revoke(folder: Path, as_json: bool) -> None:
    if not open_trust_store().remove(folder):
        raise NotFoundError(
            f"{folder} is not trusted; `unspool trust --list` shows the folders that are"
        )
    result = {"folder": str(folder), "trusted": False, "settings": []}
    line = [("no longer trusted: ", ""), (str(folder), terminal.PATH)]
    show_result(result, [line], as_json=as_json)


def _list_folders(as_json: bool) -> None:
    folders = [(one, _find_state(one)) for one in open_trust_store().entries().values()]
    rows = [
        {"folder": one.folder, "state": state, "trusted_at": one.trusted_at}
        for one, state in folders
    ]
    show_result(
        {"folders": rows},
        terminal.render_trusted_folders(folders),
        as_json=as_json,
        nothing="" if folders else "no folder is trusted",
    )


def _find_state(entry: TrustedFolder) -> FolderState:
    folder = Path(entry.folder)
    if not folder.is_dir():
        return FolderState.MISSING
    is_same = compute_digest(read_files(folder, follow_links=True)) == entry.digest
    return FolderState.TRUSTED if is_same else FolderState.CHANGED
