"""One frozen object with every setting, and where each value came from.

Argument > flag > `UNSPOOL_*` variable > `.env` > `unspool.toml` > default. This is the only module that reads the environment
or a file of settings; below `corpus.py` nobody sees `Settings`, functions receive the values they use.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

from unspool.errors import ConfigError

PREFIX = "UNSPOOL_"
MASK = "***"
_PASSWORD = re.compile(r"^([a-zA-Z][\w+.-]*://[^:/@]*):.*@", re.DOTALL)
_PASSWORD_OPTION = re.compile(r"([?&](?:sslpassword|password|api[-_]?key|key|token|sig|code)=)[^&]*", re.IGNORECASE)


def default_database() -> str:
    """The embedded catalog in the user's data folder."""
    import platformdirs  # not at the top: it costs 20 ms that a caller with an address of his own need not pay

    return "sqlite:///" + (Path(platformdirs.user_data_dir("unspool", appauthor=False)) / "unspool.db").as_posix()


def locations(variables: Iterable[str]) -> dict[str, str]:
    """Of the variables with which the system and other programs say where their files are, those that are set."""
    return {name: os.environ[name] for name in variables if os.environ.get(name)}


@contextmanager
def handed_on(settings: Settings) -> Iterator[None]:
    """Processes that are started meanwhile load the same settings: what was given as a flag or an argument is in their environment."""
    given = {variable(name): getattr(settings, name) for name, origin in settings.origins.items() if origin in ("flag", "argument")}
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
    default: Any, about: str, *, low: float | None = None, high: float | None = None, secret: bool = False, choices: tuple[str, ...] = ()
) -> Any:
    return field(default=default, metadata={"about": about, "low": low, "high": high, "secret": secret, "choices": choices})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings:
    """Every setting; field `max_tokens` is the flag `--max-tokens` and the variable `UNSPOOL_MAX_TOKENS`."""

    database: str = _setting("", "address of the catalog; empty means sqlite in the user's data folder")
    vectors: str = _setting("", "address of the vector index; empty means inside the catalog's database")
    database_read: str = _setting("", "address of a read replica that searches go to; their continuations carry the ranking")
    embedder: str = _setting("static", "who turns text into vectors, as provider[:model]")
    embedder_url: str = _setting("", "address of the server that embeds, such as http://localhost:11434/v1; empty means the provider's own")
    embedder_key: str = _setting("", "the key for that server", secret=True)
    embedder_revision: str = _setting("", "a word of your own that tells this model from an earlier one of the same name")
    embedder_dimension: int = _setting(0, "how many numbers a vector has; 0 means as many as the model gives", low=0, high=16_000)
    embedder_max_tokens: int = _setting(0, "how many tokens of a text the model reads; 0 means what is known of it", low=0, high=1_000_000)
    embedder_over_limit: str = _setting(
        "cut", "what becomes of a text that is longer: its end is cut off, or it is refused", choices=("cut", "refuse")
    )
    embedder_query_prefix: str = _setting("", "what is put in front of a query; empty means what the model is known to want")
    embedder_passage_prefix: str = _setting("", "what is put in front of a passage; empty means what the model is known to want")
    embedder_batch: int = _setting(0, "texts in one call; 0 means what suits the provider", low=0, high=10_000)
    embedder_concurrency: int = _setting(4, "calls to a server at once", low=1, high=256)
    embedder_timeout_s: int = _setting(60, "how long to wait for an answer of that server, in seconds", low=1, high=3_600)
    embedder_retries: int = _setting(5, "how often a call is repeated that failed for want of time, network or quota", low=0, high=100)
    embedder_requests_per_minute: int = _setting(0, "calls that the server allows; 0 means no bound", low=0, high=10_000_000)
    embedder_tokens_per_minute: int = _setting(0, "tokens that the server allows; 0 means no bound", low=0, high=2_000_000_000)
    answer_model: str = _setting("", "who answers questions, as provider:model, such as openai:gpt-5-mini; empty means nobody")
    answer_url: str = _setting("", "address of the server that answers, such as http://localhost:11434/v1; empty means the provider's own")
    answer_key: str = _setting("", "the key for that server", secret=True)
    answer_context_tokens: int = _setting(
        6_000, "tokens of all that the model is shown for an answer, instructions included", low=1_000, high=2_000_000
    )
    answer_max_tokens: int = _setting(1_024, "tokens that an answer may have", low=1, high=1_000_000)
    answer_timeout_s: int = _setting(120, "how long an answer may take from the call to its last word, in seconds", low=1, high=3_600)
    answer_retries: int = _setting(2, "how often a call is repeated that failed before anything of the answer came", low=0, high=100)
    cache: str = _setting("", "redis://... keeps embeddings for other catalogs and machines, too; empty means in the catalog alone")
    cache_s: int = _setting(30 * 86_400, "how long they are kept there, in seconds", low=1, high=10 * 365 * 86_400)
    project: str = _setting("", "the project that is meant when a command names none")
    limit: int = _setting(10, "how many hits a page holds", low=1, high=1000)
    max_tokens: int = _setting(0, "token budget of a page; 0 means no budget", low=0, high=10_000_000)
    max_total_tokens: int = _setting(0, "token budget of all pages of a search together; 0 means no budget", low=0, high=2_000_000)
    alpha: float | None = _setting(None, "share of meaning, 0 (words only) to 1 (meaning only); unset, the engine chooses", low=0, high=1)
    window: int = _setting(
        200, "how many candidates the first page ranks, and fixes the order of for later pages; 0 means no later pages", low=0, high=10_000
    )
    prefetch: str = _setting("on", "on: when a page leaves too few ranked hits for the next, more are ranked while it is read", choices=("on", "off"))
    continuation_s: int = _setting(86_400, "how long a continuation can be used, in seconds", low=1, high=10 * 365 * 86_400)
    continuations: str = _setting(
        "stored", "stored: short, the ranking is kept beside the catalog; signed: long, they carry it", choices=("stored", "signed")
    )
    continuation_key: str = _setting("", "what signs continuations that carry their ranking; empty means the catalog's own key", secret=True)
    query_cache_size: int = _setting(1_000, "vectors of queries kept in memory", low=0, high=1_000_000)
    query_cache_s: int = _setting(3_600, "how long they are kept, in seconds", low=1, high=10 * 365 * 86_400)
    pool_size: int = _setting(8, "connections to a database server that are kept open, and searches that run at once there", low=1, high=1_000)
    pool_overflow: int = _setting(24, "connections beyond those, closed after use", low=0, high=1_000)
    pool_timeout_s: int = _setting(30, "how long to wait for a free connection, in seconds", low=1, high=3_600)
    pool_recycle_s: int = _setting(1_800, "connections older than this are made anew, in seconds", low=1, high=7 * 86_400)
    pool_pre_ping: str = _setting(
        "on", "on: a connection is tried before it is used, so that a restarted server is not noticed", choices=("on", "off")
    )
    connect_timeout_s: int = _setting(10, "how long to wait for a database server to answer, in seconds", low=1, high=600)
    statement_timeout_s: int = _setting(60, "how long a single statement may take, in seconds; building an index may take longer", low=1, high=86_400)
    vector_metric: str = _setting("cosine", "how vectors are compared", choices=("cosine", "l2", "ip"))
    vector_index: str = _setting(
        "hnsw", "index over vectors on a server; exact: none, every vector is compared", choices=("hnsw", "ivfflat", "exact")
    )
    vector_type: str = _setting(
        "auto", "how vectors are kept on a server; auto: halfvec above 2000 dimensions", choices=("auto", "vector", "halfvec")
    )
    hnsw_m: int = _setting(16, "links per vector of an HNSW index", low=2, high=100)
    hnsw_ef_construction: int = _setting(64, "candidates per vector while an HNSW index is built", low=4, high=1_000)
    ivfflat_lists: int = _setting(0, "lists of an IVFFlat index; 0 means chosen by the number of vectors", low=0, high=32_768)
    exact_below: int = _setting(0, "up to this many vectors are compared one by one; 0 means the measured bound", low=0, high=10_000_000)
    max_scan_tuples: int = _setting(20_000, "how many vectors a filtered search by index may look at", low=1, high=2_000_000_000)
    chunk_tokens: int = _setting(320, "preferred size of a chunk in tokens", low=32, high=8192)
    max_file_bytes: int = _setting(2_000_000, "larger files are skipped", low=1, high=2**40)
    jobs: int = _setting(0, "processes that read and chunk while indexing; 0 means one per core", low=0, high=256)
    history_max_records: int = _setting(0, "records that a stream of responses keeps, the newest; 0 means no bound", low=0, high=10**12)
    history_max_age_s: int = _setting(0, "how long they are kept, in seconds; 0 means no bound", low=0, high=100 * 365 * 86_400)
    serve_host: str = _setting("127.0.0.1", "address that `serve` listens on; any but the loopback needs keys")
    serve_port: int = _setting(8765, "its port; 0 means any free one", low=0, high=65_535)
    serve_workers: int = _setting(1, "processes that answer requests", low=1, high=64)
    serve_hosts: str = _setting("", "names that the service is called by, besides its own address; separated by commas")
    serve_origins: str = _setting("", "web pages that may call it, as https://host; separated by commas")
    serve_max_body_bytes: int = _setting(10_000_000, "what a request may send", low=1_000, high=2**31)
    serve_timeout_s: int = _setting(30, "how long a request may take, in seconds; streams may take longer", low=1, high=3_600)
    serve_drain_s: int = _setting(10, "how long requests may take to end when the service is told to stop, in seconds", low=0, high=3_600)
    serve_queue: int = _setting(256, "requests that a process works on or keeps waiting; more are refused", low=1, high=100_000)
    rate_limit: int = _setting(600, "requests a minute that a key may make; 0 means no bound", low=0, high=10_000_000)
    roots: str = _setting("", "folders of which the doors may index something, separated as in PATH; empty means none")
    git_hosts: str = _setting("", "hosts that the service may fetch repositories from, separated by commas; empty means none, * means any")
    mcp_max_tokens: int = _setting(4_000, "token budget of what a tool answers to an agent", low=200, high=10_000)
    log_level: str = _setting("info", "what the service writes to its log", choices=("debug", "info", "warning", "error"))
    log_format: str = _setting("text", "json: one object per line", choices=("text", "json"))
    slow_query_ms: int = _setting(1_000, "a search that takes longer is logged as a warning, in milliseconds", low=0, high=3_600_000)
    traces: str = _setting("", "where OpenTelemetry traces go, such as http://localhost:4318; empty means nowhere")
    key: str = _setting("", "the key that a client shows to a service", secret=True)
    debounce_ms: int = _setting(400, "how long `watch` waits for a burst of changes to end", low=10, high=600_000)

    origins: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(
        cls,
        *,
        arguments: Mapping[str, object] | None = None,
        flags: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> Settings:
        """Read every layer, check every value, and say in one message what is wrong with the first bad one."""
        folder = folder or Path.cwd()
        layers: list[tuple[str, Mapping[str, object]]] = [
            ("unspool.toml", _toml(folder / "unspool.toml")),
            (".env", _dotenv(folder / ".env")),
            ("environment", _from_environment(os.environ if environment is None else environment)),
            ("flag", flags or {}),
            ("argument", arguments or {}),
        ]
        values: dict[str, Any] = {}
        origins: dict[str, str] = dict.fromkeys(names(), "default")
        for origin, layer in layers:
            for name, value in layer.items():
                if value is not None:
                    values[name] = _checked(name, value, origin)
                    origins[name] = origin
        return replace(cls(**values), origins=MappingProxyType(origins))

    def with_arguments(self, arguments: Mapping[str, object]) -> Settings:
        """The same settings with those that are given as arguments on top."""
        given = {name: _checked(name, value, "argument") for name, value in arguments.items() if value is not None}
        return replace(self, **given, origins=MappingProxyType({**self.origins, **dict.fromkeys(given, "argument")}))

    def __repr__(self) -> str:
        """What was set, without keys and passwords."""
        return f"Settings({', '.join(f'{name}={text!r}' for name, text, origin, _ in self.shown() if origin != 'default')})"

    @property
    def database_address(self) -> str:
        """The catalog's address with the default filled in."""
        return self.database or default_database()

    def shown(self) -> list[tuple[str, str, str, str]]:
        """Name, value with secrets masked, origin and meaning of each setting, for people and `--json`."""
        rows = []
        for setting in _fields():
            value = self.database_address if setting.name == "database" else getattr(self, setting.name)
            text = MASK if setting.metadata["secret"] and value else redacted(str(value if value is not None else ""))
            rows.append((setting.name, text, self.origins.get(setting.name, "default"), setting.metadata["about"]))
        return rows


def names() -> list[str]:
    """The names of all settings, in the order in which they are shown."""
    return [setting.name for setting in _fields()]


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def about(name: str) -> str:
    """What a setting means, in one line."""
    return str(next(s.metadata["about"] for s in _fields() if s.name == name))


def choices(name: str) -> tuple[str, ...]:
    """The words that a setting may be; none where it is free."""
    return tuple(next(s.metadata["choices"] for s in _fields() if s.name == name))


def redacted(address: str) -> str:
    """An address without its password, whatever characters that holds; anything else as it is."""
    return _PASSWORD_OPTION.sub(rf"\1{MASK}", _PASSWORD.sub(rf"\1:{MASK}@", address))


def _fields() -> list[Any]:
    return [f for f in fields(Settings) if f.name != "origins"]


def _checked(name: str, value: object, origin: str) -> Any:
    known = {f.name: f for f in _fields()}
    where = variable(name) if origin in ("environment", ".env") else f"{name} ({origin})"
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known settings: {', '.join(known)}"
        raise ConfigError(f"{where} is not a setting; {hint}")
    kind = get_type_hints(Settings)[name]
    low, high = known[name].metadata["low"], known[name].metadata["high"]
    if kind is str:
        choices = known[name].metadata["choices"]
        if choices and value not in choices:
            raise ConfigError(f"{where} is {str(value)!r}; give {' or '.join(choices)}")
        return str(value)
    try:
        if isinstance(value, bool) or value == "":
            raise ValueError
        number = int(str(value)) if kind is int else float(str(value))
    except ValueError:
        raise ConfigError(f"{where} is {str(value)!r}; give a {'whole ' if kind is int else ''}number from {low} to {high}") from None
    if not low <= number <= high:
        raise ConfigError(f"{where} is {value}; give a number from {low} to {high}")
    return number


def _from_environment(variables: Mapping[str, str | None]) -> dict[str, object]:
    """Known `UNSPOOL_*` variables; `UNSPOOL_TEST_*` and the like belong to others and are left alone."""
    known = {variable(name): name for name in names()}
    return {known[key]: value for key, value in variables.items() if key in known and value not in (None, "")}


def _dotenv(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    from dotenv import dotenv_values

    try:
        return _from_environment(dotenv_values(path, interpolate=False))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); make it a readable UTF-8 file or remove it") from error


def _toml(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        return dict(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); correct it or remove it") from error
