"""Files as they come: truncated, empty, binary, in other encodings, archives with tricks, and
how much of them is read.
"""

from __future__ import annotations

import gzip
import json
import os
import zipfile
from pathlib import Path

import pytest

import exports
from unspool.domain.conversations import Conversation
from unspool.errors import InputError, NotFoundError
from unspool.sources import conversations
from unspool.sources.conversations import loading, opening, streams
from unspool.sources.conversations.detection import Format

PLAIN = [{"id": name, "messages": [{"role": "user", "text": f"é {name}"}]} for name in "abc"]
SAMPLES = {
    "json": json.dumps(PLAIN).encode(),
    "indented": json.dumps(PLAIN, indent=2, ensure_ascii=False).encode(),
    "jsonl": b"".join(json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in PLAIN),
    "chatgpt": json.dumps([exports.chatgpt("x"), exports.chatgpt("y")]).encode(),
    "claude": json.dumps([exports.claude("x"), exports.claude("y")]).encode(),
    "one": json.dumps(PLAIN[0]).encode(),
}


@pytest.mark.parametrize("form", SAMPLES)
def test_a_file_cut_at_any_byte_gives_what_is_before_the_cut_and_says_so(
    tmp_path: Path, form: str
) -> None:
    whole = SAMPLES[form]
    path = tmp_path / "cut"
    path.write_bytes(whole)
    all_, bad = exports.read(path)
    assert bad == []
    most = 0
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        try:
            talks, bad = exports.read(path)
        except InputError:
            assert most == 0, f"what was known is not known any more when {cut} bytes are there"
            continue
        assert talks == all_[: len(talks)]
        assert len(talks) >= most
        most = len(talks)
        assert (
            bad
            or len(talks) == len(all_)
            or whole[:cut].endswith(b"\n")
            or whole[cut : cut + 1] == b"\n"
        ), f"nothing was said of the cut at {cut}"
    assert most >= len(all_) - 1


@pytest.mark.parametrize("form", ["chatgpt", "slack"])
def test_an_archive_cut_at_any_byte_never_breaks_the_reader(tmp_path: Path, form: str) -> None:
    members = (
        {"conversations.json": [exports.chatgpt()]} if form == "chatgpt" else exports.slack_files()
    )
    whole = exports.zipped(tmp_path / "whole.zip", members).read_bytes()
    path = tmp_path / "cut.zip"
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError):
            exports.read(path)


def test_a_damaged_member_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "c.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("conversations-000.json", json.dumps([exports.chatgpt("x")]))
        archive.writestr("conversations-001.json", json.dumps([exports.chatgpt("damaged")]))
        archive.writestr("conversations-002.json", json.dumps([exports.chatgpt("y")]))
    path.write_bytes(path.read_bytes().replace(b'"damaged"', b'"demaged"'))
    talks, bad = exports.read(path)
    assert {"x", "y"} <= {talk.id for talk in talks}
    assert bad[0].position.startswith("conversations-001.json")


@pytest.mark.parametrize("content", [b"", b"\n  \n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.json").write_bytes(content)
    with pytest.raises(InputError, match="is empty"):
        exports.detect_format(tmp_path / "c.json")


@pytest.mark.parametrize(
    "content",
    [bytes(range(256)), b"\x89PNG\r\n\x1a\n\x00\x00", gzip.compress(b"[]", mtime=0), b"\x00" * 100],
)
def test_a_binary_file_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.json").write_bytes(content)
    with pytest.raises(InputError, match="is binary"):
        conversations.read(tmp_path / "c.json", project="chats")


@pytest.mark.parametrize(
    "content",
    [
        "hello there",
        "# Notes\n\ntext",
        '{"name": "pkg", "version": 1}',
        "[1, 2, 3]",
        '"text"',
        "17",
        "null",
        "{",
        '{"a": 1}\n{"b": 2}\n',
        "name,text\na,b\n",
    ],
)
def test_a_file_that_is_no_conversations_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "c.json").write_text(content)
    with pytest.raises(InputError, match="no conversations"):
        exports.detect_format(tmp_path / "c.json")


def test_an_export_without_conversations_is_read_as_none(tmp_path: Path) -> None:
    assert exports.read(exports.written(tmp_path / "c.json", [])) == ([], [])


def test_what_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        exports.detect_format(tmp_path / "missing.json")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError) as raised:
        exports.detect_format(tmp_path / "pipe")
    assert (
        str(raised.value)
        == f"{tmp_path / 'pipe'} is neither a file nor a folder; give an export of conversations"
    )
    with pytest.raises(InputError, match="too long"):
        exports.detect_format(tmp_path / ("a" * 300))
    with pytest.raises(InputError, match="project name"):
        conversations.read(exports.written(tmp_path / "c.json", PLAIN), project="a,b")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("form", ["indented", "jsonl"])
