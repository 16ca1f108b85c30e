"""Settings: one frozen object with every value and its origin.

Argument > flag > `UNSPOOL_*` variable > `.env` > `unspool.toml` > default. The last two belong to a
folder, which may have come from somebody else: without the user's trust, a folder can only set the
fields marked `from_folder`. This is the only module that reads the environment. Below `corpus.py`
nobody sees `Settings`, functions receive the values they use.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

from unspool.errors import ConfigError
from unspool.settings.folders import (
    FolderSettings,
    IgnoredSetting,
    SettingRules,
    describe_ignored_settings,
    load_folder,
)
from unspool.settings.trust import TrustStore

PREFIX = "UNSPOOL_"
MASK = "***"
NO_FOLDER = Path(os.devnull)  # for `Settings.load`: read no settings files
_PASSWORD = re.compile(r"^([a-zA-Z][\w+.-]*://[^:/@]*):.*@", re.DOTALL)
_PASSWORD_OPTION = re.compile(
    r"([?&](?:sslpassword|password|api[-_]?key|key|token|sig|code)=)[^&]*", re.IGNORECASE
)


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


def locations(variables: Iterable[str]) -> dict[str, str]:
    """Of the variables with which the system and other programs say where their files are, those
    that are set.
    """
    return {name: os.environ[name] for name in variables if os.environ.get(name)}


@contextmanager
def export_settings(settings: Settings) -> Iterator[None]:
    """Put every setting that was given into the environment, so that processes started meanwhile
    use the same ones.

    They need not read the folder again, whose files may have changed.
    """
    given = {
        variable(name): getattr(settings, name)
        for name, origin in settings.origins.items()
        if origin not in ("default", "environment")
    }
    before = {name: os.environ.get(name) for name in given}
    os.environ.update({name: "" if value is None else str(value) for name, value in given.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _setting(
    default: Any,
    about: str,
    *,
    low: float | None = None,
    high: float | None = None,
    secret: bool = False,
    choices: tuple[str, ...] = (),
    from_folder: bool = False,
) -> Any:
    """Declare a setting.

    `from_folder` marks a harmless one: no value of it can send, reveal or delete anything or use up
    the machine.
    """
    facts = {
        "about": about,
        "low": low,
        "high": high,
        "secret": secret,
        "choices": choices,
        "from_folder": from_folder,
    }
    return field(default=default, metadata=facts)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings:
    """Every setting; field `max_tokens` is the flag `--max-tokens` and the variable
    `UNSPOOL_MAX_TOKENS`.
    """

    database: str = _setting(
        "", "address of the catalog; empty means sqlite in the user's data folder"
    )
    vectors: str = _setting(
        "", "address of the vector index; empty means inside the catalog's database"
    )
    database_read: str = _setting(
        "", "address of a read replica that searches go to; their continuations carry the ranking"
    )
    embedder: str = _setting("static", "who turns text into vectors, as provider[:model]")
    embedder_url: str = _setting(
        "",
        "address of the server that embeds, such as http://localhost:11434/v1; empty means the "
        "provider's own",
    )
    embedder_key: str = _setting("", "the key for that server", secret=True)
    embedder_revision: str = _setting(
        "", "a word of your own that tells this model from an earlier one of the same name"
    )
    embedder_dimension: int = _setting(
        0, "how many numbers a vector has; 0 means as many as the model gives", low=0, high=16_000
    )
    embedder_max_tokens: int = _setting(
        0,
        "how many tokens of a text the model reads; 0 means what is known of it",
        low=0,
        high=1_000_000,
    )
    embedder_over_limit: str = _setting(
        "cut",
        "what becomes of a text that is longer: its end is cut off, or it is refused",
        choices=("cut", "refuse"),
    )
    embedder_query_prefix: str = _setting(
        "", "what is put in front of a query; empty means what the model is known to want"
    )
    embedder_passage_prefix: str = _setting(
        "", "what is put in front of a passage; empty means what the model is known to want"
    )
    embedder_batch: int = _setting(
        0, "texts in one call; 0 means what suits the provider", low=0, high=10_000
    )
    embedder_concurrency: int = _setting(4, "calls to a server at once", low=1, high=256)
    embedder_timeout_s: int = _setting(
        60, "how long to wait for an answer of that server, in seconds", low=1, high=3_600
    )
    embedder_retries: int = _setting(
        5,
        "how often a call is repeated that failed for want of time, network or quota",
        low=0,
        high=100,
    )
    embedder_requests_per_minute: int = _setting(
        0, "calls that the server allows; 0 means no bound", low=0, high=10_000_000
    )
    embedder_tokens_per_minute: int = _setting(
        0, "tokens that the server allows; 0 means no bound", low=0, high=2_000_000_000
    )
    answer_model: str = _setting(
        "",
        "who answers questions, as provider:model, such as openai:gpt-5-mini; empty means nobody",
    )
    answer_url: str = _setting(
        "",
        "address of the server that answers, such as http://localhost:11434/v1; empty means the "
        "provider's own",
    )
    answer_key: str = _setting("", "the key for that server", secret=True)
    answer_context_tokens: int = _setting(
        6_000,
        "tokens of all that the model is shown for an answer, instructions included",
        low=1_000,
        high=2_000_000,
    )
    answer_max_tokens: int = _setting(
        1_024, "tokens that an answer may have", low=1, high=1_000_000
    )
    answer_timeout_s: int = _setting(
        120,
        "how long an answer may take from the call to its last word, in seconds",
        low=1,
        high=3_600,
    )
    answer_retries: int = _setting(
        2,
        "how often a call is repeated that failed before anything of the answer came",
        low=0,
        high=100,
    )
    cache: str = _setting(
        "",
        "redis://... keeps embeddings for other catalogs and machines, too; empty means in the "
        "catalog alone",
    )
    cache_s: int = _setting(
        30 * 86_400, "how long they are kept there, in seconds", low=1, high=10 * 365 * 86_400
    )
    project: str = _setting("", "the project that is meant when a command names none")
    limit: int = _setting(10, "how many hits a page holds", low=1, high=1000, from_folder=True)
    max_tokens: int = _setting(
        0, "token budget of a page; 0 means no budget", low=0, high=10_000_000, from_folder=True
    )
    max_total_tokens: int = _setting(
        0,
        "token budget of all pages of a search together; 0 means no budget",
        low=0,
        high=2_000_000,
        from_folder=True,
    )
    alpha: float | None = _setting(
        None,
        "share of meaning, 0 (words only) to 1 (meaning only); unset, the engine chooses",
        low=0,
        high=1,
        from_folder=True,
    )
    window: int = _setting(
        200,
        "how many candidates the first page ranks, and fixes the order of for later pages; 0 "
        "means no later pages",
        low=0,
        high=10_000,
        from_folder=True,
    )
    prefetch: str = _setting(
        "on",
        "on: when a page leaves too few ranked hits for the next, more are ranked while it is read",
        choices=("on", "off"),
        from_folder=True,
    )
    continuation_s: int = _setting(
        86_400, "how long a continuation can be used, in seconds", low=1, high=10 * 365 * 86_400
    )
    continuations: str = _setting(
        "stored",
        "stored: short, the ranking is kept beside the catalog; signed: long, they carry it",
        choices=("stored", "signed"),
    )
    continuation_key: str = _setting(
        "",
        "what signs continuations that carry their ranking; empty means the catalog's own key",
        secret=True,
    )
    query_cache_size: int = _setting(
        1_000, "vectors of queries kept in memory", low=0, high=1_000_000
    )
    query_cache_s: int = _setting(
        3_600, "how long they are kept, in seconds", low=1, high=10 * 365 * 86_400
    )
    pool_size: int = _setting(
        8,
        "connections to a database server that are kept open, and searches that run at once there",
        low=1,
        high=1_000,
    )
    pool_overflow: int = _setting(
        24, "connections beyond those, closed after use", low=0, high=1_000
    )
    pool_timeout_s: int = _setting(
        30, "how long to wait for a free connection, in seconds", low=1, high=3_600
    )
    pool_recycle_s: int = _setting(
        1_800, "connections older than this are made anew, in seconds", low=1, high=7 * 86_400
    )
    pool_pre_ping: str = _setting(
        "on",
        "on: a connection is tried before it is used, so that a restarted server is not noticed",
        choices=("on", "off"),
    )
    connect_timeout_s: int = _setting(
        10, "how long to wait for a database server to answer, in seconds", low=1, high=600
    )
    statement_timeout_s: int = _setting(
        60,
        "how long a single statement may take, in seconds; building an index may take longer",
        low=1,
        high=86_400,
    )
    vector_metric: str = _setting(
        "cosine", "how vectors are compared", choices=("cosine", "l2", "ip")
    )
    vector_index: str = _setting(
        "hnsw",
        "index over vectors on a server; exact: none, every vector is compared",
        choices=("hnsw", "ivfflat", "exact"),
    )
    vector_type: str = _setting(
        "auto",
        "how vectors are kept on a server; auto: halfvec above 2000 dimensions",
        choices=("auto", "vector", "halfvec"),
    )
    hnsw_m: int = _setting(16, "links per vector of an HNSW index", low=2, high=100)
    hnsw_ef_construction: int = _setting(
        64, "candidates per vector while an HNSW index is built", low=4, high=1_000
    )
    ivfflat_lists: int = _setting(
        0, "lists of an IVFFlat index; 0 means chosen by the number of vectors", low=0, high=32_768
    )
    exact_below: int = _setting(
        0,
        "up to this many vectors are compared one by one; 0 means the measured bound",
        low=0,
        high=10_000_000,
    )
    max_scan_tuples: int = _setting(
        20_000, "how many vectors a filtered search by index may look at", low=1, high=2_000_000_000
    )
    chunk_tokens: int = _setting(
        320, "preferred size of a chunk in tokens", low=32, high=8192, from_folder=True
    )
    max_file_bytes: int = _setting(2_000_000, "larger files are skipped", low=1, high=2**40)
    jobs: int = _setting(
        0, "processes that read and chunk while indexing; 0 means one per core", low=0, high=256
    )
    history_max_records: int = _setting(
        0,
        "records that a stream of responses keeps, the newest; 0 means no bound",
        low=0,
        high=10**12,
    )
    history_max_age_s: int = _setting(
        0, "how long they are kept, in seconds; 0 means no bound", low=0, high=100 * 365 * 86_400
    )
    serve_host: str = _setting(
        "127.0.0.1", "address that `serve` listens on; any but the loopback needs keys"
    )
    serve_port: int = _setting(8765, "its port; 0 means any free one", low=0, high=65_535)
    serve_workers: int = _setting(1, "processes that answer requests", low=1, high=64)
    serve_hosts: str = _setting(
        "", "names that the service is called by, besides its own address; separated by commas"
    )
    serve_origins: str = _setting(
        "", "web pages that may call it, as https://host; separated by commas"
    )
    serve_max_body_bytes: int = _setting(
        10_000_000, "what a request may send", low=1_000, high=2**31
    )
    serve_timeout_s: int = _setting(
        30, "how long a request may take, in seconds; streams may take longer", low=1, high=3_600
    )
    serve_drain_s: int = _setting(
        10,
        "how long requests may take to end when the service is told to stop, in seconds",
        low=0,
        high=3_600,
    )
    serve_queue: int = _setting(
        256,
        "requests that a process works on or keeps waiting; more are refused",
        low=1,
        high=100_000,
    )
    rate_limit: int = _setting(
        600, "requests a minute that a key may make; 0 means no bound", low=0, high=10_000_000
    )
    roots: str = _setting(
        "", "folders of which the doors may index something, separated as in PATH; empty means none"
    )
    git_hosts: str = _setting(
        "",
        "hosts that the service may fetch repositories from, separated by commas; empty means "
        "none, * means any",
    )
    mcp_max_tokens: int = _setting(
        4_000,
        "token budget of what a tool answers to an agent",
        low=200,
        high=10_000,
        from_folder=True,
    )
    log_level: str = _setting(
        "info", "what the service writes to its log", choices=("debug", "info", "warning", "error")
    )
    log_format: str = _setting("text", "json: one object per line", choices=("text", "json"))
    slow_query_ms: int = _setting(
        1_000,
        "a search that takes longer is logged as a warning, in milliseconds",
        low=0,
        high=3_600_000,
    )
    traces: str = _setting(
        "", "where OpenTelemetry traces go, such as http://localhost:4318; empty means nowhere"
    )
    key: str = _setting("", "the key that a client shows to a service", secret=True)
    trust: str = _setting(
        "",
        "folders whose unspool.toml and .env count in full, as absolute paths, separated as in "
        "PATH",
    )
    debounce_ms: int = _setting(
        400,
        "how long `watch` waits for a burst of changes to end",
        low=10,
        high=600_000,
        from_folder=True,
    )

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
        own: list[tuple[str, Mapping[str, object]]] = [
            ("environment", _from_environment(os.environ if environment is None else environment)),
            ("flag", flags or {}),
            ("argument", arguments or {}),
        ]
        checked = [
            (
                origin,
                {
                    name: _check_value(name, value, origin)
                    for name, value in layer.items()
                    if value is not None
                },
            )
            for origin, layer in own
        ]
        trust = next((layer["trust"] for _, layer in reversed(checked) if "trust" in layer), "")
        found = _load_folder(folder, trust=trust, trust_folder=trust_folder)
        values: dict[str, Any] = {}
        origins: dict[str, str] = dict.fromkeys(names(), "default")
        for origin, layer in (*found.layers, *checked):
            values |= layer
            origins |= dict.fromkeys(layer, origin)
        if found.ignored:
            (notify or _warn)(describe_ignored_settings(found))
        return replace(
            cls(**values),
            origins=MappingProxyType(origins),
            ignored=found.ignored,
            folder=found.folder,
        )

    def with_arguments(self, arguments: Mapping[str, object]) -> Settings:
        """Return the same settings with these arguments on top."""
        given = {
            name: _check_value(name, value, "argument")
            for name, value in arguments.items()
            if value is not None
        }
        return replace(
            self,
            **given,
            origins=MappingProxyType({**self.origins, **dict.fromkeys(given, "argument")}),
        )

    def __repr__(self) -> str:
        """Return the settings that were given, without keys and passwords."""
        return f"Settings({', '.join(f'{name}={text!r}' for name, text, origin, _ in self.rows() if origin != 'default')})"  # noqa: E501

    @property
    def database_address(self) -> str:
        """Address of the catalog, with the default filled in."""
        return self.database or default_database()

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return name, value with secrets masked, origin and meaning of each setting."""
        rows = []
        for name, setting in _fields().items():
            value = self.database_address if name == "database" else getattr(self, name)
            rows.append(
                (name, mask_value(name, value), self.origins.get(name, "default"), setting["about"])
            )
        return rows


