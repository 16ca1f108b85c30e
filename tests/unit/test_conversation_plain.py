"""The documented JSON schema, lines of chat APIs, and what all formats share: names, times,
kinds, duplicates, splitting.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import exports
from unspool.domain.conversations import AuthorKind
from unspool.sources import conversations
from unspool.sources.conversations import building, records
from unspool.sources.conversations.detection import Format


def test_every_field_of_the_schema_is_kept(tmp_path: Path) -> None:
    record = {
        "id": "deploy-7",
        "title": "Deploying",
        "scenario_title": "Release week",
        "url": "https://example.org/c/7",
        "created_at": "2026-01-05T10:00:00+02:00",
        "metadata": {"team": "core", "tries": 3, "done": True, "tags": ["a", "b"], "none": None},
        "messages": [
            {
                "id": "m1",
                "author": "Ann",
                "kind": "user",
                "at": "2026-01-05T08:00:01Z",
                "text": "Ship it?",
            },
            {"id": "m2", "role": "assistant", "timestamp": 1_767_600_002, "content": "Yes."},
        ],
    }
    path = exports.written(tmp_path / "c.json", record)
    ((talk,), bad) = exports.read(path)
    assert exports.detect_format(path) is Format.JSONL
    assert (talk.id, talk.title, talk.scenario_title, talk.url) == (
        "deploy-7",
        "Deploying",
        "Release week",
        "https://example.org/c/7",
    )
    assert talk.created_at == datetime(2026, 1, 5, 8, tzinfo=UTC)
    assert dict(talk.metadata) == {"team": "core", "tries": 3, "done": True, "tags": '["a", "b"]'}
    assert [(one.id, one.author, one.kind, one.text) for one in talk.messages] == [
        ("m1", "Ann", AuthorKind.USER, "Ship it?"),
        ("m2", "", AuthorKind.ASSISTANT, "Yes."),
    ]
    assert talk.messages[1].at == datetime(2026, 1, 5, 8, 0, 2, tzinfo=UTC)
    assert bad == []


def talk(name: str, *said: str) -> dict[str, Any]:
    return {"id": name, "messages": [{"text": text} for text in said]}


@pytest.mark.parametrize("form", ["list", "wrapped", "lines", "lines of messages"])
def test_several_conversations_in_each_form(tmp_path: Path, form: str) -> None:
    path = tmp_path / "c"
    if form == "list":
        exports.written(path, [talk("a", "1", "3"), talk("b", "2")])
    elif form == "wrapped":
        exports.written(
            path, {"version": 1, "conversations": [talk("a", "1", "3"), talk("b", "2")], "count": 2}
        )
    elif form == "lines":
        exports.lines(path, talk("a", "1", "3"), "", talk("b", "2"))
    else:
        exports.lines(
            path,
            {"conversation": "a", "text": "1", "title": "A"},
            {"conversation": "b", "text": "2"},
            {"conversation": "a", "text": "3"},
        )
    talks, bad = exports.read(path)
    assert {one.id: [text for _, text in exports.texts(one)] for one in talks} == {
        "a": ["1", "3"],
        "b": ["2"],
    }
    assert exports.detect_format(path) is (Format.JSONL if "lines" in form else Format.JSON)
    assert bad == []


def test_lines_of_a_chat_api_stay_apart_though_they_begin_alike(tmp_path: Path) -> None:
    system = {"role": "system", "content": "You are kind."}
    one = {
        "messages": [
            system,
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi."},
        ]
    }
    two = {
        "messages": [
            system,
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Good day."},
        ]
    }
    three = {"messages": [system, {"role": "user", "content": "Bye"}]}
    counts: Counter[str] = Counter()
    path = exports.lines(tmp_path / "c.jsonl", one, two, three, one)
    talks, bad = exports.read(path, counts)
    assert len({talk.id for talk in talks}) == 3
    assert talks[1].id == f"{talks[0].id}-2"
    assert counts["duplicates"] == 1
    assert bad == []
    assert [talk.id for talk in exports.read(path)[0]] == [talk.id for talk in talks]


def test_calls_of_tools_in_a_chat_api(tmp_path: Path) -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
    }
    record = {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Weather?"},
                    {"type": "image_url", "image_url": {"url": "data:..."}},
                ],
            },
            {"role": "assistant", "content": None, "tool_calls": [call], "id": "m"},
            {"role": "tool", "tool_call_id": "c1", "content": "x" * 5_000},
        ]
    }
    ((found,), bad) = exports.read(exports.lines(tmp_path / "c.jsonl", record))
    said = exports.texts(found)
    assert said[:2] == [("user", "Weather?"), ("weather", 'weather: {"city": "Oslo"}')]
    assert said[2][0] == "weather"
    assert len(said[2][1]) < 1_100
    assert [message.kind for message in found.messages[1:]] == [AuthorKind.TOOL, AuthorKind.TOOL]
    assert bad == []


def test_a_file_of_messages_without_a_conversation_is_one(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    ((one,), _) = exports.read(exports.written(tmp_path / "c.json", said))
    ((other,), _) = exports.read(exports.lines(tmp_path / "c.jsonl", *said))
    assert exports.texts(one) == exports.texts(other) == [("user", "a"), ("assistant", "b")]
    assert one.id == other.id


def test_a_derived_id_stays_when_messages_are_added_at_the_end(tmp_path: Path) -> None:
    said = [
        {"role": "user", "content": "a", "at": 1_700_000_000},
        {"role": "assistant", "content": "b"},
    ]
    record = {"title": "T", "created_at": "2026-01-01", "messages": said}
    ((before,), _) = exports.read(exports.written(tmp_path / "1.json", [record]))
    ((after,), _) = exports.read(
        exports.written(
            tmp_path / "2.json", [{**record, "messages": [*said, {"role": "user", "content": "c"}]}]
        )
    )
    ((other,), _) = exports.read(exports.written(tmp_path / "3.json", [{**record, "title": "U"}]))
    assert before.id == after.id != other.id
    assert len(after.messages) == 3


def test_what_is_there_twice_is_counted_and_the_first_stands(tmp_path: Path) -> None:
    first = {
        "id": "a",
        "messages": [
            {"id": "1", "text": "x"},
            {"id": "1", "text": "y"},
            {"text": "z"},
            {"text": "z"},
        ],
    }
    counts: Counter[str] = Counter()
    ((found,), bad) = exports.read(
        exports.written(tmp_path / "c.json", [first, {"id": "a", "messages": [{"text": "late"}]}]),
        counts,
    )
    assert [text for _, text in exports.texts(found)] == ["x", "z", "z"]
    assert counts["duplicates"] == 2
    assert bad == []


def test_bad_records_are_told_by_their_place_and_the_rest_is_read(tmp_path: Path) -> None:
    path = exports.lines(
        tmp_path / "c.jsonl",
        talk("a", "1"),
        '{"id": "b", "messages": [',
        "[1, 2]",
        {"id": "c", "messages": "none"},
        {
            "id": "d",
            "messages": [{"text": "kept"}, 5, {"text": 7}, {"text": "also kept", "at": "soon"}],
        },
        {"id": "e"},
        talk("f", "2"),
    )
    talks, bad = exports.read(path)
    assert [one.id for one in talks] == ["a", "d", "f"]
    assert [text for _, text in exports.texts(talks[1])] == ["kept", "also kept"]
    assert [(one.source, one.position) for one in bad] == [
        (str(path), place)
        for place in (
            "line 2",
            "line 3",
            "line 4",
            "line 5 message 2",
            "line 5 message 3",
            "line 5 message 4",
            "line 6",
        )
    ]
    assert all("kept" not in one.reason or "without a time" in one.reason for one in bad)


def test_a_bad_record_comes_before_the_conversation_that_it_is_in(tmp_path: Path) -> None:
    path = exports.lines(
        tmp_path / "c.jsonl", {"id": "d", "messages": [{"text": "kept"}, 5]}, talk("e", "1")
    )
    found = [type(one).__name__ for one in conversations.read(path, project="chats")]
    assert found == ["BadRecord", "Conversation", "Conversation"]


def test_a_first_line_that_is_broken_does_not_hide_the_others(tmp_path: Path) -> None:
    path = exports.lines(tmp_path / "c.jsonl", '{"id": "b", "messages": [', talk("a", "1"))
    talks, bad = exports.read(path)
    assert [one.id for one in talks] == ["a"]
    assert [one.position for one in bad] == ["line 1"]


def test_a_long_session_is_kept_as_several(tmp_path: Path) -> None:
    whole = {"id": "s", "messages": [{"text": str(number)} for number in range(20_001)]}
    single = ({"conversation": "s", "text": str(number), "id": number} for number in range(20_001))
    for path in (
        exports.written(tmp_path / "c.json", [whole]),
        exports.lines(tmp_path / "c.jsonl", *single),
    ):
        talks, _ = exports.read(path)
        assert [(one.id, len(one.messages)) for one in talks] == [("s", 20_000), ("s#2", 1)]


def test_a_session_with_very_much_text_is_kept_as_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "MAX_CHARS", 100)
    said = [{"conversation": "s", "text": letter * 60} for letter in "abc"]
    talks, _ = exports.read(exports.lines(tmp_path / "c.jsonl", *said))
    assert [one.id for one in talks] == ["s", "s#2", "s#3"]


def test_a_session_that_goes_on_after_it_was_closed_goes_on_as_its_next_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "OPEN_MESSAGES", 4)
    order = "aab" * 3 + "cc" + "a"
    said = [{"conversation": name, "text": f"{name}{number}"} for number, name in enumerate(order)]
    talks, bad = exports.read(exports.lines(tmp_path / "c.jsonl", *said))
    assert bad == []
    assert len({one.id for one in talks}) == len(talks)
    for name in "abc":
        parts = sorted(
            (one for one in talks if one.id.split("#")[0] == name),
            key=lambda one: int(one.id.partition("#")[2] or 1),
        )
        assert [text for part in parts for _, text in exports.texts(part)] == [
            one["text"] for one in said if one["conversation"] == name
        ]


def test_very_many_interleaved_sessions_are_whole(tmp_path: Path) -> None:
    said = ({"conversation": f"s{number % 300}", "text": str(number)} for number in range(3_000))
    talks, _ = exports.read(exports.lines(tmp_path / "c.jsonl", *said))
    assert len(talks) == 300
    assert all(len(one.messages) == 10 for one in talks)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1_700_000_000, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        (1_700_000_000.25, datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC)),
        (1_700_000_000_250, datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC)),
        (1_700_000_000_250_000, datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC)),
        ("1700000000.000100", datetime(2023, 11, 14, 22, 13, 20, 100, UTC)),
        ("1700000000250", datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC)),
        ("2023-11-14T22:13:20Z", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        ("2023-11-14T23:13:20+01:00", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        ("2023-11-14 22:13:20", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        ("2023-11-14", datetime(2023, 11, 14, tzinfo=UTC)),
        ("20231114", datetime(2023, 11, 14, tzinfo=UTC)),
        (-86_400, datetime(1969, 12, 31, tzinfo=UTC)),
        (None, None),
        ("", None),
    ],
)
def test_times_in_each_form(value: object, expected: datetime | None) -> None:
    log = records.ErrorLog("c.json")
    assert log.parse_time(value) == expected
    assert log.records == []


@pytest.mark.parametrize(
    "value",
    [
        "soon",
        True,
        [],
        {},
        1e300,
        float("nan"),
        float("inf"),
        10**30,
        "9" * 25,
        "0001-01-01T00:00:00+10:00",
        "0001-01-01T00:00:00Z",
        "9999-12-31",
        -62_135_596_800,
        3 * 10**19,
    ],
)
def test_an_invalid_time_is_reported(value: object) -> None:
    log = records.ErrorLog("c.json")
    assert log.parse_time(value) is None
    assert ["is no time; give ISO 8601" in bad.reason for bad in log.records] == [True]


def test_a_message_from_the_year_one_is_kept_without_a_time_and_the_rest_is_read(
    tmp_path: Path,
) -> None:
    said = {"text": "first", "at": "0001-01-01T00:00:00Z"}
    path = exports.lines(
        tmp_path / "c.jsonl",
        {"id": "a", "created_at": "0001-01-01", "messages": [said]},
        {"id": "b", "messages": [{"text": "second"}]},
    )
    talks, bad = exports.read(path)
    assert [(one.id, one.created_at, one.messages[0].at) for one in talks] == [
        ("a", None, None),
        ("b", None, None),
    ]
    assert [one.position for one in bad] == ["line 1", "line 1 message 1"]


@pytest.mark.parametrize(
    ("message", "kind", "author"),
    [
        ({"role": "human"}, AuthorKind.USER, ""),
        ({"role": "AI"}, AuthorKind.ASSISTANT, ""),
        ({"kind": "bot", "author": "Robby"}, AuthorKind.ASSISTANT, "Robby"),
        ({"role": "model"}, AuthorKind.ASSISTANT, ""),
        ({"role": "developer"}, AuthorKind.SYSTEM, ""),
        ({"role": "function", "name": "sum"}, AuthorKind.TOOL, "sum"),
        ({"author": {"role": "assistant", "name": "Kim"}}, AuthorKind.ASSISTANT, "Kim"),
        ({"author": "assistant"}, AuthorKind.ASSISTANT, ""),
        ({"author": "Ann"}, AuthorKind.USER, "Ann"),
        ({"role": "moderator"}, AuthorKind.USER, "moderator"),
        ({"author": "x" * 300}, AuthorKind.USER, "x" * 199 + "…"),
        ({"author": "two\nlines\x00"}, AuthorKind.USER, "two lines"),
        ({}, AuthorKind.USER, ""),
    ],
)
def test_who_speaks(tmp_path: Path, message: dict[str, Any], kind: AuthorKind, author: str) -> None:
    ((found,), bad) = exports.read(
        exports.written(tmp_path / "c.json", {"messages": [{**message, "text": "x"}]})
    )
    assert [(one.kind, one.author) for one in found.messages] == [(kind, author)]
    assert bad == []


def test_what_no_database_takes_is_replaced(tmp_path: Path) -> None:
    said = r'{"id": "m\u0000", "author": "\udfff", "text": "x\u0000y\ud800z"}'
    record = (
        r'{"id": "a\u0000b", "title": "t\ud800", "metadata": {"k\ud800": "v\u0000"}, "messages": ['
        + said
        + "]}"
    )
    (tmp_path / "list.json").write_text(f"[{record}]")
    for path in (exports.lines(tmp_path / "c.jsonl", record), tmp_path / "list.json"):
        ((found,), bad) = exports.read(path)
        assert found.messages[0].text == "x\ufffdy\ufffdz"
        assert found.id == "a b"
        assert bad == []


@pytest.mark.parametrize("title", [r"\udc00x", r"x\ud83d", r"\ud83d\ud83d"])
def test_a_format_is_known_behind_halves_of_characters(tmp_path: Path, title: str) -> None:
    path = tmp_path / "c.json"
    path.write_text('[{"title": "' + title + '", "messages": [{"text": "hello"}]}]')
    ((talk,), bad) = exports.read(path)
    assert "\ufffd" in talk.title and bad == []


@pytest.mark.parametrize("space", range(262_128, 262_153))
def test_halves_of_characters_are_replaced_wherever_a_piece_of_the_file_ends(
    tmp_path: Path, space: int
) -> None:
    said = r"\ud83d\ude00 \ud83d \ude00 \\ud83d \ude00\ud83d \n \" \u0041"
    (tmp_path / "c.json").write_text(
        '[{"id": 1, "messages": [{"text": "'
        + said
        + '"}]}, '
        + " " * (space - 120)
        + '{"id": 2, "messages": [{"text": "'
        + said
        + '"}]}]'
    )
    talks, bad = exports.read(tmp_path / "c.json")
    assert bad == []
    assert [text for one in talks for _, text in exports.texts(one)] == [
        '😀 \ufffd \ufffd \\ud83d \ufffd\ufffd \n " A'
    ] * 2


def test_an_id_that_is_too_long_is_cut_and_stays_its_own(tmp_path: Path) -> None:
    talks, bad = exports.read(
        exports.written(
            tmp_path / "c.json",
            [
                talk("x" * 9_000 + "1", "a"),
                talk("x" * 9_000 + "2", "b"),
                talk("x" * 9_000 + "1", "c"),
            ],
        )
    )
    assert len({one.id for one in talks}) == 2
    assert bad == []