def test_other_encodings_of_unicode_are_read(tmp_path: Path, encoding: str, form: str) -> None:
    (tmp_path / "c").write_bytes(SAMPLES[form].decode().encode(encoding))
    talks, bad = exports.read(tmp_path / "c")
    assert [talk.messages[0].text for talk in talks] == ["é a", "é b", "é c"]
    assert bad == []


def test_bytes_that_are_not_utf8_are_reported(tmp_path: Path) -> None:
    rows = [json.dumps(one, ensure_ascii=False).encode() for one in PLAIN]
    rows[1] = rows[1].decode().encode("latin-1")
    (tmp_path / "c.jsonl").write_bytes(b"\n".join(rows))
    talks, bad = exports.read(tmp_path / "c.jsonl")
    assert [talk.id for talk in talks] == ["a", "c"]
    assert [(one.position, one.reason) for one in bad] == [("line 2", "it is not UTF-8")]
    (tmp_path / "c.json").write_bytes(b"[" + b",".join(rows) + b"]")
    talks, bad = exports.read(tmp_path / "c.json")
    assert [talk.id for talk in talks] == ["a", "c"]
    assert [(one.position, one.reason) for one in bad] == [("conversation 2", "it is not UTF-8")]


def test_an_archive_that_unpacks_without_end_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("conversations.json", "w") as member,
    ):
        member.write(
            b'[{"id": "before", "messages": [{"text": "kept"}]}, {"id": "bomb", "messages": [{"text": "'
        )
        for _ in range(70):
            member.write(b"a" * 2**20)
        member.write(b'"}]}]')
    assert path.stat().st_size < 2**20
    talks, bad = exports.read(path)
    assert [talk.id for talk in talks] == ["before"]
    assert [one.position for one in bad] == ["conversations.json conversation 2"]
    assert f"{opening.MAX_RATIO} times" in bad[0].reason


def test_a_member_with_a_password_is_reported(tmp_path: Path) -> None:
    path = exports.zipped(tmp_path / "c.zip", {"conversations.json": [exports.claude()]})
    data = bytearray(path.read_bytes())
    data[6] |= 1  # the flag of encryption, in the member's head and in the directory
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="cannot be read"):
        exports.detect_format(path)


def test_an_archive_without_conversations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no conversations"):
        exports.detect_format(exports.zipped(tmp_path / "c.zip", {"a.txt": b"hello"}))
    with pytest.raises(InputError, match="holds no conversations"):
        exports.detect_format(exports.zipped(tmp_path / "empty.zip", {}))


def test_a_line_that_is_too_long_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_RECORD_CHARS", 1_000)
    rows = [PLAIN[0], {"id": "long", "messages": [{"text": "x" * 200_000}]}, PLAIN[1]]
    talks, bad = exports.read(exports.lines(tmp_path / "c.jsonl", *rows))
    assert [talk.id for talk in talks] == ["a", "b"]
    assert [one.position for one in bad] == ["line 2"]


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        (json.dumps([{"text": "x" * 20_000}]), "longer than 10000 characters"),
        ("[" * 5_000 + "]" * 5_000, "nested too deeply"),
    ],
)
def test_a_document_is_read_up_to_a_conversation_that_is_too_large_or_too_deep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: str, reason: str
) -> None:
    monkeypatch.setattr(streams, "MAX_RECORD_CHARS", 10_000)
    text = json.dumps([PLAIN[0], PLAIN[1], {"id": "bad", "messages": 0}, PLAIN[2]])
    (tmp_path / "c.json").write_text(text.replace('"messages": 0', f'"messages": {messages}'))
    talks, bad = exports.read(tmp_path / "c.json")
    assert [talk.id for talk in talks] == ["a", "b"]
    assert [one.position for one in bad] == ["conversation 3"]
    assert reason in bad[0].reason
    assert "nothing behind this place was read" in bad[0].reason


def test_a_document_of_many_values_is_not_loaded_beyond_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_RECORD_CHARS", 10_000)
    values = {f"note {number}": "x" * 3_000 for number in range(5)}
    document = json.dumps({"messages": [{"text": "a"}], **values}, indent=1)
    (tmp_path / "c.json").write_text(document)
    talks, bad = exports.read(tmp_path / "c.json")
    assert talks == []
    assert ["longer than 10000 characters" in one.reason for one in bad] == [True]
    # beside a list of conversations, other values are not kept
    wrapped = json.dumps({"conversations": PLAIN, **values}, indent=1)
    (tmp_path / "d.json").write_text(wrapped)
    talks, bad = exports.read(tmp_path / "d.json")
    assert [talk.id for talk in talks] == [one["id"] for one in PLAIN]
    assert bad == []


