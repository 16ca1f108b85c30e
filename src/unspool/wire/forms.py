"""Special forms: the differences between the fields of a class and the keys of its JSON.

A class without an entry in `FORMS` has a key for each field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from operator import attrgetter
from types import NoneType
from typing import Any, NamedTuple, get_args, get_type_hints

from unspool.domain.answers import Citation
from unspool.domain.documents import Chunk, DocumentRecord, Status
from unspool.domain.history import HistoryPage, Record
from unspool.domain.jobs import Job
from unspool.domain.queries import Form, Hit, Page, Said, Source
from unspool.domain.reports import IndexReport, ProjectStatus

Json = Any  # a JSON value: None, bool, int, float, str, list or dict
Getter = Callable[[Any], Any]
PLAIN = frozenset({str, int, bool, NoneType})  # types of which JSON has the same values


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonForm:
    """JSON form of a class.

    `keys` are added, or replace those of fields. Each names an attribute, dotted for one of an
    inner value, or has a function. `kinds` are types of keys where no attribute has them.
    `optional` keys are sent if the option after them is set. `restore` gives every required field
    its key again.
    """

    keys: Mapping[str, str | Getter] = field(default_factory=dict)
    kinds: Mapping[str, Any] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    optional: Mapping[str, str] = field(default_factory=dict)
    restore: Callable[[Json], Json] = lambda data: data


def _restore_chunk(data: Json) -> Json:
    return {**data, "id": int(data["id"])}


def _get_message(hit: Hit) -> Said | None:
    """Return the message without its text, which is the hit's."""
    return None if hit.message is None else replace(hit.message, text="")


def _restore_hit(data: Json) -> Json:
    text = data["text"] if data["full_text"] is None else data["full_text"]
    message = data["message"] and {**data["message"], "text": text}
    return {**data, "chunk": {**data, "text": text}, "message": message, "cut": data["snippet"]}


def _restore_document(data: Json) -> Json:
    # The number of a document in the catalog would say how many others there are.
    return {**data, "id": 0, "chunk_count": data["chunks"]}


def _restore_project(data: Json) -> Json:
    # A corpus leaves out a status that no document has.
    return {**data, "documents": {name: n for name, n in data["documents"].items() if n}}


def _restore_job(data: Json) -> Json:
    return {**data, "report": data["report"] or {}}


_SCORE = float | None  # JSON has no word for NaN and the infinities
_PLACE = ("project", "path", "lines", "symbol", "headings", "start", "end")
_SHOWN = (*_PLACE, "title", "language", "kind", "modified", "metadata")
_REST = ("index", "level", "defines", "token_count", "status")

FORMS: Mapping[type, JsonForm] = {
    # An id is text: not every reader of JSON keeps 63 bits of a number.
    Chunk: JsonForm(
        keys={"id": lambda chunk: str(chunk.id)}, kinds={"id": str}, restore=_restore_chunk
    ),
    Hit: JsonForm(
        keys={
            **{name: f"chunk.{name}" for name in (*_SHOWN, *_REST)},
            "id": lambda hit: str(hit.chunk.id),
            "message": _get_message,
            "text": "text",
            "snippet": "snippet",
            "full_text": lambda hit: None if hit.form is Form.WHOLE else hit.chunk.text,
        },
        kinds={"score": _SCORE, "id": str, "full_text": str | None},
        hidden=frozenset({"chunk", "cut"}),
        optional={"reason": "explain", **dict.fromkeys((*_REST, "id", "full_text"), "full")},
        restore=_restore_hit,
    ),
    Source: JsonForm(kinds={"best_score": _SCORE}),
    Page: JsonForm(hidden=frozenset({"follow"})),
    Citation: JsonForm(
        keys={**{name: f"hit.chunk.{name}" for name in _PLACE}, "score": "hit.score"},
        kinds={"score": _SCORE},
        optional={"hit": "full"},
    ),
    IndexReport: JsonForm(optional={"skips": "skips"}),
    DocumentRecord: JsonForm(
        keys={"chunks": "chunk_count"},
        hidden=frozenset({"id", "chunk_count"}),
        restore=_restore_document,
    ),
    Record: JsonForm(
        keys={"length": lambda record: len(record.body)},
        kinds={"length": int},
        optional={"body": "full"},
    ),
    HistoryPage: JsonForm(keys={"next": "next"}),
    ProjectStatus: JsonForm(
        keys={"documents": lambda project: {one: project.documents.get(one, 0) for one in Status}},
        restore=_restore_project,
    ),
    Job: JsonForm(
        keys={"report": lambda job: job.report or None},
        kinds={"report": IndexReport | None},
        restore=_restore_job,
    ),
}
PLAIN_FORM = JsonForm()


class Member(NamedTuple):
    """Key of a JSON object: how its value is read and which type the value has.

    `option` is empty for a key that is always sent. A plain value is the same in JSON.
    """

    name: str
    get: Getter
    option: str
    is_plain: bool
    kind: Any


@cache
def find_members(kind: Any) -> list[Member]:
    """Return the keys in the JSON of a dataclass."""
    form = FORMS.get(kind, PLAIN_FORM)
    sources: dict[str, str | Getter] = {
        one.name: one.name for one in fields(kind) if one.name not in form.hidden
    }
    members = []
    for name, source in (sources | dict(form.keys)).items():
        get, path = (source, name) if callable(source) else (attrgetter(source), source)
        found = form.kinds.get(name) or _find_type(kind, path)
        is_plain = {*(get_args(found) or (found,))} <= PLAIN
        members.append(Member(name, get, form.optional.get(name, ""), is_plain, found))
    return members


def _find_type(kind: Any, path: str) -> Any:
    """Return the type of an attribute, which is a field or a property."""
    for name in path.split("."):
        attribute = getattr(kind, name, None)
        function = getattr(attribute, "fget", None) or getattr(attribute, "func", None)
        kind = get_type_hints(function)["return"] if function else get_type_hints(kind)[name]
    return kind
