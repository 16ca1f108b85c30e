"""Shapes of the requests and answers of Pinecone's API that the adapter uses, as JSON Schema.

They follow the published OpenAPI documents (Apache 2.0), version 2026-04, the newest one that is
published. Only the fields in use are written down, and unknown fields of requests are rejected, so
that a misspelled one is noticed.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def _object(
    required: tuple[str, ...] = (), *, is_open: bool = False, **properties: Schema
) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": is_open,
    }


def _list(items: Schema, **limits: int) -> Schema:
    return {"type": "array", "items": items, **limits}


TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
ID: Schema = {"type": "string", "minLength": 1, "maxLength": 512}
NUMBERS = _list({"type": "number"}, minItems=1, maxItems=20_000)
ANY_OBJECT: Schema = {"type": "object"}
USAGE = _object(readUnits=COUNT)
PAGINATION = _object(next=TEXT)
STATUS = _object(code={"type": "integer"}, message=TEXT, details=_list(ANY_OBJECT))
METADATA: Schema = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number", "boolean", "array"]},
}
NAMESPACE = _object(
    name=TEXT, record_count=COUNT, schema=ANY_OBJECT, indexed_fields=ANY_OBJECT, size_bytes=COUNT
)
# the client 10.2 speaks version 2026-07, whose description of an index is another one; this follows
# the page of the reference that shows it
INDEX = _object(
    ("name", "host", "schema", "deployment", "status", "deletion_protection"),
    name={"type": "string", "minLength": 1, "maxLength": 45},
    host=TEXT,
    schema=_object(("fields",), fields={"type": "object", "additionalProperties": ANY_OBJECT}),
    deployment=_object(("deployment_type",), is_open=True, deployment_type=TEXT),
    read_capacity=ANY_OBJECT,
    status=_object(("ready", "state"), ready=FLAG, state=TEXT),
    deletion_protection=TEXT,
)

# of a body, by the name of the operation; those without a body have none
REQUESTS: dict[str, Schema] = {
    "upsert": _object(
        ("vectors",),
        vectors=_list(
            _object(("id", "values"), id=ID, values=NUMBERS, metadata=METADATA),
            minItems=1,
            maxItems=1_000,
        ),
        namespace=TEXT,
    ),
    "query": _object(
        ("topK",),
        namespace=TEXT,
        topK={"type": "integer", "minimum": 1, "maximum": 10_000},
        filter=ANY_OBJECT,
        includeValues=FLAG,
        includeMetadata=FLAG,
        vector=NUMBERS,
        id=ID,
    ),
    "delete": _object(
        ids=_list(ID, minItems=1, maxItems=1_000), deleteAll=FLAG, namespace=TEXT, filter=ANY_OBJECT
    ),
    "stats": _object(filter=ANY_OBJECT),
}
# of the query string
PARAMETERS: dict[str, frozenset[str]] = {
    "list": frozenset({"prefix", "limit", "paginationToken", "namespace"}),
    "namespaces": frozenset({"prefix", "limit", "paginationToken"}),
}
# of a successful answer
ANSWERS: dict[str, Schema] = {
    "upsert": _object(upsertedCount=COUNT),
    "query": _object(
        matches=_list(
            _object(("id",), id=ID, score={"type": "number"}, values=NUMBERS, metadata=METADATA)
        ),
        namespace=TEXT,
        usage=USAGE,
    ),
    "delete": _object(),
    "stats": _object(
        namespaces={"type": "object", "additionalProperties": _object(vectorCount=COUNT)},
        dimension=COUNT,
        indexFullness={"type": "number"},
        totalVectorCount=COUNT,
        metric=TEXT,
        vectorType=TEXT,
    ),
    "list": _object(
        vectors=_list(_object(id=ID)), pagination=PAGINATION, namespace=TEXT, usage=USAGE
    ),
    "namespaces": _object(namespaces=_list(NAMESPACE), pagination=PAGINATION, total_count=COUNT),
    "namespace": NAMESPACE,
    "delete_namespace": _object(),
    "index": INDEX,
}
