"""Messages that clients send: each that can be waited for is either valid or refused with its
own id.
"""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("mcp", reason="messages need the package mcp; pip install 'unspool[mcp]'")

from mcp_types import INVALID_REQUEST, PARSE_ERROR, JSONRPCRequest

from unspool.interfaces.mcp.messages import MessageError, decode_message, find_id, read_message

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
ids = st.integers(-(10**17), 10**17) | st.text(st.characters(exclude_categories=["Cs"]))


def refusal(data: bytes) -> MessageError:
    with pytest.raises(MessageError) as caught:
        decode_message(data)
    return caught.value


@settings(deadline=None)
@given(ids, st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), values, max_size=4))
def test_a_request_is_decoded_or_refused_with_its_id(
    id_: int | str, params: dict[str, Any]
) -> None:
    data = json.dumps({"params": params, "jsonrpc": "2.0", "method": "x", "id": id_}).encode()
    try:
        message = decode_message(data)
    except MessageError as error:  # a lone surrogate
        assert error.response.id == id_
    else:
        assert isinstance(message, JSONRPCRequest)
        assert message.id == id_


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(0, 200), ids)
@example(b"\xff", 80, 7)
@example(b'\\ud800"', 60, "a")
def test_bytes_inserted_anywhere_lead_to_a_message_or_a_refusal(
    noise: bytes, place: int, id_: int | str
) -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": id_, "method": "x", "params": {"a": [{}, "b"]}})
    data = text.encode()[:place] + noise + text.encode()[place:]
    try:
        decode_message(data)
    except MessageError as error:
        assert error.response.error.code in (PARSE_ERROR, INVALID_REQUEST)


@pytest.mark.parametrize(
    "argument",
    [
        b"9" * 5_001,
        b"-" + b"9" * 5_001,
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"id":' * 300 + b"5" + b"}" * 300,
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\\ud800"',
        b'"\x01"',
        b"nan",
        b"01",
        b"",
    ],
    ids=lambda argument: argument[:12].hex(),
)
@pytest.mark.parametrize(
    "envelope",
    [
        b'{"jsonrpc":"2.0","id":41,"method":"tools/call","params":{"id":7,"x":%s}}',
        b'{"method":"tools/call","params":{"x":%s},"jsonrpc":"2.0","id" : 41 }\n',
    ],
)
def test_a_request_that_is_not_json_is_refused_with_its_id(
    envelope: bytes, argument: bytes
) -> None:
    error = refusal(envelope % argument)
    assert error.response.id == 41
    assert error.response.error.code == PARSE_ERROR


@pytest.mark.parametrize(
    ("data", "id_"),
    [
        (b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % (b"9" * 5_001), None),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', None),
        (b'{"jsonrpc":"1.0","id":3,"method":"ping"}', 3),
        (b'{"jsonrpc":"2.0","id":"a\\"b","method":"ping","params":[1]}', 'a"b'),
        (b'{"jsonrpc":"2.0","id":"a\\"b","method":"ping","params":[', 'a"b'),
        (b'{"jsonrpc":"2.0","id":3,"method":5}', 3),
        (b'{"jsonrpc":"2.0","id":3}', 3),
        (b'{"jsonrpc":"2.0","id":3,"result":[]}', None),
        (b'{"jsonrpc":"2.0","id":3,"result":NaN', None),
        (b'[{"jsonrpc":"2.0","id":3,"method":"ping"}]', None),
        (b"7", None),
        (b"\x00", None),
    ],
)
def test_what_is_not_valid_json_rpc_is_refused(data: bytes, id_: int | str | None) -> None:
    assert refusal(data).response.id == id_


def test_the_last_of_two_equal_names_counts() -> None:
    message = decode_message(b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}')
    assert isinstance(message, JSONRPCRequest)
    assert message.id == 2


@pytest.mark.parametrize("is_last", [False, True])
def test_a_line_that_is_too_long_is_refused_with_its_id_and_the_next_one_is_read(
    is_last: bool,
) -> None:
    pairs = [b'"id":7', b'"method":"x"', b'"params":{"a":"' + b"y" * 100_000 + b'"}']
    line = b'{"jsonrpc":"2.0",' + b",".join(pairs[::-1] if is_last else pairs) + b"}\n"
    stream = io.BytesIO(line + b'\n \r\n{"jsonrpc":"2.0","id":8,"method":"ping"}\n')
    with pytest.raises(MessageError) as caught:
        read_message(stream, max_bytes=50_000)
    assert caught.value.response.id == 7
    message = read_message(stream, max_bytes=50_000)
    assert isinstance(message, JSONRPCRequest)
    assert message.id == 8
    assert read_message(stream) is None


def test_a_line_without_an_end_is_read_up_to_the_end_of_the_stream() -> None:
    with pytest.raises(MessageError):
        read_message(io.BytesIO(b"[" * 20_000), max_bytes=10_000)


@settings(deadline=None)
@given(st.text(alphabet='{}[]":\\,id7', max_size=60))
def test_an_id_is_searched_for_in_any_text(text: str) -> None:
    found = find_id(f'"method"{text}'.encode())
    assert found is None or isinstance(found, int | str)
