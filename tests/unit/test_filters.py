"""Filters: what a mapping means, and what a path glob matches."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from unspool.domain.filters import FIELDS, AllOf, AnyOf, Compare, Not, fields_of, glob_regex, parse
from unspool.errors import FilterError

DAY = datetime(2026, 1, 31, tzinfo=UTC)


def eq(field: str, value: Any) -> Compare:
    return Compare(field=field, op="eq", value=value)


@pytest.mark.parametrize("nothing", [None, {}])
def test_no_filter_is_none(nothing: dict | None) -> None:
    assert parse(nothing) is None


@pytest.mark.parametrize(
    ("where", "meaning"),
    [
        ({"language": "python"}, eq("language", "python")),
        ({"language": {"eq": "python"}}, eq("language", "python")),
        ({"language": {"=": "python"}}, eq("language", "python")),
        ({"language": {"==": "python"}}, eq("language", "python")),
        ({"language": ["python", "go"]}, AnyOf(parts=(eq("language", "python"), eq("language", "go")))),
        ({"language": {"in": ("python", "go")}}, AnyOf(parts=(eq("language", "python"), eq("language", "go")))),
        ({"language": []}, AnyOf(parts=())),
        ({"language": {"not": "python"}}, Not(inner=eq("language", "python"))),
        ({"language": {"!=": "python"}}, Not(inner=eq("language", "python"))),
        ({"language": {"ne": "python"}}, Not(inner=eq("language", "python"))),
        ({"language": {"not in": ["a", "b"]}}, Not(inner=AnyOf(parts=(eq("language", "a"), eq("language", "b"))))),
        ({"modified": {"lt": "2026-01-31"}}, Compare(field="modified", op="lt", value=DAY)),
        ({"modified": {"<=": DAY}}, Compare(field="modified", op="le", value=DAY)),
        ({"modified": {"gt": date(2026, 1, 31)}}, Compare(field="modified", op="ge", value=DAY + timedelta(days=1))),
        ({"modified": {"le": "2026-01-31"}}, Compare(field="modified", op="lt", value=DAY + timedelta(days=1))),
        ({"modified": {"gt": DAY}}, Compare(field="modified", op="gt", value=DAY)),
        ({"modified": {">=": "2026-01-31T02:00:00+02:00"}}, Compare(field="modified", op="ge", value=DAY)),
        ({"modified": "2026-01-31T00:00:00Z"}, eq("modified", DAY)),
        (
            {"metadata.year": {"ge": 2020, "lt": 2030}},
            AllOf(parts=(Compare(field="metadata.year", op="ge", value=2020), Compare(field="metadata.year", op="lt", value=2030))),
        ),
        ({"metadata": {"author": "ann"}}, eq("metadata.author", "ann")),
        ({"metadata": {"a": 1, "b": True}}, AllOf(parts=(eq("metadata.a", 1), eq("metadata.b", True)))),
        ({"metadata.a.b": 0.5}, eq("metadata.a.b", 0.5)),
        ({"metadata.empty": ""}, eq("metadata.empty", "")),
        ({"kind": "code", "path": "*.py"}, AllOf(parts=(eq("kind", "code"), eq("path", "*.py")))),
        ({"not": {"kind": "docs"}}, Not(inner=eq("kind", "docs"))),
        ({"any": [{"kind": "docs"}, {"language": "go"}]}, AnyOf(parts=(eq("kind", "docs"), eq("language", "go")))),
        ({"all": [{"kind": "docs"}, {"heading": "Intro"}]}, AllOf(parts=(eq("kind", "docs"), eq("heading", "Intro")))),
        ({"any": []}, AnyOf(parts=())),
        ({"not": {"any": [{"not": {"document": "a"}}]}}, Not(inner=AnyOf(parts=(Not(inner=eq("document", "a")),)))),
    ],
)
def test_a_mapping_means(where: dict, meaning: object) -> None:
    assert parse(where) == meaning


def test_times_of_other_zones_are_turned_into_utc() -> None:
    moment = datetime(2026, 1, 31, 5, tzinfo=timezone(timedelta(hours=5)))
    assert parse({"modified": moment}) == eq("modified", DAY)


@pytest.mark.parametrize("field", ["lang", "Path", "", "text", "metadata.", "metadata", 7, "language "])
def test_an_unknown_field_is_answered_with_the_known_ones(field: object) -> None:
    with pytest.raises(FilterError) as caught:
        parse({field: "x"})  # type: ignore[dict-item]
    assert all(name in str(caught.value) for name in FIELDS)
    assert "metadata.<key>" in str(caught.value)


def test_a_near_miss_is_guessed() -> None:
    with pytest.raises(FilterError, match="did you mean 'language'"):
        parse({"langauge": "python"})


@pytest.mark.parametrize(
    "where",
    [
        {"language": {"like": "py%"}},
        {"language": {"lt": "python"}},
        {"path": {"ge": "a"}},
        {"language": ""},
        {"language": 3},
        {"language": None},
        {"kind": "prose"},
        {"modified": "yesterday"},
        {"modified": 12},
        {"modified": {"lt": None}},
        {"metadata.a": None},
        {"metadata.a": {"eq": object()}},
        {"not": "x"},
        {"not": ["x"]},
        {"any": {"kind": "docs"}},
        {"any": "docs"},
        {"any": ["docs"]},
        {"all": 4},
        {"path": "x" * 4097},
        {"language": ["x"] * 1001},
        "language",
        ["language"],
    ],
)
def test_what_makes_no_sense_is_refused(where: Any) -> None:
    with pytest.raises(FilterError):
        parse(where)


def test_very_deep_nesting_is_refused_before_it_exhausts_the_stack() -> None:
    where: dict = {"kind": "docs"}
    for _ in range(15):
        where = {"not": where}
    assert fields_of(parse(where)) == {"kind"}  # type: ignore[arg-type]
    for _ in range(5000):
        where = {"not": where}
    with pytest.raises(FilterError, match="nested"):
        parse(where)


def test_the_fields_of_a_filter_are_found_at_every_depth() -> None:
    condition = parse({"language": "go", "any": [{"not": {"heading": "x"}}, {"metadata": {"a": 1}}], "path": []})
    assert condition is not None
    assert fields_of(condition) == {"language", "heading", "metadata.a"}


GLOBS = [
    # pattern, what it matches, what it does not
    ("*.py", ["a.py", "src/a.py", "src/deep/.py"], ["a.pyc", "a.py/b", "apy"]),
    ("a.py", ["a.py", "src/a.py"], ["ba.py", "a.py.bak", "aXpy"]),
    ("src/*.py", ["src/a.py"], ["src/deep/a.py", "x/src/a.py", "src/a.pyc"]),
    ("src/**/*.py", ["src/a.py", "src/deep/a.py", "src/very/deep/a.py"], ["a.py", "x/src/a.py", "srcs/a.py"]),
    ("src/**", ["src/a", "src/a/b"], ["src", "srcs/a", "x/src/a"]),
    ("src/", ["src/a", "src/a/b", "x/src/a"], ["src", "xsrc/a"]),
    ("**/test_*.py", ["test_a.py", "x/test_a.py", "x/y/test_.py"], ["x/atest_a.py", "test_a.txt"]),
    ("**/*", ["a", "a/b", "a/b/c"], []),
    ("**", ["a", "a/b"], []),
    ("*", ["a", "a/b", ".hidden"], []),
    ("a?c", ["abc", "x/aZc"], ["ac", "abbc", "a/c"]),
    ("a/?/c", ["a/b/c"], ["a//c", "a/bb/c"]),
    ("[ab].py", ["a.py", "x/b.py"], ["c.py", "ab.py"]),
    ("[!ab].py", ["c.py", "x/d.py"], ["a.py"]),
    ("[a-c]1", ["a1", "b1"], ["d1", "-1"]),
    ("[]x].py", ["].py", "x.py"], ["[.py", "y.py"]),
    ("a[.py", ["a[.py"], ["a.py"]),
    ("a+b(c).{md}$^|", ["a+b(c).{md}$^|"], ["aab(c).md"]),
    ("/README.md", ["README.md"], []),
    ("./src/a.py", ["src/a.py"], ["x/src/a.py"]),
    ("ü*.md", ["über.md", "x/ü.md"], ["u.md"]),
    ("a\\d", ["a\\d"], ["a1"]),
    ("docs/*/index.*", ["docs/x/index.html"], ["docs/index.html", "docs/x/y/index.html"]),
]


@pytest.mark.parametrize(("pattern", "matching", "others"), GLOBS, ids=[pattern for pattern, _, _ in GLOBS])
def test_a_glob_matches(pattern: str, matching: list[str], others: list[str]) -> None:
    regex = re.compile(glob_regex(pattern))
    assert [path for path in matching if not regex.search(path)] == []
    assert [path for path in others if regex.search(path)] == []


@given(st.text(alphabet="ab[]!-^*?/\\.z{}()|+$", max_size=12))
@example("[]")
@example("[!]")
@example("[z-a].py")
@example("[--a]")
def test_every_glob_is_a_valid_regular_expression_or_refused(pattern: str) -> None:
    """One that is not, and is not refused beforehand, fails inside the database in the middle of a search."""
    try:
        parse({"path": pattern})
    except FilterError:
        return
    re.compile(glob_regex(pattern))


@given(st.text(alphabet="ab/.ü+(", min_size=1, max_size=12).filter(lambda path: not path.startswith(("/", "./")) and not path.endswith("/")))
def test_a_path_without_wildcards_matches_itself(path: str) -> None:
    assert re.search(glob_regex(path), path)


def test_a_day_means_all_of_it() -> None:
    day = AllOf(
        parts=(
            Compare(field="time", op="ge", value=datetime(2026, 5, 8, tzinfo=UTC)),
            Compare(field="time", op="lt", value=datetime(2026, 5, 9, tzinfo=UTC)),
        )
    )
    assert parse({"time": "2026-05-08"}) == parse({"time": date(2026, 5, 8)}) == day
    assert parse({"time": {"not": "2026-05-08"}}) == Not(inner=day)
    assert parse({"time": "2026-05-08T00:00:00"}) == Compare(field="time", op="eq", value=datetime(2026, 5, 8, tzinfo=UTC))
    assert parse({"modified": "9999-12-31"}) is not None
