"""`unspool search` and `unspool related`, for people."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import unspool
from unspool.interfaces import terminal
from unspool.interfaces.cli.conditions import parse_condition

Cli = Callable[..., Result]


def test_a_search_shows_place_symbol_and_numbered_lines(cli: Cli, small: Path) -> None:
    result = cli("search", "open_session")
    assert result.exit_code == 0
    first, *rest = result.stdout.split("\n")
    assert first.startswith("session.py:1-6  open_session  ")
    assert "  4  def open_session(name):" in rest
    assert "\n\nguide.md:" in result.stdout


def test_a_search_with_a_path_indexes_it_first_and_says_so_in_one_line(
    cli: Cli, folder: Path
) -> None:
    first = cli("search", "open a session", str(folder))
    assert (first.exit_code, first.stderr.count("\n")) == (0, 1)
    assert first.stderr.startswith("index: mine: 4 added")
    again = cli("search", "open a session", str(folder))
    assert "4 unchanged" in again.stderr
    assert again.stdout == first.stdout


def test_a_path_inside_a_project_refreshes_the_project_and_narrows_the_search(
    cli: Cli, folder: Path
) -> None:
    cli("index", str(folder))
    result = cli("search", "session", str(folder / "deep"), "--json")
    assert {hit["path"] for hit in json.loads(result.stdout)["hits"]} <= {"deep/cache.go"}
    result = cli("search", "session", str(folder / "guide.md"), "--json")
    assert {hit["path"] for hit in json.loads(result.stdout)["hits"]} == {"guide.md"}
    assert json.loads(cli("status", "--json").stdout)["totals"]["projects"] == 1


def test_brackets_in_a_folder_name_are_no_pattern(cli: Cli, folder: Path) -> None:
    odd = folder / "a[b]*"
    odd.mkdir()
    (odd / "odd.md").write_text("# Odd\n\nA session in an odd folder.\n")
    cli("index", str(folder))
    result = cli("search", "session", str(odd), "--json")
    assert [hit["path"] for hit in json.loads(result.stdout)["hits"]] == ["a[b]*/odd.md"]


def test_several_paths_are_several_projects_and_hits_say_which(cli: Cli, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text(f"# Apples of {name}\n\nApples are sweet.\n")
    result = cli("search", "apples", str(tmp_path / "one"), str(tmp_path / "two"))
    assert result.exit_code == 0
    assert "  [one]  " in result.stdout and "  [two]  " in result.stdout
    refused = cli("search", "apples")
    assert refused.exit_code == 2 and "one, two" in refused.stderr
    assert cli("search", "apples", "-p", "*").stdout == result.stdout
    assert "[one]" not in cli("search", "apples", "-p", "one").stdout
    assert "[two]" in cli("search", "apples", "-p", "one", "-p", "two").stdout


def test_the_project_of_the_current_folder_is_searched(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "a.md").write_text(f"# Apples of {name}\n")
    cli("index", str(tmp_path / "one"), str(tmp_path / "two"))
    monkeypatch.chdir(tmp_path / "two" / "inner")
    assert json.loads(cli("search", "apples", "--json").stdout)["projects"] == ["two"]
    monkeypatch.setenv("UNSPOOL_PROJECT", "one")
    assert json.loads(cli("search", "apples", "--json").stdout)["projects"] == ["one"]
    assert json.loads(cli("search", "apples", "--json", "--project", "two").stdout)["projects"] == [
        "two"
    ]


def test_a_dash_reads_the_query_from_stdin(cli: Cli, small: Path) -> None:
    result = cli("search", "-", "--json", input="open_session\n")
    assert json.loads(result.stdout)["query"] == "open_session"
    assert cli("search", "-", "--json", input=b"open \xff session").exit_code == 0


def test_bytes_that_are_no_utf8_in_the_query_are_replaced(cli: Cli, small: Path) -> None:
    result = cli("search", "session \udcff", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["query"] == "session \ufffd"


def test_no_hit_is_exit_code_1_with_a_friendly_line_and_valid_json(cli: Cli, small: Path) -> None:
    plain = cli("search", "xylophone", "--alpha", "0")
    assert (plain.exit_code, plain.stdout) == (1, "")
    assert "nothing found in small" in plain.stderr
    page = cli("search", "xylophone", "--alpha", "0", "--json")
    assert page.exit_code == 1
    assert json.loads(page.stdout)["hits"] == []


def test_searching_before_anything_is_indexed_is_no_error(cli: Cli) -> None:
    result = cli("search", "anything")
    assert result.exit_code == 1
    assert "nothing is indexed yet" in result.stderr


def test_explain_gives_each_hit_a_reason(cli: Cli, small: Path) -> None:
    assert "meaning" in cli("search", "open session", "--explain").stdout
    assert "meaning" not in cli("search", "open session").stdout
    assert all(
        hit["reason"]
        for hit in json.loads(cli("search", "open session", "--explain", "--json").stdout)["hits"]
    )


def test_full_shows_whole_chunks_and_a_budget_shortens_them(cli: Cli, tmp_path: Path) -> None:
    long = (
        "# Long\n\n"
        + "\n".join(f"line {number} about nothing" for number in range(25))
        + "\nthe walrus sleeps\n"
    )
    (tmp_path / "long").mkdir()
    (tmp_path / "long" / "a.md").write_text(long)
    cli("index", str(tmp_path / "long"))
    assert "line 0 about" not in cli("search", "walrus").stdout
    full = cli("search", "walrus", "--full", "--color").stdout
    assert "line 0 about" in full and "\x1b[1;33mwalrus\x1b[0m" in full
    short = cli("search", "walrus", "--full", "--max-tokens", "20")
    assert "line 0 about" not in short.stdout
    assert "note: " in short.stderr


def test_piped_output_has_no_colour_and_forced_colour_marks_the_words(
    cli: Cli, small: Path
) -> None:
    plain, forced = (
        cli("search", "open_session").stdout,
        cli("search", "open_session", "--color").stdout,
    )
    assert "\x1b" not in plain and "\x1b" not in cli("search", "open_session", "--no-color").stdout
    assert "\x1b[1;33mopen_session\x1b[0m" in forced
    assert re.sub(r"\x1b\[[\d;]*m", "", forced) == plain.expandtabs()


def test_what_is_indexed_cannot_command_the_terminal(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "a.md").write_text(
        "# Walrus\n\nA walrus \x1b[2J\x1b]0;owned\x07 sleeps \u202egnp.exe\n"
    )
    cli("index", str(tmp_path / "evil"))
    for flag in ("--no-color", "--color"):
        out = cli("search", "walrus sleeps", flag).stdout
        assert (
            "\x1b[2J" not in out
            and "\x1b]" not in out
            and "\x07" not in out
            and "\u202e" not in out
        )
        assert "␛[2J" in out


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["-w", "language=python"], {"session.py"}),
        (["-w", "language=python,go"], {"session.py", "deep/cache.go"}),
        (["-w", "language!=markdown"], {"session.py", "deep/cache.go"}),
        (["-w", "language!=markdown,go"], {"session.py"}),
        (["-w", "modified>2001-01-01", "-w", "path=*.md"], {"guide.md", "notes/garden.md"}),
        (["-w", "modified<2001-01-01"], set()),
        (["--language", "go", "--language", "python"], {"session.py", "deep/cache.go"}),
        (["--path", "notes/**"], {"notes/garden.md"}),
        (["--kind", "docs", "--path", "guide.md"], {"guide.md"}),
        (["--kind", "code,docs", "--language", "go"], {"deep/cache.go"}),
        (
            ["--filter", '{"any": [{"language": "go"}, {"path": "guide.md"}]}'],
            {"deep/cache.go", "guide.md"},
        ),
        (["--filter", '{"kind": "code"}', "-w", "path=deep/*"], {"deep/cache.go"}),
    ],
)
def test_filters_keep_what_they_say(
    cli: Cli, small: Path, flags: list[str], expected: set[str]
) -> None:
    result = cli("search", "session cache garden", "--alpha", "1", "--json", *flags)
    assert {hit["path"] for hit in json.loads(result.stdout)["hits"]} == expected


def test_metadata_conditions_know_numbers_and_booleans(cli: Cli, database: Path) -> None:
    with unspool.open(f"sqlite:///{database}") as corpus:
        for year, draft in ((2023, True), (2024, False)):
            corpus.put(
                unspool.Document(
                    project="p",
                    path=f"{year}.md",
                    text=f"apples of {year}",
                    metadata={"year": year, "draft": draft, "code": str(year)},
                )
            )

    def found(*conditions: str) -> set[str]:
        flags = [part for text in conditions for part in ("-w", text)]
        return {
            hit["path"]
            for hit in json.loads(cli("search", "apples", "--json", *flags).stdout)["hits"]
        }

    assert found("metadata.year=2023") == {"2023.md"}
    assert found("metadata.year>=2023", "metadata.year<2024") == {"2023.md"}
    assert found("metadata.draft=false") == {"2024.md"}
    assert found("metadata.code='2024'") == {"2024.md"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": {"eq": "b"}}),
        ("a==b", {"a": {"eq": "b"}}),
        ("a = b c ", {"a": {"eq": "b c"}}),
        ("a!=b,c", {"a": {"not": ["b", "c"]}}),
        ("a='b,c'", {"a": {"eq": "b,c"}}),
        ("a=x=y", {"a": {"eq": "x=y"}}),
        ("metadata.n=1,2.5,true,x", {"metadata.n": {"eq": [1, 2.5, True, "x"]}}),
        ("metadata.n<=-3", {"metadata.n": {"le": -3}}),
        ('metadata.n="3"', {"metadata.n": {"eq": "3"}}),
        ("language=3", {"language": {"eq": "3"}}),
    ],
)
def test_a_condition_is_read_as_typed(text: str, expected: dict[str, object]) -> None:
    assert parse_condition(text) == expected


def test_min_score_and_limit_shorten_the_page(cli: Cli, small: Path) -> None:
    hits = json.loads(cli("search", "session", "--json").stdout)["hits"]
    assert len(hits) > 1
    assert len(json.loads(cli("search", "session", "--json", "-n", "1").stdout)["hits"]) == 1
    kept = json.loads(
        cli("search", "session", "--json", "--min-score", str(hits[0]["score"])).stdout
    )["hits"]
    assert [hit["path"] for hit in kept] == [hits[0]["path"]]


def test_related_takes_a_real_path_a_stored_path_and_the_place_of_a_hit(
    cli: Cli, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = cli("related", "session.py:4")
    assert (
        stored.exit_code == 0
        and "guide.md" in stored.stdout
        and "\nsession.py" not in stored.stdout
    )
    assert cli("related", f"{small}/session.py:4").stdout == stored.stdout
    assert cli("related", "session.py:1-6", "--project", "small").stdout == stored.stdout
    monkeypatch.chdir(small / "deep")
    assert cli("related", "../session.py").stdout == stored.stdout
    assert cli("related", "cache.go:2").exit_code == 0
    assert len(json.loads(cli("related", "session.py:4", "--json", "-n", "1").stdout)["hits"]) == 1


def test_related_to_an_unknown_place_is_exit_code_1(cli: Cli, small: Path) -> None:
    assert cli("related", "nowhere.py:1").exit_code == 1
    assert cli("related", "session.py:0").exit_code == 2
    assert cli("related", "session.py:1", "--project", "nope").exit_code == 1


def test_wide_characters_keep_a_table_aligned() -> None:
    lines = [
        "".join(text for text, _ in line)
        for line in terminal.render_table(
            ["name", "x"], [[("日本", ""), ("1", "")], [("abcd", ""), ("2", "")]]
        )
    ]
    assert lines == ["name  x  ", "日本  1  ", "abcd  2  "]
