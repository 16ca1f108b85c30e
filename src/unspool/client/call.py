"""Requests to a service as values: built and checked here, sent by `Sender`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, date, datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from unspool import wire
from unspool.domain.documents import check_path, check_project
from unspool.errors import Hint, InputError, NotFoundError

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
_SURROGATES = re.compile("[\ud800-\udfff]")  # UTF-8 cannot encode a lone one


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[_T_co]):
    """Request to a service, and the parser of its response.

    If it `repeats`, sending it twice has the effect of sending it once.
    """

    method: str
    target: str  # the encoded path and query string
    parse: Callable[[Any], _T_co]
    content: bytes | None = None
    repeats: bool = True


def get(path: str, kind: type[_T], key: str | None = None, **params: object) -> Call[_T]:
    """Build a request that changes nothing. Parameters that are None are left out.

    The value of the response has the type `kind`, and is under `key` if there is one.
    """
    query = urlencode(_drop_none(params), quote_via=quote)
    target = f"{path}?{query}" if query else path
    return Call(method="GET", target=target, parse=wire.make_decoder(kind, key))


def post(
    path: str,
    kind: type[_T],
    key: str | None = None,
    *,
    body: Mapping[str, Any],
    method: str = "POST",
    repeats: bool = True,
) -> Call[_T]:
    """Build a request with a body. Values that are None are left out."""
    content = encode_json(_drop_none(body))
    parse = wire.make_decoder(kind, key)
    return Call(method=method, target=path, parse=parse, content=content, repeats=repeats)


def delete(path: str, kind: type[_T], key: str | None = None) -> Call[_T]:
    """Build a request that removes something. The second one would find nothing."""
    return Call(method="DELETE", target=path, parse=wire.make_decoder(kind, key), repeats=False)


def build_path(*names: str) -> str:
    """Return a URL path. A slash in a name is no separator, and two dots do not lead up."""
    return "/".join(("/v1", *map(_encode_name, names)))


def _encode_name(name: str) -> str:
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")


def in_project(project: str, *names: str) -> str:
    """Return the URL path of something in a project."""
    check_project(project)
    return build_path("projects", project, *names)


def check_findable(path: str, project: str) -> None:
    """Raise `NotFoundError` for a path that no document can have. No URL could contain it."""
    try:
        check_path(path)
    except InputError as error:
        place = f" in project {project!r}" if project else ""
        raise NotFoundError(f"no document {path!r}{place}", hint=Hint.LIST_DOCUMENTS) from error


def encode_json(value: object) -> bytes:
    """Return a value as JSON in UTF-8.

    Lone surrogates are replaced, as a corpus does before it stores them.
    """
    try:
        text = json.dumps(
            value,
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
            default=_encode_value,
        )
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(
            f"what was given cannot be sent ({error}); give text, finite numbers, lists and "
            f"mappings"
        ) from None
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text).encode()


def _encode_value(value: Any) -> object:
    """Return a value that JSON does not know as one that it does.

    The project of a document or a conversation is in the path of the request.
    """
    if is_dataclass(value):
        found = {one.name: getattr(value, one.name) for one in fields(value)}
        return _drop_none({**found, "project": None})
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)  # a service refuses offsets with seconds
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    return value.tolist() if hasattr(value, "tolist") else list(value)


def _drop_none(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}
