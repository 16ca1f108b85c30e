"""Decoding of JSON-RPC messages.

Every message that a client may wait for gets an answer, also an invalid one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, BinaryIO

from mcp_types import INVALID_REQUEST, PARSE_ERROR
from mcp_types.jsonrpc import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import from_json

MAX_BYTES = 100_000_000  # of one message over stdin: a longer one would exhaust the memory
MAX_TOKENS = 100_000  # of an invalid message that are scanned for its id
TAIL = 4_096  # bytes of the end of a message that is too long
_STRING = r'"(?:[^"\\]|\\.)*+"?'  # without its end, too: scanning stays linear
_VALUE = re.compile(rf"\s*:\s*(-?\d{{1,18}}(?![\d.eE])|{_STRING})", re.DOTALL)
_TOKEN = re.compile(rf"{_STRING}|[\[\]{{}}]", re.DOTALL)
_LAST = re.compile(rf'"id"{_VALUE.pattern}\s*\}}\s*\Z', re.DOTALL)


class MessageError(ValueError):
    """Error for a message that is not a valid request, notification or response.

    `response` is the answer to it.
    """

    def __init__(
        self, reason: str, *, request_id: RequestId | None = None, code: int = INVALID_REQUEST
    ) -> None:
        super().__init__(reason)
        self.response = JSONRPCError(
            jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=reason)
        )


def decode_message(data: bytes) -> JSONRPCMessage:
    """Return the message in some bytes.

    Raise `MessageError` with the id of the request where one can be found.
    """
    try:
        value = from_json(data)
    except ValueError as error:
        raise MessageError(
            f"the message is not JSON in UTF-8 ({str(error)[:80]}); send strict JSON",
            request_id=find_id(data),
            code=PARSE_ERROR,
        ) from None
    if not isinstance(value, dict):
        raise MessageError(
            "the message is not an object; send one request at a time, batches are not supported"
        )
    request_id = _get_id(value)
    if "id" in value and request_id is None and "error" not in value:
        raise MessageError("the id of the message is not a text or a whole number; give one")
    try:
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValidationError:
        reason = "the message is not valid JSON-RPC 2.0; give jsonrpc, id, method and params"
        # The id of a reply is one of ours: with it, the answer would be taken for another
        # request's.
        is_reply = "result" in value or "error" in value
        raise MessageError(reason, request_id=None if is_reply else request_id) from None


def read_message(stream: BinaryIO, *, max_bytes: int = MAX_BYTES) -> JSONRPCMessage | None:
    """Read one line from a stream and decode it; None at the end of the stream.

    Empty lines are skipped.
    """
    while line := stream.readline(max_bytes):
        if len(line) == max_bytes and not line.endswith(b"\n"):
            request_id = find_id(line + _skip_line(stream))
            reason = f"the message is longer than {max_bytes} bytes; send it in parts"
            raise MessageError(reason, request_id=request_id)
        if not line.isspace():
            return decode_message(line)
    return None


def find_id(data: bytes) -> RequestId | None:
    """Return the id of a request that cannot be parsed, or None."""
    text = data.decode("utf-8", "replace")
    if '"method"' not in text:
        return None
    depth = 0
    for count, token in enumerate(_TOKEN.finditer(text)):
        if count == MAX_TOKENS:
            break
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
        if depth == 1 and token[0] == '"id"' and (value := _VALUE.match(text, token.end())):
            return _parse_id(value[1])
    else:
        return None
    last = _LAST.search(text, max(0, len(text) - TAIL))
    return _parse_id(last[1]) if last else None


def _parse_id(text: str) -> RequestId | None:
    try:
        return _get_id({"id": from_json(text)})
    except ValueError:
        return None


def _get_id(value: Mapping[str, Any]) -> RequestId | None:
    given = value.get("id")
    return given if isinstance(given, int | str) and not isinstance(given, bool) else None


def _skip_line(stream: BinaryIO) -> bytes:
    """Read up to the end of a line and return its last bytes."""
    last = b""
    while chunk := stream.readline(TAIL):
        last = (last + chunk)[-TAIL:]
        if chunk.endswith(b"\n"):
            break
    return last
