"""Filters: what a mapping means."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from unspool.domain.filters import FIELDS, AllOf, AnyOf, Compare, Not, list_fields, parse
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
        (
            {"language": ["python", "go"]},
            AnyOf(parts=(eq("language", "python"), eq("language", "go"))),
        ),
        (
            {"language": {"in": ("python", "go")}},
            AnyOf(parts=(eq("language", "python"), eq("language", "go"))),
        ),
        ({"language": []}, AnyOf(parts=())),
        ({"language": {"not": "python"}}, Not(inner=eq("language", "python"))),
        ({"language": {"!=": "python"}}, Not(inner=eq("language", "python"))),
        ({"language": {"ne": "python"}}, Not(inner=eq("language", "python"))),
        (
            {"language": {"not in": ["a", "b"]}},
            Not(inner=AnyOf(parts=(eq("language", "a"), eq("language", "b")))),
        ),
        ({"modified": {"lt": "2026-01-31"}}, Compare(field="modified", op="lt", value=DAY)),
        ({"modified": {"<=": DAY}}, Compare(field="modified", op="le", value=DAY)),
        (
            {"modified": {"gt": date(2026, 1, 31)}},
            Compare(field="modified", op="ge", value=DAY + timedelta(days=1)),
        ),
        (
            {"modified": {"le": "2026-01-31"}},
            Compare(field="modified", op="lt", value=DAY + timedelta(days=1)),
        ),
        ({"modified": {"gt": DAY}}, Compare(field="modified", op="gt", value=DAY)),
        (
            {"modified": {">=": "2026-01-31T02:00:00+02:00"}},
            Compare(field="modified", op="ge", value=DAY),
        ),
        ({"modified": "2026-01-31T00:00:00Z"}, eq("modified", DAY)),
        (
            {"metadata.year": {"ge": 2020, "lt": 2030}},
            AllOf(
                parts=(
                    Compare(field="metadata.year", op="ge", value=2020),
                    Compare(field="metadata.year", op="lt", value=2030),
                )
            ),
        ),
        ({"metadata": {"author": "ann"}}, eq("metadata.author", "ann")),
        (
            {"metadata": {"a": 1, "b": True}},
            AllOf(parts=(eq("metadata.a", 1), eq("metadata.b", True))),
        ),
        ({"metadata.a.b": 0.5}, eq("metadata.a.b", 0.5)),
        ({"metadata.empty": ""}, eq("metadata.empty", "")),
        ({"kind": "code", "path": "*.py"}, AllOf(parts=(eq("kind", "code"), eq("path", "*.py")))),
        ({"not": {"kind": "docs"}}, Not(inner=eq("kind", "docs"))),
        (
            {"any": [{"kind": "docs"}, {"language": "go"}]},
            AnyOf(parts=(eq("kind", "docs"), eq("language", "go"))),
        ),
        (
            {"all": [{"kind": "docs"}, {"heading": "Intro"}]},
            AllOf(parts=(eq("kind", "docs"), eq("heading", "Intro"))),
        ),
        ({"any": []}, AnyOf(parts=())),
        (
            {"not": {"any": [{"not": {"document": "a"}}]}},
            Not(inner=AnyOf(parts=(Not(inner=eq("document", "a")),))),
        ),
    ],
)
def test_a_mapping_means(where: dict, meaning: object) -> None:
    assert parse(where) == meaning


def test_times_of_other_zones_are_turned_into_utc() -> None:
    moment = datetime(2026, 1, 31, 5, tzinfo=timezone(timedelta(hours=5)))
    assert parse({"modified": moment}) == eq("modified", DAY)


@pytest.mark.parametrize(
    "field", ["lang", "Path", "", "text", "metadata.", "metadata", 7, "language "]
)
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
        {"language": [["x"]]},
        {"path": [f"x{number}" for number in range(101)]},
        {"speaker": [f"x{number}" for number in range(101)]},
        {"any": [{"kind": "docs"}] * 65},
        {"any": [{"heading": ["x"] * 100}] * 21},
        {"metadata.a": 10**400},
        {"metadata.a": float("inf")},
        {"metadata.a": "x" * 4097},
        {"metadata.a": "x\x00"},
        {"metadata.x\x00": 1},
        {"metadata": {"x" * 201: 1}},
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
    assert list_fields(parse(where)) == {"kind"}  # type: ignore[arg-type]
    for _ in range(5000):
        where = {"not": where}
    with pytest.raises(FilterError, match="nested"):
        parse(where)


def test_the_fields_of_a_filter_are_found_at_every_depth() -> None:
    condition = parse(
        {"language": "go", "any": [{"not": {"heading": "x"}}, {"metadata": {"a": 1}}], "path": []}
    )
    assert condition is not None
    assert list_fields(condition) == {"language", "heading", "metadata.a"}


def test_a_day_means_all_of_it() -> None:
    day = AllOf(
        parts=(
            Compare(field="time", op="ge", value=datetime(2026, 5, 8, tzinfo=UTC)),
            Compare(field="time", op="lt", value=datetime(2026, 5, 9, tzinfo=UTC)),
        )
    )
    assert parse({"time": "2026-05-08"}) == parse({"time": date(2026, 5, 8)}) == day
    assert parse({"time": {"not": "2026-05-08"}}) == Not(inner=day)
    assert parse({"time": "2026-05-08T00:00:00"}) == Compare(
        field="time", op="eq", value=datetime(2026, 5, 8, tzinfo=UTC)
    )
    assert parse({"modified": "9999-12-31"}) is not None


def test_the_first_and_the_last_hours_of_the_calendar_can_be_compared() -> None:
    for text in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        assert parse({"time": {"ge": text}}) is not None
