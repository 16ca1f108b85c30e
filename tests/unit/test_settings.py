"""Settings: which layer wins, and what is said about bad values."""

from __future__ import annotations

from pathlib import Path

import pytest

from unspool.errors import ConfigError
from unspool.settings import Settings
from unspool.settings.definitions import DEFINITIONS
from unspool.settings.masking import redact_address


def load(folder: Path, *, trust_folder: bool = False, **layers: dict) -> Settings:
    return Settings.load(folder=folder, trust_folder=trust_folder, **({"environment": {}} | layers))  # type: ignore[arg-type]


def test_each_layer_wins_over_the_ones_below(tmp_path: Path) -> None:
    layers: dict[str, dict] = {}
    expected = []

    def check(value: int, origin: str) -> None:
        loaded = load(tmp_path, **layers)
        expected.append((loaded.search.limit, loaded.origins["limit"]) == (value, origin))
        assert (loaded.search.limit, loaded.origins["limit"]) == (value, origin)

    check(10, "default")
    (tmp_path / "unspool.toml").write_text("limit = 11")
    check(11, "unspool.toml")
    (tmp_path / ".env").write_text("UNSPOOL_LIMIT=12\nOTHER=1\n")
    check(12, ".env")
    layers["environment"] = {"UNSPOOL_LIMIT": "13", "UNSPOOL_TEST_QDRANT": "x"}
    check(13, "environment")
    layers["flags"] = {"limit": 14}
    check(14, "flag")
    layers["arguments"] = {"limit": 15}
    check(15, "argument")
    assert len(expected) == 6


def test_what_is_not_given_does_not_hide_a_lower_layer(tmp_path: Path) -> None:
    (tmp_path / "unspool.toml").write_text("limit = 11\nalpha = 0.25")
    loaded = load(
        tmp_path,
        environment={"UNSPOOL_LIMIT": ""},
        flags={"limit": None},
        arguments={"alpha": None},
    )
    assert (loaded.search.limit, loaded.search.alpha) == (11, 0.25)


def test_arguments_on_top_keep_the_rest_and_its_origins(tmp_path: Path) -> None:
    base = load(tmp_path, environment={"UNSPOOL_LIMIT": "13"})
    changed = base.with_arguments({"alpha": 1, "database": None})
    assert (changed.search.limit, changed.search.alpha) == (13, 1.0)
    assert (changed.origins["limit"], changed.origins["alpha"], changed.origins["database"]) == (
        "environment",
        "argument",
        "default",
    )
    assert base.search.alpha is None


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_setting_can_be_given_in_the_environment(tmp_path: Path, name: str) -> None:
    special = {
        "alpha": "0.5",
        "debounce_ms": "50",
        "chunk_tokens": "64",
        "answer_context_tokens": "2000",
        "continuations": "signed",
        "fallback": "words",
        "prefetch": "off",
        "pool_pre_ping": "off",
        "embedder_over_limit": "refuse",
    }
    special |= {
        "log_level": "debug",
        "log_format": "json",
        "serve_max_body_bytes": "2000",
        "mcp_max_tokens": "300",
    }
    special |= {
        "trust": "/srv/app",
        "vector_metric": "l2",
        "vector_index": "ivfflat",
        "vector_type": "halfvec",
    }
    default = Settings().get(name)
    value = special.get(name) or ("7" if isinstance(default, int) else "sqlite:///x")
    loaded = load(tmp_path, environment={DEFINITIONS[name].variable: value})
    assert DEFINITIONS[name].format(loaded.get(name)) == value
    assert loaded.origins[name] == "environment"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LIMIT", "many"),
        ("LIMIT", "0"),
        ("LIMIT", "1001"),
        ("LIMIT", "1.5"),
        ("ALPHA", "2"),
        ("ALPHA", "-0.1"),
        ("ALPHA", "nan"),
        ("JOBS", "-1"),
        ("MAX_TOKENS", "1e3"),
    ],
)
def test_a_bad_value_names_its_variable_and_the_range(
    tmp_path: Path, name: str, value: str
) -> None:
    with pytest.raises(ConfigError, match=f"UNSPOOL_{name} is .*give a (whole )?number from"):
        load(tmp_path, environment={f"UNSPOOL_{name}": value})
    (tmp_path / ".env").write_text(f"UNSPOOL_{name}={value}\n")
    with pytest.raises(ConfigError, match=f"UNSPOOL_{name}"):
        load(tmp_path, trust_folder=True)


