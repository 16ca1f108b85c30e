"""Settings: one frozen object with every value and its origin.

Argument > flag > `UNSPOOL_*` variable > `.env` > `unspool.toml` > default. The last two belong to a
folder, which may have come from somebody else: without the user's trust, a folder can only set the
options marked `from_folder`. This is the only module that reads the environment. Below `corpus.py`
nobody sees `Settings`, components receive their options.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from unspool.errors import ConfigError
from unspool.settings.definitions import (
    DEFINITIONS,
    VARIABLES,
    SettingValues,
    mask_value,
    parse_values,
)
from unspool.settings.folders import (
    FolderSettings,
    IgnoredSetting,
    describe_ignored_settings,
    load_folder,
)
from unspool.settings.trust import TrustStore

NO_FOLDER = Path(os.devnull)  # for `Settings.load`: read no settings files


class UntrustedFolderWarning(UserWarning):
    """Settings of the current folder were ignored, because the folder is not trusted."""


def default_database() -> str:
    """Return the address of the embedded catalog in the user's data folder."""
    return "sqlite:///" + (_data_folder() / "unspool.db").as_posix()


def open_trust_store() -> TrustStore:
    """Return the user's list of trusted folders."""
    return TrustStore(_data_folder() / "trusted-folders.json")


def _data_folder() -> Path:
    """Return the user's data folder.

    A relative one would be in the current folder, which may be somebody else's.
    """
    # not at the top: it costs 20 ms that a caller with an address of his own need not pay
    import platformdirs

    try:
        folder = Path(platformdirs.user_data_dir("unspool", appauthor=False))
    # a user without a home folder; older versions return a path that begins with "~"
    except RuntimeError:
        folder = Path()
    if not folder.is_absolute():
        raise ConfigError(
            "you have no home folder for unspool's data; set HOME or XDG_DATA_HOME to an "
            "absolute path"
        )
    return folder


def read_locations(variables: Iterable[str]) -> dict[str, str]:
    """Return those variables that are set, with which other programs say where their files are."""
    return {name: os.environ[name] for name in variables if os.environ.get(name)}


def export_settings(settings: Settings) -> AbstractContextManager[None]:
    """Put every setting that was given into the environment, so that processes started meanwhile
    use the same ones.

    They need not read the folder again, whose files may have changed.
    """
    from unspool.processes import set_variables  # only servers pay for its import

    return set_variables(
        {
            DEFINITIONS[name].variable: DEFINITIONS[name].format(settings.get(name))
            for name, origin in settings.origins.items()
            if origin not in ("default", "environment")
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings(SettingValues):
    """Every setting by component, with the origin of each by its public name."""

    origins: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    ignored: tuple[IgnoredSetting, ...] = field(default=(), repr=False, compare=False)
    # where the ignored ones are
    folder: Path | None = field(default=None, repr=False, compare=False)

    @classmethod
    def load(
        cls,
        *,
        arguments: Mapping[str, object] | None = None,
        flags: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        trust_folder: bool = False,
        notify: Callable[[str], None] | None = None,
    ) -> Settings:
        """Read every layer and check every value. Raise ConfigError for the first invalid one.

        The files of `folder`, by default the current one, count in full if the user trusts the
        folder or `trust_folder` is set. Otherwise only harmless settings count, and `notify` gets
        one line about the rest. Without `notify` that line is an `UntrustedFolderWarning`.
        """
        given = os.environ if environment is None else environment
        own = [
            (origin, parse_values(layer or {}, origin))
            for origin, layer in (
                ("environment", _select_variables(given)),
                ("flag", flags),
                ("argument", arguments),
            )
        ]
        trust = next((layer["trust"] for _, layer in reversed(own) if "trust" in layer), "")
        found = _load_folder(folder, trust=trust, trust_folder=trust_folder)
        if found.ignored:
            (notify or _warn)(describe_ignored_settings(found))
        settings = cls(
            origins=dict.fromkeys(DEFINITIONS, "default"),
            ignored=found.ignored,
            folder=found.folder,
        )
        for origin, layer in (*found.layers, *own):
            settings = settings._add_layer(layer, origin)
        return settings

    @classmethod
    def of(cls, **arguments: object) -> Settings:
        """Return the defaults with these arguments on top, given by their public names."""
        return cls().with_arguments(arguments)

    def with_arguments(self, arguments: Mapping[str, object]) -> Settings:
        """Return the same settings with these arguments on top, given by their public names."""
        return self._add_layer(parse_values(arguments, "argument"), "argument")

    def _add_layer(self, layer: Mapping[str, Any], origin: str) -> Settings:
        changes: dict[str, dict[str, Any]] = {}
        for name, value in layer.items():
            one = DEFINITIONS[name]
            changes.setdefault(one.component, {})[one.attribute] = value
        own = changes.pop("", {})
        components = {
            component: replace(getattr(self, component), **values)
            for component, values in changes.items()
        }
        origins = MappingProxyType({**self.origins, **dict.fromkeys(layer, origin)})
        return replace(self, **own, **components, origins=origins)

    def __repr__(self) -> str:
        """Return the settings that were given, without keys and passwords."""
        given = (f"{name}={text!r}" for name, text, origin, _ in self.rows() if origin != "default")
        return f"Settings({', '.join(given)})"

    @property
    def database_address(self) -> str:
        """Address of the catalog, with the default filled in."""
        return self.database.address or default_database()

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return name, value with secrets masked, origin and meaning of each setting."""
        rows = []
        for name, one in DEFINITIONS.items():
            value = self.database_address if name == "database" else one.format(self.get(name))
            origin = self.origins.get(name, "default")
            rows.append((name, mask_value(name, value), origin, one.about))
        return rows


def _load_folder(folder: Path | None, *, trust: str, trust_folder: bool) -> FolderSettings:
    """Return the settings of a folder's files; none if the current folder was deleted."""
    try:
        here = (folder or Path.cwd()).resolve()
        listed = [Path(one).resolve() for one in _split_paths(trust)]
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        return FolderSettings(folder=NO_FOLDER)
    return load_folder(here, is_trusted=trust_folder or here in listed, open_store=open_trust_store)


def _split_paths(paths: str) -> list[str]:
    """Return the absolute paths of a list.

    A relative one would trust whatever folder happens to be the current one.
    """
    found = [one for one in paths.split(os.pathsep) if one]
    for one in found:
        if not Path(one).is_absolute():
            raise ConfigError(
                f"UNSPOOL_TRUST contains {one[:80]!r}; give absolute paths, separated by "
                f"{os.pathsep!r}"
            )
    return found


def _warn(message: str) -> None:
    """Warn the program that uses the library, at its own line."""
    level, frame = 1, sys._getframe()
    while (
        frame.f_back is not None
        and frame.f_globals.get("__name__", "").partition(".")[0] == "unspool"
    ):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UntrustedFolderWarning, stacklevel=level)


def _select_variables(variables: Mapping[str, str]) -> dict[str, object]:
    """Return the settings of known `UNSPOOL_*` variables.

    `UNSPOOL_TEST_*` and the like belong to others.
    """
    return {VARIABLES[key]: value for key, value in variables.items() if key in VARIABLES and value}
