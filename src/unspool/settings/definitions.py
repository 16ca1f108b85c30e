"""Definitions of all settings, from the option classes of the components.

A setting has one public name: `embedder_batch` is the flag `--embedder-batch`, the variable
`UNSPOOL_EMBEDDER_BATCH`, the key in `unspool.toml` and the attribute `settings.embedder.batch`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any, get_args, get_type_hints

from unspool.answering.options import AnswerOptions
from unspool.catalog.options import DatabaseOptions
from unspool.domain.history import Retention
from unspool.domain.options import option
from unspool.embedders.options import CacheOptions, EmbedderOptions
from unspool.errors import ConfigError
from unspool.index.options import VectorOptions
from unspool.indexing.options import IndexingOptions
from unspool.search.options import SearchOptions
from unspool.settings.masking import MASK, redact_address
from unspool.settings.options import ClientOptions, LogOptions, McpOptions, ServeOptions

PREFIX = "UNSPOOL_"
# in lists of settings; the others are in the order of the components
_SHOWN_FIRST, _SHOWN_LAST = ("database", "vectors", "database_read"), "debounce_ms"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SettingValues:
    """Values of all settings, by component.

    The public names of a component's options begin with its prefix.
    """

    embedder: EmbedderOptions = field(default=EmbedderOptions(), metadata={"prefix": "embedder_"})
    answer: AnswerOptions = field(default=AnswerOptions(), metadata={"prefix": "answer_"})
    cache: CacheOptions = field(default=CacheOptions())
    project: str = option("", "project of commands that name none")
    search: SearchOptions = field(default=SearchOptions())
    database: DatabaseOptions = field(default=DatabaseOptions())
    vectors: VectorOptions = field(default=VectorOptions())
    indexing: IndexingOptions = field(default=IndexingOptions())
    history: Retention = field(default=Retention(), metadata={"prefix": "history_"})
    serve: ServeOptions = field(default=ServeOptions(), metadata={"prefix": "serve_"})
    mcp: McpOptions = field(default=McpOptions(), metadata={"prefix": "mcp_"})
    log: LogOptions = field(default=LogOptions(), metadata={"prefix": "log_"})
    client: ClientOptions = field(default=ClientOptions())
    trust: str = option(
        "",
        "trusted folders, whose unspool.toml and .env count in full: absolute paths, separated "
        "as in PATH",
    )

    def get(self, name: str) -> Any:
        """Return the value of a setting by its public name."""
        one = DEFINITIONS[name]
        return getattr(getattr(self, one.component) if one.component else self, one.attribute)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingDefinition:
    """Names, type and valid values of one setting."""

    name: str
    variable: str
    component: str  # the attribute of `Settings`, empty for a setting of no component
    attribute: str
    kind: type
    about: str
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    is_secret: bool
    from_folder: bool

    def parse(self, value: object, origin: str) -> Any:
        """Return a value in the setting's type. Raise ConfigError if it is invalid."""
        where = self.variable if origin in ("environment", ".env") else f"{self.name} ({origin})"
        if self.choices and value not in self.choices:
            raise ConfigError(f"{where} is {str(value)!r}; give {' or '.join(self.choices)}")
        if self.kind is bool:
            return value == "on"
        if issubclass(self.kind, str):
            if "\x00" in str(value):
                raise ConfigError(f"{where} contains a NUL character; remove it")
            return self.kind(value)
        return self._parse_number(value, where)

    def _parse_number(self, value: object, where: str) -> float:
        span = f"number from {self.low} to {self.high}"
        try:
            if isinstance(value, bool) or value == "":
                raise ValueError
            number: float = self.kind(str(value))
        except ValueError:
            whole = "whole " if self.kind is int else ""
            raise ConfigError(f"{where} is {str(value)!r}; give a {whole}{span}") from None
        if self.low is None or self.high is None or not self.low <= number <= self.high:
            raise ConfigError(f"{where} is {value}; give a {span}")
        return number

    def format(self, value: object) -> str:
        """Return a value as it is written in variables and files."""
        if self.kind is bool:
            return "on" if value else "off"
        return "" if value is None else str(value)


def parse_values(values: Mapping[str, object], origin: str) -> dict[str, Any]:
    """Return the values of a layer in their types, without those that are None."""
    return {
        name: find_definition(name, origin).parse(value, origin)
        for name, value in values.items()
        if value is not None
    }


def find_definition(name: str, origin: str) -> SettingDefinition:
    """Return the definition of a setting. Raise ConfigError with the nearest name."""
    if name not in DEFINITIONS:
        near = difflib.get_close_matches(name, DEFINITIONS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known settings: {', '.join(DEFINITIONS)}"
        raise ConfigError(f"{name} ({origin}) is not a setting; {hint}")
    return DEFINITIONS[name]


def mask_value(name: str, value: object) -> str:
    """Return a value, or its text, as it may be shown.

    The value of an unknown name may be a secret with a typing error.
    """
    if value == "":
        return ""
    is_secret = name not in DEFINITIONS or DEFINITIONS[name].is_secret
    return MASK if is_secret else redact_address(str(value))


def _define_settings() -> dict[str, SettingDefinition]:
    """Return the definitions by name, in the order in which settings are shown."""
    defined = {one.name: one for one in _define_fields()}
    last = defined.pop(_SHOWN_LAST)
    return {name: defined[name] for name in (*_SHOWN_FIRST, *defined)} | {last.name: last}


def _define_fields() -> Iterator[SettingDefinition]:
    kinds = get_type_hints(SettingValues)
    for one in fields(SettingValues):
        options = kinds[one.name]
        if not is_dataclass(options):
            yield _define(one, options)
            continue
        prefix, hints = one.metadata.get("prefix", ""), get_type_hints(options)
        for inner in fields(options):
            yield _define(inner, hints[inner.name], component=one.name, prefix=prefix)


def _define(
    one: Field[Any], hint: Any, *, component: str = "", prefix: str = ""
) -> SettingDefinition:
    variable = one.metadata["variable"] or f"{PREFIX}{prefix}{one.name}".upper()
    kind = (get_args(hint) or (hint,))[0]  # of `float | None`: float
    return SettingDefinition(
        **{
            **one.metadata,
            "name": variable.removeprefix(PREFIX).lower(),
            "variable": variable,
            "component": component,
            "attribute": one.name,
            "kind": kind,
        }
    )


DEFINITIONS: Mapping[str, SettingDefinition] = _define_settings()
VARIABLES: Mapping[str, str] = {one.variable: one.name for one in DEFINITIONS.values()}