@pytest.mark.parametrize(
    "content", ["limit = true", 'limit = "x"', "limit = [1]", "limit = 1.5", "limit ="]
)
def test_a_bad_value_in_the_file_names_the_file_or_the_setting(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "unspool.toml").write_text(content)
    with pytest.raises(ConfigError, match=r"limit.*unspool\.toml|unspool\.toml.*cannot be read"):
        load(tmp_path, trust_folder=True)


def test_an_unknown_key_in_the_file_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "unspool.toml").write_text("limt = 5")
    with pytest.raises(ConfigError, match="'limit'"):
        load(tmp_path, trust_folder=True)
    (tmp_path / "unspool.toml").write_text("zzzzzz = 5")
    with pytest.raises(ConfigError, match=r"known settings: .*database"):
        load(tmp_path, trust_folder=True)


@pytest.mark.parametrize("file", ["unspool.toml", ".env"])
def test_a_file_of_settings_that_is_not_text_is_a_clear_error(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_bytes(b"UNSPOOL_LIMIT=\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path, trust_folder=True)


def test_an_unknown_argument_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a setting"):
        load(tmp_path, arguments={"limits": 5})
    with pytest.raises(ConfigError, match="is not a setting"):
        load(tmp_path).with_arguments({"limits": 5})


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://me:hunter2@db:5432/app?table=x", "postgresql://me:***@db:5432/app?table=x"),
        ("postgresql://me:hun@ter2@db/app", "postgresql://me:***@db/app"),
        ("postgresql://:hunter2@db/app", "postgresql://:***@db/app"),
        ("postgresql://me@db/app", "postgresql://me@db/app"),
        ("sqlite:///home/me@work/x.db", "sqlite:///home/me@work/x.db"),
        ("sqlite:///x.db", "sqlite:///x.db"),
        ("static", "static"),
        ("", ""),
    ],
)
def test_an_address_is_shown_without_its_password(address: str, shown: str) -> None:
    assert redact_address(address) == shown


@pytest.mark.parametrize(
    "password",
    ["hunter2", "hun/ter2", "hun#ter2", "hun?ter2", "hun:ter2", "h@nter2", "[hunter2", "hunter2]"],
)
def test_no_password_is_ever_shown_however_it_is_written(tmp_path: Path, password: str) -> None:
    loaded = load(tmp_path, environment={"UNSPOOL_DATABASE": f"postgresql://me:{password}@db/app"})
    value = next(text for name, text, _, _ in loaded.rows() if name == "database")
    assert password not in value
    assert "nter2" not in value


def test_every_setting_is_shown_once_with_its_origin_and_meaning(tmp_path: Path) -> None:
    rows = load(tmp_path, flags={"limit": 3}).rows()
    assert [row[0] for row in rows] == list(DEFINITIONS)
    assert all(about for _, _, _, about in rows)
    assert ("limit", "3", "flag") in [row[:3] for row in rows]
    assert next(text for name, text, _, _ in rows if name == "database").startswith("sqlite:///")


def test_secrets_are_not_in_the_representation() -> None:
    settings = Settings.load(
        arguments={"embedder_key": "sk-secret", "continuation_key": "signing"},
        environment={},
        folder=Path("/nowhere"),
    )
    assert "sk-secret" not in repr(settings)
    assert "signing" not in repr(settings)
    assert "sk-secret" not in repr(settings.embedder)
    assert "signing" not in repr(settings.search)


def test_passwords_in_addresses_are_not_in_the_representation_of_options() -> None:
    address = "postgresql://me:hunter2@db/app"
    settings = Settings.of(database=address, database_read=address, cache="redis://:hunter2@h/0")
    assert settings.database.address == address
    assert "hunter2" not in repr((settings.database, settings.cache))


def test_public_names_are_grouped_by_component() -> None:
    settings = Settings.of(embedder_batch=3, cache_s=7, pool_pre_ping="off", key="k", project="p")
    assert (settings.embedder.batch, settings.cache.lifetime_s) == (3, 7)
    assert (settings.database.pool_pre_ping, settings.client.key) == (False, "k")
    assert settings.project == settings.get("project") == "p"
    assert settings.origins["cache_s"] == "argument"
    with pytest.raises(ConfigError, match="embedder_batch"):
        Settings.of(embedder_batch=-1)


def test_on_and_off_are_shown_as_they_are_given() -> None:
    rows = {name: text for name, text, _, _ in Settings.of(prefetch="off").rows()}
    assert (rows["prefetch"], rows["pool_pre_ping"]) == ("off", "on")
    with pytest.raises(ConfigError, match="give on or off"):
        Settings.of(prefetch=True)
