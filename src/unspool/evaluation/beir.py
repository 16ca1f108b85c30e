"""Test sets in BEIR layout: `corpus.jsonl`, `queries.jsonl`, `qrels/test.tsv`, plain or gzipped.

Beside BEIR's own fields a document's `metadata` may say project, path and language; a query's
`metadata.project` says where to search. One that says conversation and turn is a message, with
speaker and time if it says those: a conversation is a project of its own, and its messages are
searched among themselves.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, cast

from unspool.domain.conversations import MAX_AUTHOR_LENGTH, Message
from unspool.errors import InputError, NotFoundError

ONE_PROJECT = "eval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A document to be found."""

    id: str
    project: str
    path: str
    title: str
    text: str
    language: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A message to be found."""

    id: str
    project: str
    conversation: str
    number: float
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A query, the project it is asked in, and the grades of what answers it."""

    id: str
    text: str
    project: str
    grades: Mapping[str, int] = field(default_factory=dict)


def documents(folder: Path) -> Iterator[Item | Turn]:
    """Every document and every message of the corpus, in order."""
    for record in _records(folder, "corpus"):
        metadata = record.get("metadata") or {}
        if "conversation" in metadata and isinstance(metadata.get("turn"), int | float):
            yield _turn(record, metadata)
            continue
        kept = {
            key: value
            for key, value in metadata.items()
            if isinstance(value, str | int | float | bool)
        }
        yield Item(
            id=str(record["_id"]),
            project=_project(metadata),
            path=str(metadata.get("path") or record["_id"]),
            title=str(record.get("title") or ""),
            text=str(record.get("text") or ""),
            language=str(metadata.get("language") or ""),
            metadata=kept,
        )


def _turn(record: Mapping[str, Any], metadata: Mapping[str, Any]) -> Turn:
    text = ". ".join(str(part) for part in (record.get("title"), record.get("text")) if part)
    return Turn(
        id=str(record["_id"]),
        project=_project(metadata),
        conversation=str(metadata["conversation"]),
        number=float(metadata["turn"]),
        message=Message(
            text=text,
            author=str(metadata.get("speaker") or "")[:MAX_AUTHOR_LENGTH],
            at=_time(metadata),
        ),
    )


def _time(metadata: Mapping[str, Any]) -> datetime | None:
    """When a message was said, if that is written so that it can be read."""
    said = next(
        (str(metadata[name]) for name in ("time", "timestamp", "date", "at") if metadata.get(name)),
        "",
    )
    try:
        moment = datetime.fromisoformat(said)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def questions(folder: Path) -> list[Question]:
    """Every query that has at least one judgement."""
    grades = _grades(folder)
    return [
        Question(
            id=str(record["_id"]),
            text=str(record["text"]),
            project=_project(record.get("metadata") or {}),
            grades=grades[str(record["_id"])],
        )
        for record in _records(folder, "queries")
        if str(record["_id"]) in grades
    ]


def _project(metadata: Mapping[str, Any]) -> str:
    return str(metadata.get("project") or metadata.get("conversation") or ONE_PROJECT)


def _grades(folder: Path) -> dict[str, dict[str, int]]:
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


def _records(folder: Path, name: str) -> Iterator[dict[str, Any]]:
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
