"""Test sets in BEIR layout: `corpus.jsonl`, `queries.jsonl`, `qrels/test.tsv`, plain or gzipped.

Beside BEIR's own fields, the `metadata` of a document may contain project, path and language. The
`metadata.project` of a query names the project to search. A document with conversation and turn is
a message, with an optional speaker and time. Each conversation is a project of its own.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from unspool.domain.conversations import MAX_AUTHOR_LENGTH, Message
from unspool.domain.documents import Document, to_utc
from unspool.errors import InputError, NotFoundError

ONE_PROJECT = "eval"


class Item(NamedTuple):
    """Document to be found."""

    id: str
    document: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Message to be found."""

    id: str
    project: str
    conversation: str
    number: float
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Query, the project to search, and the grades of relevant documents."""

    id: str
    text: str
    project: str
    grades: Mapping[str, int] = field(default_factory=dict)


def read_documents(folder: Path) -> Iterator[Item | Turn]:
    """Yield every document and every message of the corpus, in order."""
    for record in _read_records(folder, "corpus"):
        metadata = record.get("metadata") or {}
        if "conversation" in metadata and isinstance(metadata.get("turn"), int | float):
            yield _parse_turn(record, metadata)
            continue
        # a set without paths is prose; otherwise the path determines the language
        language = metadata.get("language") or ("" if "path" in metadata else "text")
        document = Document(
            project=_get_project(metadata),
            path=str(metadata.get("path") or record["_id"]),
            title=str(record.get("title") or ""),
            text=str(record.get("text") or ""),
            language=str(language),
            metadata={
                key: value
                for key, value in metadata.items()
                if isinstance(value, str | int | float | bool)
            },
        )
        yield Item(str(record["_id"]), document)


def _parse_turn(record: Mapping[str, Any], metadata: Mapping[str, Any]) -> Turn:
    text = ". ".join(str(part) for part in (record.get("title"), record.get("text")) if part)
    return Turn(
        id=str(record["_id"]),
        project=_get_project(metadata),
        conversation=str(metadata["conversation"]),
        number=float(metadata["turn"]),
        message=Message(
            text=text,
            author=str(metadata.get("speaker") or "")[:MAX_AUTHOR_LENGTH],
            at=_parse_time(metadata),
        ),
    )


def _parse_time(metadata: Mapping[str, Any]) -> datetime | None:
    """Return the time of a message, if it has one in ISO format."""
    said = next(
        (str(metadata[name]) for name in ("time", "timestamp", "date", "at") if metadata.get(name)),
        "",
    )
    try:
        return to_utc(datetime.fromisoformat(said))
    except ValueError:
        return None


def read_questions(folder: Path) -> list[Question]:
    """Return every query that has a judgement. Raise an error if none has."""
    grades = _read_grades(folder)
    found = [
        Question(
            id=str(record["_id"]),
            text=str(record["text"]),
            project=_get_project(record.get("metadata") or {}),
            grades=grades[str(record["_id"])],
        )
        for record in _read_records(folder, "queries")
        if str(record["_id"]) in grades
    ]
    if not found:
        raise InputError(
            f"no query in {folder} has a judgement; check that the ids in qrels/test.tsv are "
            f"those of queries.jsonl"
        )
    return found


def _get_project(metadata: Mapping[str, Any]) -> str:
    return str(metadata.get("project") or metadata.get("conversation") or ONE_PROJECT)


def _read_grades(folder: Path) -> dict[str, dict[str, int]]:
    grades: dict[str, dict[str, int]] = {}
    with _open(folder / "qrels" / "test.tsv") as lines:
        for number, line in enumerate(lines, 1):
            parts = line.rstrip("\n").split("\t")
            if len(parts) < 3:
                raise InputError(
                    f"{folder / 'qrels' / 'test.tsv'} line {number} has {len(parts)} columns; it "
                    f"takes query-id, corpus-id and score, by tabs"
                )
            if parts[2].lstrip("-").isdigit():
                grades.setdefault(parts[0], {})[parts[1]] = int(parts[2])
    return grades


def _read_records(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    with _open(folder / f"{name}.jsonl") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    record = json.loads(line)
                    record["_id"]
                except (ValueError, KeyError, TypeError) as error:
                    raise InputError(
                        f"{name}.jsonl line {number} in {folder} is not an object with an _id "
                        f"({error}); correct it"
                    ) from error
                yield record


def _open(file: Path) -> IO[str]:
    packed = file.with_name(file.name + ".gz")
    if packed.is_file():
        return cast(IO[str], gzip.open(packed, "rt", encoding="utf-8"))
    if file.is_file():
        return file.open(encoding="utf-8")
    raise NotFoundError(
        f"no {file.name} or {packed.name} in {file.parent}; eval takes a folder with "
        f"corpus.jsonl, queries.jsonl and qrels/test.tsv"
    )
