"""JSON of the public values, derived from their types: to JSON, back, and as a schema.

The command line, the HTTP service, MCP and the client use this package alone. docs/json.md
describes the keys.
"""

from __future__ import annotations

from unspool.wire.codec import decode, encode, make_decoder, write_line
from unspool.wire.forms import Json
from unspool.wire.schemas import REFERENCE, example, schema

__all__ = [
    "REFERENCE",
    "Json",
    "decode",
    "encode",
    "example",
    "make_decoder",
    "schema",
    "write_line",
]
