"""Command that reviews and trusts the settings files of a folder: trust."""

from __future__ import annotations

from pathlib import Path

import click

from unspool.errors import InputError, NotFoundError
from unspool.interfaces import render, terminal
from unspool.interfaces.cli.door import command, note, print_json
from unspool.interfaces.cli.looking import show
from unspool.settings import NO_FOLDER, Settings, open_trust_store
from unspool.settings.definitions import DEFINITIONS, mask_value
from unspool.settings.files import NAMES, compute_digest, read_files
from unspool.settings.folders import FolderSettings, accept_all
from unspool.settings.trust import FolderState, ReviewedSetting, TrustedFolder

# by the address that a key is sent to
_KEYS = {"database": "key", "embedder_url": "embedder_key", "answer_url": "answer_key"}


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
    again."""
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
    found = accept_all(folder, files)
    environment = Settings.load(folder=NO_FOLDER)
    reviewed = _review(found, environment)
    if not dry_run:
        open_trust_store().add(folder, compute_digest(files))
    if as_json:
        print_json(render.trust(folder, reviewed, is_trusted=not dry_run))
        return
    show(terminal.reviewed_settings(reviewed))
    for address, key in _KEYS.items():
        if environment.get(key) and any(
            one.name == address and one.state == "applies" and one.value.startswith("http")
            for one in reviewed
        ):
            note(f"your {key} will be sent to the {address} that this folder names", kind="warning")
    count = sum(one.state == "applies" for one in reviewed)
    verb = "would apply" if dry_run else "apply"
    show(
        [
            [
                ("not trusted: " if dry_run else "trusted: ", ""),
                (str(folder), terminal.PATH),
                (f", {count} settings {verb}", ""),
            ]
        ]
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
    if as_json:
        print_json(render.trust(folder, [], is_trusted=False))
    else:
        show([[("no longer trusted: ", ""), (str(folder), terminal.PATH)]])


def _list_folders(as_json: bool) -> None:
    folders = [(one, _state(one)) for one in open_trust_store().entries().values()]
    if as_json:
        print_json(render.trusted_folders(folders))
    elif folders:
        show(terminal.trusted_folders(folders))
    else:
        note("no folder is trusted")


def _state(entry: TrustedFolder) -> FolderState:
    folder = Path(entry.folder)
    if not folder.is_dir():
        return FolderState.MISSING
    is_same = compute_digest(read_files(folder, follow_links=True)) == entry.digest
    return FolderState.TRUSTED if is_same else FolderState.CHANGED
