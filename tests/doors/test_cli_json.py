"""docs/json.md and the output say the same, key by key."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

import unspool
from unspool.interfaces.cli import main
from unspool.wire import encode

Cli = Callable[..., Result]
DOCUMENT = Path(__file__).parents[2] / "docs" / "json.md"


def documented(section: str) -> set[str]:
    """The keys of a section, with their `?` and `{}`."""
    text = DOCUMENT.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE))


def keys(value: object, wide: set[str], prefix: str = "") -> Iterator[str]:
    """Every key of an object as the document writes it; `wide` ones are not looked into."""
    if isinstance(value, list):
        for item in value:
            yield from keys(item, wide, prefix + "[]")
    elif isinstance(value, dict):
        for key, inner in value.items():
            name = f"{prefix}.{key}" if prefix else key
            yield name
            if name not in wide:
                yield from keys(inner, wide, name)


def compare(section: str, *objects: object) -> None:
    names = documented(section)
    wide = {name.removesuffix("{}").removesuffix("?") for name in names if name.endswith("{}")}
    plain = {name.removesuffix("{}").removesuffix("?") for name in names}
    assert {key for value in objects for key in keys(value, wide)} == plain


def test_pages_are_as_documented(cli: Cli, small: Path) -> None:
    explained = json.loads(cli("search", "open session", "--explain", "--json").stdout)
    plain = json.loads(cli("search", "open session", "--json").stdout)
    assert set(explained["hits"][0]) - set(plain["hits"][0]) == {"reason"}
    related = json.loads(cli("related", "session.py:1", "--json").stdout)
    assert set(keys(related, set())) <= set(keys(plain, set())) | {"insights.languages.go"}
    cli(
        "remember",
        "-",
        "--project",
        "said",
        input='{"id": "c", "messages": [{"text": "one"}, {"text": "walrus"}, {"text": "three"}]}',
    )
    said = json.loads(cli("search", "walrus", "--project", "said", "--limit", "1", "--json").stdout)
    with unspool.open() as corpus:  # what only programs ask for, over HTTP
        full = encode(corpus.search("open session", projects="small"), full=True)
    compare("search", explained, said, full)


def test_index_reports_are_as_documented(cli: Cli, folder: Path) -> None:
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nothing of the kind")
    (folder / "picture.bin").write_bytes(bytes(range(256)) * 20)
    (folder / "deploy.py").write_text('KEY = "AKIA' + 'Z7Q2WMX4PLK9VD3T"\n')
    compare("index", json.loads(cli("index", str(folder), "--skipped", "--json").stdout))


@pytest.mark.parametrize(
    "arguments",
    [
        ["documents"],
        ["status"],
        ["stores"],
        ["doctor"],
        ["repair"],
        ["move", "--to", "memory://there"],
        ["migrate"],
        ["forget", "--project", "small", "--all"],
    ],
)
def test_other_answers_are_as_documented(cli: Cli, small: Path, arguments: list[str]) -> None:
    result = cli(*arguments, "--json")
    assert result.exit_code == 0
    compare(arguments[0], *(json.loads(line) for line in result.stdout.splitlines()))


def test_histories_are_as_documented(cli: Cli) -> None:
    stored = cli("history", "jobs", "--append", "-", "--json", input="done")
    compare(
        "history",
        *(
            json.loads(result.stdout)
            for result in (stored, cli("history", "jobs", "--json"), cli("history", "--json"))
        ),
    )


def test_errors_are_as_documented(cli: Cli, small: Path) -> None:
    compare("error", json.loads(cli("search", "", "--json").stdout))


def test_evaluations_are_as_documented() -> None:
    from dataclasses import fields

    from unspool.evaluation import Evaluation

    assert {field.name for field in fields(Evaluation)} == documented("eval")


def test_every_command_has_a_section_or_is_named_in_one() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [
        name
        for name in main.commands
        if f"\n## {name}\n" not in text and f"`unspool {name}`" not in text
    ] == []


def test_a_page_is_one_line_and_the_same_each_time(cli: Cli, small: Path) -> None:
    first, second = (
        cli("search", "open session", "--json").stdout,
        cli("search", "open session", "--json").stdout,
    )
    assert first == second and first.count("\n") == 1 and first.endswith("}\n")
    modified = json.loads(first)["hits"][0]["modified"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00", modified)


def test_remembering_is_as_documented(cli: Cli, tmp_path: Path) -> None:
    said = {"messages": [{"text": "the key is AKIAIOSFODNN7EXAMPLQ"}]}
    (tmp_path / "c.jsonl").write_text(json.dumps(said) + "\nbroken\n")
    compare("remember", json.loads(cli("remember", str(tmp_path / "c.jsonl"), "--json").stdout))
