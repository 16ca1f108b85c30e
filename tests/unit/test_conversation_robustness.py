"""Whatever JSON is in an export, the reader gives conversations and complaints, and never
breaks.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import exports
from unspool.domain.conversations import Conversation
from unspool.domain.reports import BadRecord
from unspool.errors import InputError
from unspool.sources import conversations

KEYS = st.sampled_from(
    "id uuid title name created_at create_time messages chat_messages mapping current_node "
    "conversation_id parent message author role sender"
    " kind at ts timestamp text content content_type parts type payload sessionId uuid leafUuid "
    "summary isSidechain agentId tool_calls"
    " function arguments tool_use_id input metadata conversations conversation user subtype "
    "files attachments blocks elements profile"
    " members recipient output action call_id".split()
)
TYPES = st.sampled_from(
    "user assistant system tool human text tool_use tool_result thinking image summary "
    "session_meta response_item event_msg message function_call"
    " function_call_output user_message custom-title multimodal_text code bot_message q new "
    "root".split()
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=8)
    | TYPES
)
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=6)
    ),
    max_leaves=25,
)


@st.composite
def damaged(draw: st.DrawFn, value: Any) -> Any:
    """An export in which some values have been replaced by others."""
    if draw(st.integers(0, 12)) == 0:
        return draw(JSON)
    if isinstance(value, dict):
        return {key: draw(damaged(one)) for key, one in value.items()}
    if isinstance(value, list):
        return [draw(damaged(one)) for one in value]
    return value


def survives(data: bytes, suffix: str = "") -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"export{suffix}"
        path.write_bytes(data)
        check(path)


def check(path: Path) -> None:
    try:
        reading = conversations.read(path, project="chats")
    except InputError:  # it is no export; once reading has begun there is no such end
        return
    found = list(reading)
    ids = [one.id for one in found if isinstance(one, Conversation)]
    assert len(ids) == len(set(ids))
    for one in found:
        if isinstance(one, BadRecord):
            assert one.reason
            assert one.position
        else:
            assert one.messages
    assert found == list(conversations.read(path, project="chats"))


@given(JSON)
@settings(max_examples=120, deadline=None)
def test_any_json_document(value: Any) -> None:
    survives(json.dumps(value).encode())


@given(st.lists(JSON, max_size=6))
@settings(max_examples=120, deadline=None)
def test_any_json_lines(values: list[Any]) -> None:
    survives("\n".join(json.dumps(value) for value in values).encode())


@given(
    st.sampled_from(
        [[exports.chatgpt()], [exports.claude()], {"messages": [{"role": "user", "content": "x"}]}]
    ).flatmap(damaged)
)
@settings(max_examples=120, deadline=None)
def test_exports_with_values_of_wrong_types(value: Any) -> None:
    survives(json.dumps(value).encode())


LINES = [
    {
        "type": "user",
        "sessionId": "s",
        "uuid": "1",
        "timestamp": "2026-01-05T10:00:00Z",
        "message": {"role": "user", "content": [{"type": "text", "text": "x"}]},
    },
    {
        "timestamp": "2026-01-05T10:00:00Z",
        "type": "response_item",
        "payload": {"type": "function_call", "name": "n", "arguments": "{}", "call_id": "c"},
    },
    {
        "timestamp": "2026-01-05T10:00:00Z",
        "type": "session_meta",
        "payload": {"id": "r", "git": {"branch": "b"}},
    },
    {"type": "summary", "summary": "t", "leafUuid": "1"},
]


@given(st.lists(st.sampled_from(LINES).flatmap(damaged), min_size=1, max_size=6))
@settings(max_examples=120, deadline=None)
def test_transcripts_with_values_of_wrong_types(values: list[Any]) -> None:
    survives("\n".join(json.dumps(value) for value in [LINES[0], *values]).encode())


@given(
    st.fixed_dictionaries({name: damaged(value) for name, value in exports.slack_files().items()})
)
@settings(max_examples=80, deadline=None)
def test_slack_with_values_of_wrong_types(files: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(exports.zipped(Path(folder) / "s.zip", files))


@given(st.binary(max_size=200), st.integers(0, 500), st.integers(0, 40))
@settings(max_examples=100, deadline=None)
def test_bytes_in_the_middle(junk: bytes, at: int, gone: int) -> None:
    data = json.dumps([exports.claude("x"), exports.claude("y")]).encode()
    survives(data[:at] + junk + data[at + gone :])