def test_a_conversation_that_is_nested_deeply_is_a_bad_record(tmp_path: Path) -> None:
    text = json.dumps([PLAIN[0], {"id": "deep", "messages": 0}, PLAIN[1]])
    deep = "[" * 500 + "]" * 500
    (tmp_path / "c.json").write_text(text.replace('"messages": 0', f'"messages": {deep}'))
    talks, bad = exports.read(tmp_path / "c.json")
    assert [talk.id for talk in talks] == ["a", "b"]
    assert [one.position for one in bad] == ["conversation 2 message 1"]


def test_a_text_without_end_is_not_held_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_RECORD_CHARS", 200_000)
    fits = {"id": "fits", "messages": [{"text": 'quoted "words" ' * 8_000}]}
    long = {"id": "long", "messages": [{"text": 'quoted "words" ' * 80_000}]}
    talks, bad = exports.read(exports.written(tmp_path / "c.json", [fits, long, PLAIN[0]]))
    assert [talk.id for talk in talks] == ["fits"]
    assert [one.position for one in bad] == ["conversation 2"]


def test_a_line_that_is_nested_without_end_is_a_bad_record(tmp_path: Path) -> None:
    path = exports.lines(
        tmp_path / "c.jsonl",
        PLAIN[0],
        '{"messages": ' + "[" * 200_000 + "]" * 200_000 + "}",
        PLAIN[1],
    )
    talks, bad = exports.read(path)
    assert [talk.id for talk in talks] == ["a", "b"]
    assert [one.position for one in bad] == ["line 2"]


@pytest.mark.parametrize("form", ["file", "archive", "slack"])
def test_bytes_are_counted_up_to_the_size(tmp_path: Path, form: str) -> None:
    if form == "file":
        path = exports.written(tmp_path / "c.json", PLAIN * 1_000)
    elif form == "archive":
        path = exports.zipped(
            tmp_path / "c.zip", {"conversations.json": PLAIN * 1_000, "user.json": {}}
        )
    else:
        path = exports.zipped(tmp_path / "s.zip", exports.slack_files())
    seen: list[int] = []
    list(conversations.read(path, project="chats", on_bytes=seen.append))
    assert seen == sorted(seen)
    assert seen[-1] == conversations.measure(path)


def test_conversations_come_before_the_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = exports.written(
        tmp_path / "c.json",
        [{"id": str(number), "messages": [{"text": "x" * 1_000}]} for number in range(2_000)],
    )
    seen = [0]
    first = next(iter(conversations.read(path, project="chats", on_bytes=seen.append)))
    assert isinstance(first, Conversation)
    assert seen[-1] < conversations.measure(path) / 4


def test_a_format_is_not_told_by_the_name(tmp_path: Path) -> None:
    assert (
        exports.detect_format(exports.lines(tmp_path / "conversations.json", *PLAIN))
        is Format.JSONL
    )
    assert (
        exports.detect_format(exports.written(tmp_path / "c.jsonl", [exports.claude()]))
        is Format.JSON
    )
    assert (
        exports.detect_format(
            exports.zipped(tmp_path / "c.txt", {"conversations.json": [exports.chatgpt()]})
        )
        is Format.JSON
    )


def test_a_folder_stands_for_the_exports_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "projects"
    (folder / "boats").mkdir(parents=True)
    one = exports.lines(folder / "boats" / "a.jsonl", {"id": "a", "messages": [{"text": "walrus"}]})
    two = exports.written(folder / "b.json", {"id": "b", "messages": [{"text": "penguin"}]})
    (folder / "package.json").write_text('{"name": "no conversation"}')
    (folder / "notes.txt").write_text("nothing that is looked at")
    (folder / "again.jsonl").symlink_to(one)
    (folder / "boats" / "up").symlink_to(folder)
    intake = loading.ImportCounts()
    (batch,) = loading.read_batches([folder], project="chats", counts=intake)
    assert [conversation.id for conversation in batch] == ["b", "a"]
    assert [warning.rpartition(": ")[2] for warning in intake.warnings] == ["2"]
    (batch,) = loading.read_batches([one, two], project="chats", counts=loading.ImportCounts())
    assert [conversation.id for conversation in batch] == ["a", "b"]
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", folder / "package.json"):
        with pytest.raises(InputError):
            list(loading.read_batches([path], project="chats", counts=loading.ImportCounts()))