def names() -> list[str]:
    """Return the names of all settings, in the order in which they are shown."""
    return list(_fields())


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.upper()


def about(name: str) -> str:
    """Return the meaning of a setting, in one line."""
    return str(_fields()[name]["about"])


def choices(name: str) -> tuple[str, ...]:
    """Return the words that a setting may be; none if any text is valid."""
    return tuple(_fields()[name]["choices"])


def is_harmless(name: str) -> bool:
    """Return True if a folder that is not trusted can set this."""
    return bool(_fields()[name]["from_folder"])


def mask_value(name: str, value: object) -> str:
    """Return a setting's value as text that may be shown.

    The value of an unknown name may be a secret with a typing error.
    """
    facts = _fields().get(name)
    if value in (None, ""):
        return ""
    return MASK if facts is None or facts["secret"] else redact_address(str(value))


def setting_rules() -> SettingRules:
    """Return the facts that decide which settings a folder can set."""
    return SettingRules(
        harmless=frozenset(name for name in names() if is_harmless(name)),
        never=frozenset({"trust"}),
        variables={variable(name): name for name in names()},
        check=_check_value,
        mask=mask_value,
    )


def redact_address(address: str) -> str:
    """Return an address without its password; any other text unchanged."""
    return _PASSWORD_OPTION.sub(rf"\1{MASK}", _PASSWORD.sub(rf"\1:{MASK}@", address))


