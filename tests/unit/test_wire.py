"""JSON of the public values: each survives the way there and back, and is as its schema says."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from unspool.domain.answers import Answer
from unspool.domain.conversations import AuthorKind, Conversation, ConversationRecord
from unspool.domain.documents import Chunk, DocumentRecord, Kind, Lines, Passage, Status
from unspool.domain.history import HistoryPage, Record, StreamStatus
from unspool.domain.jobs import Job
from unspool.domain.keys import Key
from unspool.domain.queries import Form, Hit, Origin, Page, Said, Snippet
from unspool.domain.reports import (
    Check,
    IndexReport,
    ProjectStatus,
    ReembedPlan,
    ReembedReport,
    RememberReport,
    StoreStatus,
)
from unspool.wire import REFERENCE, decode, encode, example, make_decoder, schema, write_line

VALUES: tuple[Any, ...] = (
    *(Page, Hit, Chunk, Answer, IndexReport, RememberReport, DocumentRecord, Passage),
    *(Conversation, ConversationRecord, Record, HistoryPage, StreamStatus, ProjectStatus),
    *(StoreStatus, Job, Key, Check, ReembedPlan, ReembedReport),
)
NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
ODD = st.text(max_size=12)  # NUL, controls and whatever else Python takes for text
PLAIN: Mapping[Any, st.SearchStrategy[Any]] = {
    str: ODD,
    int: st.integers(0, 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    datetime: st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    Lines: st.builds(Lines, st.integers(1, 99), st.integers(1, 99)),
    Any: st.none(),
}
# names that the constructors check
CHECKED = {"project", "id", "author", "title", "scenario_title", "url", "name"}


def make(kind: Any) -> st.SearchStrategy[Any]:
    """Return values of a type, made from its annotations."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in SPECIAL:
        return SPECIAL[kind]()
    if kind in PLAIN:
        return PLAIN[kind]
    if is_dataclass(kind):
        return make_object(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    if NoneType in inner:
        return st.none() | make(inner[0])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(
            *(make(one) if one is not str else NAMES for one in inner), max_size=2
        )
    if isinstance(origin, type) and issubclass(origin, Sequence):
        items = make(inner[0])
        if len(inner) > 1 and Ellipsis not in inner:
            return st.tuples(*map(make, inner))
        return st.lists(items, max_size=2).map(list if origin is list else tuple)
    return st.one_of(*map(make, inner))


def make_object(kind: Any, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    parts = {
        one.name: NAMES if one.name in CHECKED and hints[one.name] is str else make(hints[one.name])
        for one in fields(kind)
        if one.name not in given and get_origin(hints[one.name]) is not Callable
    }
    return st.builds(
        kind, **{name: part for name, part in parts.items() if name != "follow"} | given
    )


def make_hit() -> st.SearchStrategy[Hit]:
    """Return hits whose snippet and message are those of the chunk."""

    def build(snippet: Snippet, **values: Any) -> Hit:
        hit = Hit(**values, cut=lambda chunk: snippet)
        said = hit.message and replace(hit.message, text=hit.chunk.text)
        return replace(hit, message=said)

    hints = get_type_hints(Hit)
    parts = {one.name: make(hints[one.name]) for one in fields(Hit) if one.name != "cut"}
    return st.builds(build, snippet=make(Snippet), **parts)


def make_report() -> st.SearchStrategy[Any]:
    return st.just({}) | make(IndexReport).map(encode)


SPECIAL: Mapping[Any, Callable[[], st.SearchStrategy[Any]]] = {
    Hit: make_hit,
    Page: lambda: make_object(Page, follow=st.none()),
    Key: lambda: make_object(
        Key, projects=st.lists(NAMES, min_size=1, max_size=3).map(tuple), name=NAMES
    ),
    Job: lambda: make_object(Job, report=make_report()),
    DocumentRecord: lambda: make_object(DocumentRecord, id=st.just(0)),
    ProjectStatus: lambda: make_object(
        ProjectStatus, documents=st.dictionaries(st.sampled_from(Status), st.integers(1, 99))
    ),
    Conversation: lambda: make_object(
        Conversation,
        messages=make(get_type_hints(Conversation)["messages"]).map(lambda found: found[:1]),
        metadata=st.dictionaries(NAMES, NAMES | st.integers(-9, 9) | st.booleans(), max_size=2),
    ),
}


def check(kind: Any, data: Any) -> None:
    """Raise if JSON is not as the schema of its type says."""
    found: dict[str, Any] = {}
    root = schema(kind, found)
    Draft202012Validator({**root, "components": {"schemas": found}}).validate(data)


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=25, deadline=None)
@given(data=st.data())
def test_a_value_survives_json_and_is_as_its_schema_says(kind: Any, data: st.DataObject) -> None:
    value = data.draw(make(kind))
    full = json.loads(write_line(encode(value, explain=True, full=True, skips=True)))
    back = decode(kind, full)
    assert back == value
    assert encode(back, explain=True, full=True, skips=True) == full  # what is not compared, too
    check(kind, full)
    check(kind, encode(value))


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_the_example_of_a_type_is_valid(kind: Any) -> None:
    found: dict[str, Any] = {}
    described = schema(kind, found)
    check(kind, example(described, found))


def test_routes_answer_with_no_value_that_is_not_tested_here() -> None:
    from unspool.interfaces.http import app  # noqa: F401 - it declares the routes
    from unspool.interfaces.http.routing import SCHEMAS

    found: dict[str, Any] = {}
    for kind in VALUES:
        schema(kind, found)
    assert set(SCHEMAS) <= set(found)


def chunk(**values: Any) -> Chunk:
    given = {"id": 2**63 - 1, "project": "p", "path": "a.py", "index": 0, "text": "x = 1\ny = 2"}
    place = {"start": 0, "end": 11, "lines": Lines(1, 2), "token_count": 6, "kind": Kind.CODE}
    return Chunk(**given | place | values)


def hit(**values: Any) -> Hit:
    snippet = Snippet(text="y = 2", first_line=2, marks=((0, 1),))
    given = {"chunk": chunk(), "score": 0.5, "rank": 1, "origin": Origin.FUSED, "tokens": 6}
    return Hit(**given | {"form": Form.WHOLE, "cut": lambda chunk: snippet} | values)


def test_a_hit_has_the_keys_of_its_chunk_and_further_ones_only_on_request() -> None:
    plain, explained, full = encode(hit()), encode(hit(), explain=True), encode(hit(), full=True)
    assert (plain["path"], plain["lines"], plain["text"]) == ("a.py", [1, 2], "x = 1\ny = 2")
    assert plain["snippet"] == {"text": "y = 2", "first_line": 2, "marks": [[0, 1]]}
    assert explained.keys() - plain.keys() == {"reason"}
    assert full.keys() - plain.keys() == {
        *("id", "index", "level", "defines", "token_count", "status", "full_text")
    }


def test_an_id_of_63_bits_is_text() -> None:
    assert encode(chunk())["id"] == str(2**63 - 1)


@pytest.mark.parametrize(("form", "whole"), [(Form.WHOLE, None), (Form.SNIPPET, "x = 1\ny = 2")])
def test_the_text_of_a_chunk_is_sent_once(form: Form, whole: str | None) -> None:
    data = encode(hit(form=form), full=True)
    assert data["full_text"] == whole
    assert decode(Hit, data).chunk.text == "x = 1\ny = 2"


def test_a_message_leaves_its_text_to_the_hit() -> None:
    said = Said(number=1, speaker="ann", kind=AuthorKind.USER, text="x = 1\ny = 2")
    data = encode(hit(message=said), full=True)
    assert data["message"]["text"] == ""
    assert decode(Hit, data).message == said


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_score_that_json_has_no_word_for_is_null(score: float) -> None:
    data = encode(hit(score=score, chunk=chunk(metadata={"size": score})), full=True)
    assert (data["score"], data["metadata"]) == (None, {"size": None})
    assert math.isnan(decode(Hit, data).score)
    check(Hit, data)


def test_a_project_counts_every_status() -> None:
    status = ProjectStatus(name="p", root="", documents={Status.FAILED: 2}, chunks=1, waiting=0)
    counts = encode(status)["documents"]
    assert counts == {"pending": 0, "indexing": 0, "indexed": 0, "failed": 2, "stale": 0}


def test_unknown_keys_are_ignored_and_missing_ones_have_their_default() -> None:
    assert decode(Check, {"name": "n", "ok": True, "detail": "d", "colour": "red"}).cure == ""
    with pytest.raises(KeyError, match="detail"):
        decode(Check, {"name": "n", "ok": True})


def test_a_decoder_reads_a_value_or_what_is_under_a_key() -> None:
    data = {"checks": [{"name": "n", "ok": True, "detail": "d"}], "count": 1}
    assert make_decoder(list[Check], "checks")(data) == [Check(name="n", ok=True, detail="d")]
    assert make_decoder(int, "count")(data) == 1


def test_a_body_is_described_by_its_keys() -> None:
    found: dict[str, Any] = {}
    body = schema({"checks": list[Check], "next?": int | None, "rows": [{"at": str}]}, found)
    assert body["required"] == ["checks", "rows"]
    assert body["properties"]["checks"]["items"] == {"$ref": f"{REFERENCE}Check"}
    assert body["properties"]["rows"]["items"]["properties"] == {"at": {"type": "string"}}
    assert set(found) == {"Check"}
    assert set(example(schema({"checks": list[str], "next?": int}), {})) == {"checks"}
