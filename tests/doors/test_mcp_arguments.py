"""Arguments of models are parsed, or rejected with the names and values that are valid."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from unspool.errors import InputError
from unspool.interfaces.mcp import arguments
from unspool.interfaces.mcp.catalogue import HITS, LEAST_TOKENS, MAX_HITS, MOST_TOKENS, build_tools
from unspool.interfaces.mcp.places import (
    Address,
    DocumentPlace,
    parse_address,
    parse_lines,
    parse_place,
)
from unspool.interfaces.mcp.tools import RUN

TOOLS = build_tools(4000)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def understood(tool: str, **sent: Any) -> dict[str, Any]:
    return arguments.parse_arguments(tool, TOOLS[tool].arguments, sent).values


@pytest.mark.parametrize("name", TOOLS)
def test_every_name_for_an_argument_means_that_one_and_no_other(name: str) -> None:
    """On failure: two arguments of a tool share a name; leave it to the likelier one."""
    names = [other for one in TOOLS[name].arguments for other in one.names]
    assert len(names) == len(set(names))
    assert all(other == arguments.normalize_name(other) for other in names)


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_does_something_and_shows_a_flat_schema(name: str) -> None:
    assert name in RUN
    schema = arguments.build_schema(TOOLS[name].arguments)
    assert schema["type"] == "object"
    for one in schema["properties"].values():
        assert one["type"] in ("string", "integer")
        assert set(one) <= {"type", "description", "default", "minimum", "maximum"}
    text = json.dumps([schema, TOOLS[name].output])
    assert not any(word in text for word in ("anyOf", "oneOf", "allOf", "null", "$ref"))
    assert "number_of_lines" not in text  # other names are understood, never shown


@pytest.mark.parametrize(
    ("tool", "sent", "name", "value"),
    [
        ("search", {"q": "tomato"}, "query", "tomato"),
        ("search", {"question": "tomato"}, "query", "tomato"),
        ("search", {"searchQuery": "tomato"}, "query", "tomato"),
        ("search", {"Query": "tomato"}, "query", "tomato"),
        ("search", {"query": 404}, "query", "404"),
        ("search", {"query": ["open", "session"]}, "query", "open session"),
        ("search", {"query": "x", "top_k": "7"}, "limit", 7),
        ("search", {"query": "x", "maxResults": 7.0}, "limit", 7),
        ("search", {"query": "x", "num-results": " 7 "}, "limit", 7),
        ("search", {"query": "x", "limit": None}, "limit", HITS),
        ("search", {"query": "x", "limit": ""}, "limit", HITS),
        ("search", {"query": "x", "limit": [7]}, "limit", 7),
        ("search", {"query": "x", "projects": ["a", "b"]}, "project", "a,b"),
        ("search", {"query": "x", "repository": "a"}, "project", "a"),
        ("search", {"query": "x", "explanation": "because"}, "query", "x"),
        ("search", {"arguments": {"q": "x"}}, "query", "x"),
        ("search", {"input": '{"query": "x"}'}, "query", "x"),
        ("search", {"input": "x"}, "query", "x"),
        ("search", {"query": "half \ud83d"}, "query", "half ?"),
        ("related", {"path": "a.py", "line": 1e300}, "line", arguments.MAX_NUMBER),
        ("related", {"path": "a.py", "line": 10**19}, "line", arguments.MAX_NUMBER),
        ("read", {"path": "a.py", "first_line": "1e300"}, "first_line", arguments.MAX_NUMBER),
        ("more", {"cursor": "abc"}, "continuation", "abc"),
        ("more", {"next_page_token": "abc"}, "continuation", "abc"),
        ("read", {"file_path": "a.py", "start_line": 3}, "first_line", 3),
        ("read", {"file_path": "a.py", "offset": 3, "limit": 9}, "limit", 9),
        ("read", {"path": ["a.py"]}, "path", "a.py"),
        ("read", {"path": "a.py", "view_range": [3, 9]}, "lines", "3-9"),
        ("related", {"filename": "a.py", "line_number": "12"}, "line", 12),
        ("get_response_history", {"endpoint": "GET /x"}, "stream", "GET /x"),
        ("get_response_history", {"name": "GET /x", "skip": 2}, "offset", 2),
        ("remember", {"content": "so", "session_id": "c"}, "conversation", "c"),
        ("index", {"directory": "src"}, "path", "src"),
        ("search", {"query": "x", "budget": 900}, "max_tokens", 900),
        ("search", {"queries": ["retry", "pause"]}, "query", "retry pause"),
        ("search", {"query": "x", "n_results": 3}, "limit", 3),
        ("search", {"query": "x", "max_num_results": 3}, "limit", 3),
        ("search", {"query": "x", "target_directories": ["src", "docs"]}, "path", "src,docs"),
        ("search", {"query": "x", "include": "*.py"}, "path", "*.py"),
        ("search", {"query": "x", "file_pattern": "*.py"}, "path", "*.py"),
        ("search", {"query": "x", "extensions": [".py", "js"]}, "extensions", ".py,js"),
        (
            "read",
            {
                "target_file": "a.py",
                "start_line_one_indexed": 3,
                "end_line_one_indexed_inclusive": 5,
            },
            "last_line",
            5,
        ),
        ("read", {"target_file": "a.py", "start_line_one_indexed": 3}, "first_line", 3),
        ("read", {"absolute_path": "/a.py"}, "path", "/a.py"),
        ("read", {"paths": ["a.py"]}, "path", "a.py"),
        ("list_projects", {"limit": 5}, "limit", 5),
        ("index", {"target_directory": "src"}, "path", "src"),
    ],
)
def test_what_models_commonly_send_is_understood(
    tool: str, sent: dict[str, Any], name: str, value: object
) -> None:
    assert understood(tool, **sent)[name] == value


@pytest.mark.parametrize(
    ("tool", "sent", "said"),
    [
        (
            "read",
            {"path": "a.py", "should_read_entire_file": True},
            "'should_read_entire_file' was ignored",
        ),
        (
            "remember",
            {"text": "tea", "tags": ["a"], "metadata": {"b": 1}},
            "'metadata', 'tags' were ignored",
        ),
        (
            "index",
            {"path": "src", "recursive": True, "force": False},
            "'force', 'recursive' were ignored",
        ),
        ("search", {"query": "x", "caseSensitive": False}, "'caseSensitive' was ignored"),
        ("index", {"path": "src", "dry_run": False}, "'dry_run' was ignored"),
        ("list_projects", {"random_string": "x"}, None),
    ],
)
def test_switches_of_other_tools_are_ignored_and_it_is_said(
    tool: str, sent: dict[str, Any], said: str | None
) -> None:
    assert arguments.parse_arguments(tool, TOOLS[tool].arguments, sent).notes == (
        [said] if said else []
    )


def test_the_right_name_wins_over_another() -> None:
    assert understood("search", q="other", query="right")["query"] == "right"
    assert understood("search", query="x", k=3, limit=4)["limit"] == 4


@pytest.mark.parametrize(
    ("sent", "used"),
    [
        (0, 1),
        (-3, 1),
        (MAX_HITS + 1, MAX_HITS),
        (10**30, MAX_HITS),
        ("1e3", MAX_HITS),
        ("-1", 1),
        (-(10**400), 1),
    ],
)
def test_a_number_out_of_range_is_clamped_with_a_note(sent: object, used: int) -> None:
    found = arguments.parse_arguments(
        "search", TOOLS["search"].arguments, {"query": "x", "limit": sent}
    )
    assert found.values["limit"] == used
    assert (
        len(found.notes) == 1 and f"{used} was used" in found.notes[0] and len(found.notes[0]) < 200
    )


@pytest.mark.parametrize(
    ("sent", "used"),
    [(0, LEAST_TOKENS), (1, LEAST_TOKENS), (25_000, MOST_TOKENS), (-5, LEAST_TOKENS)],
)
def test_a_budget_out_of_range_is_clamped_with_a_note(sent: int, used: int) -> None:
    found = arguments.parse_arguments(
        "read", TOOLS["read"].arguments, {"path": "x", "max_tokens": sent}
    )
    assert (found.values["max_tokens"], len(found.notes)) == (used, 1)


@pytest.mark.parametrize(
    ("tool", "sent", "said"),
    [
        ("search", {}, "search needs 'query'"),
        ("search", {"query": ""}, "query is empty"),
        ("search", {"query": "   "}, "query is empty"),
        ("search", {"query": None}, "search needs 'query'"),
        ("search", {"query": {"text": "x"}}, "query is {'text': 'x'}"),
        ("search", {"query": True}, "query is True"),
        (
            "search",
            {"query": "x", "limit": "many"},
            "limit is 'many'; give a whole number from 1 to 30",
        ),
        ("search", {"query": "x", "limit": float("nan")}, "limit is nan"),
        ("search", {"query": "x", "limit": True}, "limit is True"),
        (
            "search",
            {"query": "x", "flavour": "sweet"},
            "search has no argument 'flavour'; give search(query, project?, limit?",
        ),
        ("read", {"path": ["a.py", "b.py"]}, "path is a list of 2; give one at a time"),
        ("more", {"query": "x"}, "more has no argument 'query'; give more(continuation"),
        ("index", {"path": "src", "dry_run": True}, "index has no argument 'dry_run'"),
        ("search", {"query": "x" * (arguments.MAX_TEXT + 1)}, "give at most"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_what_can(
    tool: str, sent: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError) as raised:
        understood(tool, **sent)
    assert said in str(raised.value)
    assert len(str(raised.value)) < 500


@given(
    st.sampled_from(sorted(TOOLS)),
    st.dictionaries(
        st.text(max_size=12) | st.sampled_from(["query", "q", "path", "limit", "k", "text"]),
        JSON,
        max_size=5,
    ),
)
def test_whatever_is_sent_is_understood_or_refused(tool: str, sent: dict[str, Any]) -> None:
    specification = TOOLS[tool].arguments
    try:
        found = arguments.parse_arguments(tool, specification, sent)
    except InputError as error:
        assert len(str(error)) < 1_000
        return
    assert set(found.values) == {one.name for one in specification}
    for one in specification:
        value = found.values[one.name]
        assert isinstance(value, int if one.is_number else str)
        if one.high:
            assert one.low <= value <= one.high


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("src/a.py", DocumentPlace(path="src/a.py")),
        ("src/a.py:12", DocumentPlace(path="src/a.py", first=12)),
        ("src/a.py:12-20", DocumentPlace(path="src/a.py", first=12, last=20)),
        ("src/a.py:20-12", DocumentPlace(path="src/a.py", first=20, last=20)),
        ("src/a.py#L12-L20", DocumentPlace(path="src/a.py", first=12, last=20)),
        ("src/a.py#L12", DocumentPlace(path="src/a.py", first=12)),
        (" `./src/a.py:3` ", DocumentPlace(path="src/a.py", first=3)),
        ("./src/a.py", DocumentPlace(path="src/a.py")),
        ("'src/a.py'", DocumentPlace(path="src/a.py")),
        ("file:///home/me/a.py", DocumentPlace(path="/home/me/a.py")),
        ("c:3", DocumentPlace(path="c", first=3)),
        ("a b.md lines 3-4", DocumentPlace(path="a b.md", first=3, last=4)),
    ],
)
def test_places_are_read_as_hits_and_editors_write_them(text: str, place: DocumentPlace) -> None:
    assert parse_place(text)[0] == place


def test_a_line_and_a_column_are_understood_and_so_is_a_path_that_ends_like_a_line() -> None:
    assert parse_place("src/a.py:12:5") == [
        DocumentPlace(path="src/a.py:12", first=5),
        DocumentPlace(path="src/a.py", first=12, last=12),
        DocumentPlace(path="src/a.py:12:5"),
    ]


@given(st.text(min_size=1, max_size=300), st.integers(1, 10**8), st.integers(0, 10**8))
@example("Meeting 12:30", 1, 0)
def test_the_place_of_a_hit_is_read_back(path: str, first: int, more: int) -> None:
    path = path if path[0].isalnum() else f"x{path}"  # outer spaces and quotes are no part of it
    assert parse_place(f"{path}:{first}-{first + more}")[0] == DocumentPlace(
        path=path.strip(), first=first, last=first + more
    )
    assert parse_place(f"{path}:{first}")[0] == DocumentPlace(path=path.strip(), first=first)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("10-20", (10, 20)),
        ("20-10", (10, 20)),
        ("10 - 20", (10, 20)),
        ("10", (10, 0)),
        ("L10:L20", (10, 20)),
        ("5--1", (5, 0)),
        ("[5, -1]", (5, 0)),
        ("5-0", (5, 0)),
        ("", (0, 0)),
        ("x", (0, 0)),
    ],
)
def test_ranges_are_read_however_they_are_written(text: str, lines: tuple[int, int]) -> None:
    assert parse_lines(text) == lines


@given(st.text(min_size=1, max_size=60), st.text(min_size=1, max_size=200), st.booleans())
def test_the_address_of_a_resource_is_read_back(
    project: str, path: str, is_conversation: bool
) -> None:
    address = Address(
        project=project.encode("utf-8", "replace").decode(),
        path=path.encode("utf-8", "replace").decode(),
        is_conversation=is_conversation,
    )
    text = str(address)
    assert text.isascii() and not any(sign in text for sign in " ?#\n")
    assert parse_address(text) == address


def test_a_list_may_not_be_longer_than_a_text() -> None:
    half = "x" * (arguments.MAX_TEXT // 2)
    assert len(str(understood("remember", text=[half, half[1:]])["text"])) == arguments.MAX_TEXT
    for sent in ([half, half], [half, [half, half]], [half] * 16):
        with pytest.raises(InputError, match="at most 1000000"):
            understood("remember", text=sent)
