"""A request as a value, with all that can be known of it before it is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from unspool.domain.documents import check_project
from unspool.errors import InputError

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
_HALVES = re.compile("[\ud800-\udfff]")  # of characters; UTF-8 has no way to write them


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[_T_co]):
    """Request to the service, and the parser of its response.

    Where `repeats`, making it twice comes to the same as making it once.
    """

    method: str
    path: str  # every name in it encoded
    parse: Callable[[Any], _T_co]
    params: Mapping[str, object] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    repeats: bool = True

    @property
    def target(self) -> str:
        """The path with what stands behind the question mark."""
        given = {name: value for name, value in self.params.items() if value is not None}
        return self.path + ("?" + urlencode(given, quote_via=quote) if given else "")

    def content(self) -> bytes | None:
        """The body as bytes. What no JSON takes is refused."""
        return None if self.body is None else encode_json(self.body)


def encode_json(body: Mapping[str, Any]) -> bytes:
    """An object as JSON in UTF-8.

    Halves of characters are replaced, as a corpus does before it stores them.
    """
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"what was given cannot be sent ({error}); give text, finite numbers, lists and "
            f"mappings"
        ) from None
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _HALVES.sub("\ufffd", text).encode()


def get(path: str, parse: Callable[[Any], _T], **params: object) -> Call[_T]:
    """A call that changes nothing."""
    return Call(method="GET", path=path, parse=parse, params=params)


def post(
    path: str, parse: Callable[[Any], _T], body: Mapping[str, Any], *, repeats: bool = True
) -> Call[_T]:
    """A call with a body, in which what is None is left out."""
    given = {name: value for name, value in body.items() if value is not None}
    return Call(method="POST", path=path, parse=parse, body=given, repeats=repeats)


def segment(text: str) -> str:
    """A name as one segment of a path: a slash in it is no separator, and two dots lead nowhere."""
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe="")


def in_project(project: str, *further: str) -> str:
    """The path of something in a project."""
    check_project(project)
    return "/".join(("/v1/projects", segment(project), *further))