def _fields() -> dict[str, Mapping[str, Any]]:
    """Return the facts about every setting, by name."""
    return {one.name: one.metadata for one in fields(Settings) if one.metadata}


def _load_folder(folder: Path | None, *, trust: str, trust_folder: bool) -> FolderSettings:
    """Return the settings of a folder's files; none if the current folder was deleted."""
    try:
        here = (folder or Path.cwd()).resolve()
        listed = [Path(one).resolve() for one in _split_paths(trust)]
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        return FolderSettings(folder=NO_FOLDER)
    return load_folder(
        here,
        setting_rules(),
        is_trusted=trust_folder or here in listed,
        open_store=open_trust_store,
    )


def _split_paths(paths: str) -> list[str]:
    """Return the absolute paths of a list.

    A relative one would trust whatever folder happens to be the current one.
    """
    found = [one for one in paths.split(os.pathsep) if one]
    for one in found:
        if not Path(one).is_absolute():
            raise ConfigError(
                f"{variable('trust')} contains {one[:80]!r}; give absolute paths, separated by "
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


def _check_value(name: str, value: object, origin: str) -> Any:
    known = _fields()
    where = variable(name) if origin in ("environment", ".env") else f"{name} ({origin})"
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known settings: {', '.join(known)}"
        raise ConfigError(f"{where} is not a setting; {hint}")
    kind = get_type_hints(Settings)[name]
    low, high = known[name]["low"], known[name]["high"]
    if kind is str:
        choices = known[name]["choices"]
        if choices and value not in choices:
            raise ConfigError(f"{where} is {str(value)!r}; give {' or '.join(choices)}")
        if "\x00" in str(value):
            raise ConfigError(f"{where} contains a NUL character; remove it")
        return str(value)
    try:
        if isinstance(value, bool) or value == "":
            raise ValueError
        number = int(str(value)) if kind is int else float(str(value))
    except ValueError:
        raise ConfigError(
            f"{where} is {str(value)!r}; give a {'whole ' if kind is int else ''}number from "
            f"{low} to {high}"
        ) from None
    if not low <= number <= high:
        raise ConfigError(f"{where} is {value}; give a number from {low} to {high}")
    return number


def _from_environment(variables: Mapping[str, str | None]) -> dict[str, object]:
    """Return the settings of known `UNSPOOL_*` variables.

    `UNSPOOL_TEST_*` and the like belong to others.
    """
    known = {variable(name): name for name in names()}
    return {
        known[key]: value
        for key, value in variables.items()
        if key in known and value not in (None, "")
    }
