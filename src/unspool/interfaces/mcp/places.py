"""Places that a model names: a document and its lines, by path or by the address of a resource.

The address of a resource is `unspool://PROJECT/documents/PATH` or
`unspool://PROJECT/conversations/ID`, percent-encoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from urllib.parse import quote, unquote

from unspool.corpus import Corpus
from unspool.errors import InputError, NotFoundError, UnknownProjectError

SCHEME = "unspool"
DOCUMENTS, CONVERSATIONS = "documents", "conversations"
MAX_LENGTH = 5_000  # characters of a text that is parsed as a path with lines
MAX_PROJECTS = 50  # that are searched for a path
MAX_NAMES = 20  # projects in a message
_ADDRESS = re.compile(
    rf"{SCHEME}://(?P<project>[^/]+)/(?P<kind>{DOCUMENTS}|{CONVERSATIONS})/(?P<path>.+)",
    re.DOTALL | re.IGNORECASE,
)
# the syntax of hits, then those of editors
_LOCATIONS = (
    re.compile(r"(?P<path>.+):(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?", re.DOTALL),
    re.compile(
        r"(?P<path>.+?)(?::|#L?|, lines? |\s+lines? )"
        r"(?P<first>\d{1,9})(?:(?:-|–|:|\.\.|,)L?(?P<last>\d{1,9}))?",
        re.DOTALL,
    ),
)
# A negative end, as in an editor's [5, -1], is the end of the document.
_RANGE = re.compile(r"\D*(?P<first>\d{1,9})(?:\s*(?:-|,|:|\.\.)\s*-\d+|\D+(?P<last>\d{1,9}))?\D*")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentPlace:
    """Path of a document, and the lines that were named with it; 0 if none were."""

    path: str
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Address of a resource."""

    project: str
    path: str
    is_conversation: bool = False

    def __str__(self) -> str:
        kind = CONVERSATIONS if self.is_conversation else DOCUMENTS
        return f"{SCHEME}://{quote(self.project, safe='')}/{kind}/{quote(self.path, safe='/')}"


def parse_address(text: str) -> Address | None:
    """Return the address that a text is, or None."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None:
        return None
    return Address(
        project=unquote(found["project"]),
        path=unquote(found["path"]),
        is_conversation=found["kind"].lower() == CONVERSATIONS,
    )


def parse_place(text: str) -> list[DocumentPlace]:
    """Return the places that a text may name, the likeliest first.

    `path:10-20` may be lines of a document, or the path of one.
    """
    bare = text.strip().strip("`\"'")
    places = []
    for pattern in _LOCATIONS if len(text) <= MAX_LENGTH else ():
        if found := pattern.fullmatch(bare):
            first, last = int(found["first"]), int(found["last"] or 0)
            path = _strip_prefixes(found["path"])
            places.append(DocumentPlace(path=path, first=first, last=last and max(first, last)))
    bare_places = (DocumentPlace(path=_strip_prefixes(bare)), DocumentPlace(path=text.strip()))
    return list(dict.fromkeys((*places, *bare_places)))


def _strip_prefixes(path: str) -> str:
    path = path.strip().removeprefix("file://")
    while path.startswith("./"):
        path = path[2:]
    return path


def parse_lines(text: str) -> tuple[int, int]:
    """Return the first and last line of a range such as `10-20`, `10`, `L10-L20` or `[10, 20]`.

    0 stands for a missing number.
    """
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        return 0, 0
    first, last = int(found["first"]), int(found["last"] or 0)
    return (last, first) if 0 < last < first else (first, last)


def locate(
    corpus: Corpus, text: str, *, project: str, home: str, root_of: Callable[[str], str]
) -> tuple[str, DocumentPlace]:
    """Return the project and the place that a text names.

    Without a project, the usual ones come first. Any other must be the only one that contains the
    path. `root_of` returns the folder of a project, or an empty text.
    """
    places = parse_place(text)
    if address := parse_address(text):
        project = address.project
        parsed = [(place, parse_address(place.path)) for place in places]
        places = [replace(place, path=found.path) for place, found in parsed if found]
    known = corpus.projects()
    usual = [name for name in dict.fromkeys((home, corpus.settings.project)) if name in known]
    for name in [project] if project else usual:
        if place := _find_document(corpus, name, places, root_of):
            return name, place
    others = [] if project else [name for name in known[:MAX_PROJECTS] if name not in usual]
    found = [(name, _find_document(corpus, name, places, root_of)) for name in others]
    matches = [(name, place) for name, place in found if place]
    path = f"{places[0].path[:200]!r}"
    if not matches:
        where = f"project {(project or usual[0])!r}" if project or usual else "what is indexed"
        advice = "give a path as search names it" + ("" if project else ", and its project")
        raise NotFoundError(f"no document {path} in {where}; {advice}")
    if len(matches) > 1:
        names = ", ".join(name for name, _ in matches[:MAX_NAMES])
        raise InputError(f"{path} is in several projects; name one of: {names}")
    return matches[0]


def _find_document(
    corpus: Corpus, project: str, places: Sequence[DocumentPlace], root_of: Callable[[str], str]
) -> DocumentPlace | None:
    for place in places:
        for path in _list_spellings(place.path, project, root_of):
            try:
                corpus.document(path, project=project)
            except UnknownProjectError:
                raise
            except NotFoundError:
                continue
            return replace(place, path=path)
    return None


def _list_spellings(path: str, project: str, root_of: Callable[[str], str]) -> Iterator[str]:
    """Yield a path as it was written, then as documents are named."""
    yield path
    slashed = path.replace("\\", "/")
    inner = strip_root(path, root_of(project)) if PurePath(path).is_absolute() else ""
    others = dict.fromkeys((slashed, slashed.lstrip("/"), inner))
    yield from (other for other in others if other and other != path)


def strip_root(path: str, root: str) -> str:
    """Return a path relative to a folder that contains it, else an empty text."""
    if not root or not PurePath(path).is_relative_to(root):
        return ""
    return PurePath(path).relative_to(root).as_posix()
