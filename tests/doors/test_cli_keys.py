"""`unspool key`: made, listed, revoked; the text of a key is shown once and stored nowhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

import unspool
from unspool.domain import keys

Cli = Callable[..., Result]


def test_a_key_is_shown_once_and_nothing_that_is_stored_holds_it(
    cli: Cli, catalog_file: Path
) -> None:
    result = cli(
        "key", "create", "--project", "a", "--project", "b", "--role", "write", "--name", "the bot"
    )
    assert result.exit_code == 0
    text = result.stdout.strip()
    secret = text.rpartition("_")[2]
    assert keys.parse_id(text)
    listed = json.loads(cli("key", "list", "--json").stdout)
    assert [(one["role"], one["projects"], one["name"]) for one in listed["keys"]] == [
        ("write", ["a", "b"], "the bot")
    ]
    assert secret not in json.dumps(listed)
    for file in catalog_file.parent.rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes()


def test_a_revoked_key_stays_in_the_list_as_such(cli: Cli) -> None:
    made = json.loads(cli("key", "create", "--project", "*", "--role", "admin", "--json").stdout)
    assert made["key"].startswith(f"unspool_{made['id']}_")
    assert cli("key", "revoke", made["id"]).exit_code == 0
    assert json.loads(cli("key", "list", "--json").stdout)["keys"][0]["revoked_at"] is not None
    assert "revoked" in cli("key", "list").stdout


def test_mistakes_are_told(cli: Cli) -> None:
    assert cli("key", "list").exit_code == 1
    assert cli("key", "revoke", "0123456789ab").exit_code == 1
    assert cli("key", "create", "--role", "read").exit_code == 2
    assert cli("key", "create", "--project", "a,b").exit_code == 2
    assert cli("key", "create", "--project", "a", "--role", "root").exit_code == 2


def test_an_expired_key_is_none(tmp_path: Path) -> None:
    from datetime import UTC, datetime, timedelta

    with unspool.open(f"sqlite:///{tmp_path}/a.db") as corpus:
        key, text = corpus.keys.create(
            projects="a", expires_at=datetime.now(UTC) + timedelta(days=1)
        )
        assert corpus.keys.find(text) == key
        assert corpus.keys.find(text[:-1] + ("A" if text[-1] != "A" else "B")) is None
        assert not key.is_valid(datetime.now(UTC) + timedelta(days=2))
