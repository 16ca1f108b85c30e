"""Exports of ChatGPT, Claude and Slack: what is read out of them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

import exports
from unspool.domain.conversations import AuthorKind
from unspool.errors import InputError
from unspool.sources.conversations.detection import Format


def test_chatgpt_gives_the_branch_that_was_read_last(tmp_path: Path) -> None:
    path = exports.written(tmp_path / "anything.txt", [exports.chatgpt()])
    ((talk,), bad) = exports.read(path)
    assert exports.detect_format(path) is Format.JSON
    assert exports.texts(talk) == [("user", "Which knot holds best?"), ("assistant", "A bowline.")]
    assert (talk.id, talk.title, talk.url, talk.project) == (
        "6f1c",
        "Knots",
        "https://chatgpt.com/c/6f1c",
        "chats",
    )
    assert talk.created_at == datetime.fromtimestamp(1_700_000_000, UTC)
    assert talk.messages[0].at == datetime.fromtimestamp(1_700_000_000.5, UTC)
    assert [message.id for message in talk.messages] == ["q", "new"]
    assert bad == []


def test_chatgpt_content_of_several_kinds(tmp_path: Path) -> None:
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
    voice = {"content_type": "audio_transcription", "text": "spoken words"}
    said = [
        (
            "multimodal",
            "user",
            {"content_type": "multimodal_text", "parts": [image, "What is this?"]},
            {},
        ),
        ("picture", "user", {"content_type": "multimodal_text", "parts": [image]}, {}),
        ("voice", "user", {"content_type": "multimodal_text", "parts": [voice]}, {}),
        (
            "thoughts",
            "assistant",
            {"content_type": "thoughts", "thoughts": [{"content": "hm"}]},
            {},
        ),
        (
            "call",
            "assistant",
            {"content_type": "code", "language": "python", "text": "print(1)"},
            {"recipient": "python"},
        ),
        ("output", "tool", {"content_type": "execution_output", "text": "1"}, {"name": "python"}),
        (
            "quote",
            "tool",
            {
                "content_type": "tether_quote",
                "url": "https://example.org",
                "text": "as it is written",
            },
            {"name": "browser"},
        ),
        (
            "display",
            "tool",
            {"content_type": "tether_browsing_display", "result": "a page", "summary": None},
            {"name": "browser"},
        ),
        (
            "profile",
            "user",
            {"content_type": "user_editable_context", "user_profile": "I sail."},
            {},
        ),
    ]
    mapping, parent = {}, None
    for name, role, content, more in said:
        mapping[name] = exports.node(name, parent, role, content, **more)
        parent = name
    path = exports.written(
        tmp_path / "c.json", [exports.chatgpt(mapping=mapping, current_node="profile")]
    )
    ((talk,), bad) = exports.read(path)
    assert exports.texts(talk) == [
        ("user", "What is this?"),
        ("user", "[image]"),
        ("user", "spoken words"),
        ("python", "python: print(1)"),
        ("python", "1"),
        ("browser", "as it is written"),
        ("browser", "a page"),
    ]
    assert {message.kind for message in talk.messages[3:]} == {AuthorKind.TOOL}
    assert bad == []


def test_chatgpt_without_a_current_node_takes_the_youngest_leaf_and_circles_end(
    tmp_path: Path,
) -> None:
    young = exports.chatgpt("young", current_node=None)
    young["mapping"]["old"]["message"]["create_time"] = 1_700_000_900
    circle = exports.chatgpt("circle", current_node="q")
    circle["mapping"]["root"]["parent"] = "q"
    (first, second), bad = exports.read(exports.written(tmp_path / "c.json", [young, circle]))
    assert exports.texts(first)[-1] == ("assistant", "A granny knot.")
    assert exports.texts(second) == [("user", "Which knot holds best?")]
    assert bad == []


def test_chatgpt_archives_with_several_files(tmp_path: Path) -> None:
    path = exports.zipped(
        tmp_path / "export.zip",
        {
            "chat.html": b"<html>",
            "user.json": {"id": "u"},
            "conversations-000.json": [exports.chatgpt("one")],
            "conversations-001.json": [
                exports.chatgpt("two"),
                exports.chatgpt("one"),
                {"mapping": 3},
            ],
        },
    )
    counts: Counter[str] = Counter()
    talks, bad = exports.read(path, counts)
    assert exports.detect_format(path) is Format.JSON
    assert [talk.id for talk in talks] == ["one", "two"]
    assert counts["duplicates"] == 1
    assert [one.position for one in bad] == ["conversations-001.json conversation 3"]


def test_an_unpacked_archive_is_read_like_the_archive(tmp_path: Path) -> None:
    exports.written(tmp_path / "export" / "conversations.json", [exports.claude()])
    exports.written(tmp_path / "export" / "users.json", [{"uuid": "x"}])
    ((talk,), _) = exports.read(tmp_path / "export")
    assert talk.title == "The lake"
    assert exports.detect_format(tmp_path / "export") is Format.JSON


def test_claude_gives_text_and_tools_but_no_thoughts(tmp_path: Path) -> None:
    path = exports.zipped(
        tmp_path / "data.zip",
        {"conversations.json": [exports.claude()], "users.json": [], "projects.json": []},
    )
    ((talk,), bad) = exports.read(path)
    assert exports.detect_format(path) is Format.JSON
    assert exports.texts(talk) == [
        ("user", "How deep is the lake?"),
        ("web_search", "web_search: lake depth"),
        ("web_search", "40 m"),
        ("assistant", "Forty metres."),
    ]
    assert [message.id for message in talk.messages] == ["m1", "m2", "m2/2", "m2/3"]
    assert (talk.id, talk.url) == ("a1", "https://claude.ai/chat/a1")
    assert talk.messages[0].at == datetime(2026, 1, 5, 10, 0, 0, 123456, UTC)
    assert bad == []


def test_claude_messages_without_blocks_and_with_files_alone(tmp_path: Path) -> None:
    said = [
        {
            "uuid": "1",
            "sender": "human",
            "text": "An older export",
            "created_at": "2024-01-01T00:00:00Z",
        },
        {
            "uuid": "2",
            "sender": "human",
            "text": "",
            "content": [],
            "attachments": [{"file_name": "notes.txt", "extracted_content": "long"}],
        },
        {"uuid": "3", "sender": "assistant", "text": "", "content": []},
        7,
        {
            "uuid": "5",
            "sender": "human",
            "text": "Look",
            "attachments": [
                {"file_name": "", "extracted_content": "pasted"},
                {"file_name": "x.png"},
            ],
        },
        {"uuid": "6", "sender": "human", "text": "", "files": [{"file_name": "x.png"}]},
    ]
    (talk, other), bad = exports.read(
        exports.written(
            tmp_path / "c.json", [exports.claude(chat_messages=said), exports.claude("a2")]
        )
    )
    assert exports.texts(talk) == [
        ("user", "An older export"),
        ("user", "[file notes.txt]\nlong"),
        ("user", "Look\n\npasted"),
        ("user", "[file x.png]"),
    ]
    assert other.id == "a2"
    assert [one.position for one in bad] == ["conversation 1 message 4"]


def test_conversations_without_messages_are_left_out(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    talks, bad = exports.read(
        exports.written(
            tmp_path / "c.json", [exports.claude("x", chat_messages=[]), exports.claude("y")]
        ),
        counts,
    )
    assert [talk.id for talk in talks] == ["y"]
    assert counts["duplicates"] == 0
    assert bad == []


@pytest.mark.parametrize("form", ["folder", "zip", "zip with a folder in it"])
def test_slack_gives_a_conversation_for_each_channel_and_day(tmp_path: Path, form: str) -> None:
    if form == "folder":
        path = tmp_path / "export"
        for name, value in exports.slack_files().items():
            exports.written(path / name, value)
    else:
        prefix = "workspace/" if "folder" in form else ""
        path = exports.zipped(
            tmp_path / "export.zip",
            {prefix + name: value for name, value in exports.slack_files().items()},
        )
    talks, bad = exports.read(path)
    assert exports.detect_format(path) is Format.SLACK
    assert bad == []
    assert [(talk.id, talk.title) for talk in talks] == [
        ("D9/2026-01-05", "Ann, Bob Baker 2026-01-05"),
        ("general/2026-01-05", "#general 2026-01-05"),
        ("general/2026-01-06", "#general 2026-01-06"),
    ]
    direct, monday, tuesday = talks
    assert exports.texts(monday) == [
        ("Ann", "Hi @Bob Baker, see the plan (https://example.org/a) in #general & tell @here"),
        ("builds", "Build 7 passed"),
        ("Bob Baker", "on it"),
    ]
    assert [message.kind for message in monday.messages] == [
        AuthorKind.USER,
        AuthorKind.ASSISTANT,
        AuthorKind.USER,
    ]
    assert monday.messages[0].at == datetime(2026, 1, 5, 8, 0, 0, 100, UTC)
    assert exports.texts(tuesday) == [("Cy", "https://example.org")]
    assert exports.texts(direct) == [("Bob Baker", "[file map.png]")]


@pytest.mark.parametrize(
    ("attachments", "text"),
    [
        (
            [
                {
                    "fallback": "[no preview available]",
                    "blocks": [
                        {
                            "type": "section",
                            "text": {"type": "mrkdwn", "text": "Disk of <@U1> is full"},
                        }
                    ],
                }
            ],
            "Disk of @Ann is full",
        ),
        (
            [{"fallback": "all in one", "pretext": "Opened", "title": "Fix it", "text": "At last"}],
            "Opened\nFix it\nAt last",
        ),
        (
            [
                {"fields": [{"title": "Host", "value": "db1"}, {"value": "alone"}, 7]},
                {"text": "second"},
            ],
            "Host: db1\nalone\nsecond",
        ),
        ([{"fallback": "only this"}, {"text": None, "title": 5}], "only this"),
    ],
)
def test_a_slack_message_without_text_says_what_is_attached(
    tmp_path: Path, attachments: list[object], text: str
) -> None:
    files = exports.slack_files()
    files["general/2026-01-06.json"] = [
        {
            "subtype": "bot_message",
            "username": "watch",
            "text": "",
            "ts": "1767690000.0",
            "attachments": attachments,
        }
    ]
    talks, bad = exports.read(exports.zipped(tmp_path / "s.zip", files))
    assert exports.texts(talks[-1]) == [("watch", text)]
    assert bad == []


def test_bad_records_of_slack_are_told_by_file_and_number(tmp_path: Path) -> None:
    files = exports.slack_files()
    files["general/2026-01-05.json"] = [
        {"user": "U1", "text": "kept", "ts": "never"},
        5,
        {"user": "U1", "text": ["x"], "ts": "1767600000.1"},
    ]
    files["general/2026-01-07.json"] = (
        b'[{"user": "U1", "text": "before the break", "ts": "1767700000.1"}, {"user"'
    )
    talks, bad = exports.read(exports.zipped(tmp_path / "s.zip", files))
    assert [one.position for one in bad] == [
        "general/2026-01-05.json record 1",
        "general/2026-01-05.json record 2",
        "general/2026-01-05.json record 3",
        "general/2026-01-07.json record 2",
    ]
    assert {text for talk in talks for _, text in exports.texts(talk)} >= {
        "kept",
        "before the break",
    }


@pytest.mark.parametrize("day", ["2026-02-30", "0001-01-01", "9999-12-31"])
def test_a_slack_day_that_cannot_be_is_read_without_a_time(tmp_path: Path, day: str) -> None:
    files = {
        "users.json": [],
        f"general/{day}.json": [{"user": "U1", "text": "kept", "ts": "1767690000.0"}],
    }
    ((talk,), bad) = exports.read(exports.zipped(tmp_path / "s.zip", files))
    assert (talk.id, talk.created_at, exports.texts(talk)) == (
        f"general/{day}",
        None,
        [("U1", "kept")],
    )
    assert [one.position for one in bad] == [f"general/{day}.json"]


def test_the_same_slack_message_twice_is_counted(tmp_path: Path) -> None:
    files = exports.slack_files()
    files["general/2026-01-06.json"] = [{"user": "U1", "text": "once", "ts": "1767690000.0"}] * 2
    counts: Counter[str] = Counter()
    talks, _ = exports.read(exports.zipped(tmp_path / "s.zip", files), counts)
    assert exports.texts(talks[-1]) == [("Ann", "once")]
    assert counts["duplicates"] == 1


def test_a_slack_day_of_very_many_messages_is_several_conversations(tmp_path: Path) -> None:
    day = [
        {"user": "U1", "text": f"m{number}", "ts": f"{1767600000 + number}.0"}
        for number in range(20_001)
    ]
    talks, bad = exports.read(
        exports.zipped(tmp_path / "s.zip", {"users.json": [], "general/2026-01-05.json": day})
    )
    assert [(talk.id, len(talk.messages)) for talk in talks] == [
        ("general/2026-01-05", 20_000),
        ("general/2026-01-05#2", 1),
    ]
    assert bad == []


def test_links_in_a_slack_folder_are_reported_and_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "export"
    for name, value in exports.slack_files().items():
        exports.written(path / name, value)
    (path / "loop").symlink_to(path, target_is_directory=True)
    (path / "general" / "2026-01-09.json").symlink_to(path / "general" / "2026-01-05.json")
    talks, bad = exports.read(path)
    assert [one.position for one in bad] == ["general/2026-01-09.json", "loop"]
    assert len(talks) == 3


def test_names_with_tricks_in_an_archive_are_no_days(tmp_path: Path) -> None:
    day = [{"user": "U1", "text": "x", "ts": "1767600000.1"}]
    path = exports.zipped(
        tmp_path / "s.zip",
        {
            "users.json": [],
            "../../2026-01-05.json": day,
            "../../up/2026-01-05.json": day,
            "ok/2026-01-05.json": day,
        },
    )
    talks, _ = exports.read(path)
    assert [talk.id for talk in talks] == ["ok/2026-01-05"]
    assert {one.name for one in tmp_path.iterdir()} == {"s.zip"}


def test_a_folder_that_is_no_export_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("hello")
    with pytest.raises(InputError, match="holds no conversations"):
        exports.detect_format(tmp_path)


def test_blank_blocks_of_claude_give_way_to_the_text(tmp_path: Path) -> None:
    said = [
        {"sender": "human", "text": "Ahoy", "content": [{"type": "text", "text": blank}]}
        for blank in ("", None)
    ]
    (talk,), bad = exports.read(
        exports.written(tmp_path / "c.json", [exports.claude(chat_messages=said)])
    )
    assert exports.texts(talk) == [("user", "Ahoy")] * 2
    assert bad == []


def test_empty_answers_and_calls_of_tools_are_left_out(tmp_path: Path) -> None:
    conversation = exports.chatgpt(current_node="c")
    conversation["mapping"] |= {
        "a": exports.node("a", "new", "tool", "", name="browser"),
        "b": exports.node("b", "a", "assistant", "", recipient="python"),
        "c": exports.node("c", "b", "tool", {"content_type": "computer_output"}, name="computer"),
    }
    (talk,), bad = exports.read(exports.written(tmp_path / "c.json", [conversation]))
    assert exports.texts(talk) == [
        ("user", "Which knot holds best?"),
        ("assistant", "A bowline."),
        ("computer", "[image]"),
    ]
    assert bad == []


def test_a_slack_member_with_half_a_character_in_the_id_is_named(tmp_path: Path) -> None:
    files = exports.slack_files() | {"dms.json": [{"id": "D9", "members": ["U1", "x\udc80y"]}]}
    talks, bad = exports.read(exports.zipped(tmp_path / "export.zip", files))
    assert "Ann, x\ufffdy 2026-01-05" in [talk.title for talk in talks]
    assert bad == []


@pytest.mark.parametrize("record", [{"messages": {}}, {"chat_messages": {}}])
def test_messages_that_are_no_list_are_reported(tmp_path: Path, record: dict[str, object]) -> None:
    talks, bad = exports.read(exports.lines(tmp_path / "c.jsonl", record))
    assert talks == []
    assert [one.reason for one in bad] == ["its messages are an object; give a list"]
