"""What each tool does: one call of a view, rendered within its budget.

All of it blocks and runs in a thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

from unspool.domain.conversations import AuthorKind, Message
from unspool.domain.keys import Role
from unspool.domain.queries import Page
from unspool.domain.reports import OnProgress, RememberReport
from unspool.errors import ConflictError, InputError, UnknownProjectError, UnspoolError
from unspool.interfaces import disclosure
from unspool.interfaces.mcp import answers, arguments, budgets, confinement, locating, narrowing
from unspool.interfaces.mcp.answers import Answer
from unspool.interfaces.mcp.arguments import Understood
from unspool.interfaces.mcp.catalogue import LINES
from unspool.sources import git
from unspool.views import View

# characters of a title that a conversation is called by: with each hit it is told anew
MAX_ID = 100
# characters of an error, and how many of them are its last, where the cure is
MAX_ERROR, ERROR_END = 1_000, 300

# What an error advises to people at a command line, and what an agent can do instead
_CURES = {
    "`unspool documents` lists them": "give a path as search names it",
    "the list of documents names them": "give a path as search names it",
    " (--project on the command line)": "",
    "give this one another name with --project, or forget that one first": "give this one another name as project",  # noqa: E501
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a tool. `home` is the project that is meant where none is named; empty, the view
    decides.

    `root_of` tells a local caller, the user of this machine, where a project lies; one from
    elsewhere has none.
    """

    view: View
    given: Understood
    home: str = ""
    root_of: Callable[[str], str] | None = None
    on_progress: OnProgress | None = None

    @property
    def most(self) -> int:
        """Tokens that the answer may have."""
        return self.given.number("max_tokens")

    def projects(self) -> list[str] | None:
        """The projects that were named, else the one at home; None lets the view decide."""
        names = arguments.names(self.given.text("project"))
        if names in (["all"], ["any"], ["everything"]) and names[0] not in self.view.projects():
            return ["*"]
        return names or ([self.home] if self.home else None)

    def project(self) -> str:
        """The one project that was named, or nothing."""
        names = arguments.names(self.given.text("project"))
        if len(names) > 1 or "*" in names:
            raise InputError(f"project names {', '.join(names)[:200]}; give one project here")
        return names[0] if names else ""

    def root(self, project: str) -> str:
        """Where a project that the view holds was indexed from; empty for whoever may not know."""
        if self.root_of is not None:
            return self.root_of(project)
        return next((one.root for one in self.view.status(project=project)), "")

    def roots(self, projects: Sequence[str] | None) -> dict[str, str]:
        """Where each of the projects lies that a search is about."""
        if self.root_of is None and not self.view.scope.role.allows(Role.ADMIN):
            return {}
        if self.root_of is None:
            roots = {one.name: one.root for one in self.view.status()}
        else:
            roots = {name: self.root_of(name) for name in self.view.projects()}
        return (
            roots
            if projects is None or "*" in projects
            else {name: roots[name] for name in projects if name in roots}
        )

    def located(self) -> tuple[str, arguments.Place]:
        """The project and the place that the path names."""
        return locating.located(
            self.view,
            self.given.text("path"),
            project=self.project(),
            home=self.home,
            root=self.root,
        )

    def page(
        self,
        ask: Callable[[int], Page],
        notes: Sequence[str] = (),
        *,
        end: str = answers.ALL,
        conditions: Mapping[str, str] | None = None,
    ) -> Answer:
        """Hits within the budget.

        `conditions` are those that were set, as the caller wrote them.
        """
        render = partial(
            answers.page, notes=(*self.given.notes, *notes), end=end, conditions=conditions or {}
        )
        return budgets.page(
            ask,
            self.given.number("limit"),
            most=self.most,
            count=self.view.count_tokens,
            render=render,
        )


def search(call: Call) -> Answer:
    """The best hits for a query."""
    given, projects = call.given, call.projects()
    asked = {
        name: given.text(name)
        for name in ("path", "extensions", "kind", "language")
        if given.text(name).strip()
    }
    where = _where(call, asked, projects)

    def ask(size: int) -> Page:
        return call.view.search(
            given.text("query"),
            projects=projects,
            limit=size,
            max_tokens=0,
            where=where,
            on_progress=call.on_progress,
        )

    return call.page(ask, conditions=asked)


def _where(call: Call, asked: Mapping[str, str], projects: Sequence[str] | None) -> dict[str, Any]:
    """Conditions as a filter has them."""
    paths = narrowing.paths(asked.get("path", ""), cache(lambda: call.roots(projects)))
    conditions: dict[str, Any] = {
        "all": [part for part in (paths, narrowing.endings(asked.get("extensions", ""))) if part],
        "kind": [name.lower() for name in arguments.names(asked.get("kind", ""))],
        "language": narrowing.languages(asked.get("language", "")),
    }
    return {field: values for field, values in conditions.items() if values}


def more(call: Call) -> Answer:
    """The next page."""
    continuation = call.given.text("continuation").strip(" \t\r\n`'\"")
    return call.page(lambda size: call.view.more(continuation, limit=size, max_tokens=0))


def related(call: Call) -> Answer:
    """What is most like a place."""
    project, place = call.located()
    line, limit = max(call.given.number("line") or place.first, 1), call.given.number("limit")
    sizes: list[int] = []

    def ask(size: int) -> Page:
        sizes.append(size)
        return call.view.related(place.path, line, project=project, limit=size)

    end = "these are the most alike; a larger limit gives more"
    answer = call.page(ask, end=end)
    if sizes[-1] == limit:
        return answer
    # There is no next page here, so the model is told how to get the others.
    return call.page(ask, [f"not all {limit} had room; give a larger max_tokens for more"], end=end)


def read(call: Call) -> Answer:
    """Lines of a document."""
    given = call.given
    project, place = call.located()
    first, last = _range(given, place)

    return budgets.passage(
        lambda to: call.view.read(place.path, project=project, first=first, last=to),
        first,
        last,
        most=call.most,
        count=call.view.count_tokens,
        with_project=project != call.home and len(call.view.projects()) > 1,
        notes=given.notes,
    )


def _range(given: Understood, place: arguments.Place) -> tuple[int, int]:
    """The lines that are meant, however they were named."""
    first, last = given.number("first_line"), given.number("last_line")
    for begin, end in (arguments.lines(given.text("lines")), (place.first, place.last)):
        # the end of a range that begins elsewhere is none of this one
        if end and not last and (not first or begin <= first <= end):
            last = end
        first = first or begin
    if given.number("line") and not first:
        first, last = max(given.number("line") - LINES // 2, 1), given.number("line") + LINES // 2
    first = max(first, 1)
    if not last:
        last = first + (given.number("limit") or LINES) - 1
    return (first, last) if last >= first else (last, first)


def list_projects(call: Call) -> Answer:
    """The projects there are."""
    after = call.given.text("after")
    found = sorted(
        (one for one in call.view.status() if not after or one.name > after),
        key=lambda one: one.name,
    )
    return budgets.projects(
        found,
        call.given.number("limit") or len(found),
        most=call.most,
        count=call.view.count_tokens,
        notes=call.given.notes,
    )


def get_response_history(call: Call) -> Answer:
    """Earlier responses of a stream, or which streams there are."""
    given, view, project = call.given, call.view, call.project() or None
    stream = given.text("stream").strip()
    if not stream:
        return budgets.streams(
            view.streams(project=project),
            given.number("offset"),
            most=call.most,
            count=view.count_tokens,
            notes=given.notes,
        )
    history = view.history(stream, project=project)
    notes = list(given.notes)
    if not history.count():
        known = view.streams(project=project)
        same = [one.project for one in known if one.stream == stream]
        if len(same) == 1:
            history = view.history(stream, project=same[0])
        elif same:
            raise InputError(
                f"several projects have a stream {stream[:200]!r}; name one of: "
                f"{', '.join(same[:20])}"
            )
        else:
            names = ", ".join(dict.fromkeys(one.stream for one in known[:20]))
            notes.append(
                f"there is no stream {stream[:80]!r}; there are: {names}"
                if names
                else "there are no streams of responses yet"
            )
    offset = given.number("offset")
    return budgets.history(
        lambda size: history.page(size, offset),
        given.number("limit"),
        most=call.most,
        count=view.count_tokens,
        notes=notes,
    )


def remember(call: Call) -> Answer:
    """Store a note as a message of a conversation: the one that is named, else one called as its
    title, else that of the day.

    A title is the first line of the message, where it is found. The message's id follows from what
    it says, so that whoever is not sure that it arrived can send it again: the same words in the
    same conversation are one message.
    """
    given, view = call.given, call.view
    title, project = " ".join(given.text("title").split()), call.project() or call.home or None
    text = "\n\n".join(filter(None, (title, given.text("text").strip())))
    now = datetime.now(UTC)
    conversation = (
        given.text("conversation").strip() or title[:MAX_ID].rstrip() or f"notes/{now:%Y-%m-%d}"
    )
    speaker = " ".join(given.text("speaker").split()) or AuthorKind.ASSISTANT.value
    is_kind = speaker.lower() in list(AuthorKind)
    message = Message(
        text=text,
        author="" if is_kind else speaker,
        kind=AuthorKind(speaker.lower()) if is_kind else AuthorKind.USER,
        at=now,
        id=hashlib.sha256(f"{speaker}\n{text}".encode()).hexdigest()[:24],
    )
    try:
        report = view.conversations.append(conversation, message, project=project)
    except ConflictError:  # the same words at another time
        stored = view.conversations.get(conversation, project=project)
        if stored is None or all(one.id != message.id for one in stored.messages):
            raise
        report = RememberReport(project=stored.project, unchanged=1)
    return answers.remembered(report, conversation, notes=given.notes)


def index(call: Call) -> Answer:
    """Take in a folder, or bring a project up to date."""
    path, project = call.given.text("path").strip(), call.project()
    if not path and "://" in project:
        path, project = project, ""
    if not path:
        path = _source(call, project)
    if path and git.is_git_url(path) and not path.lower().startswith("file:"):
        report = call.view.index(path, project=project or None, on_progress=call.on_progress)
    else:
        source = confinement.inside(path, call.view.scope.roots)
        report = call.view.index(str(source), project=project or None, on_progress=call.on_progress)
    return answers.indexed(report, notes=call.given.notes)


def _source(call: Call, project: str) -> str:
    """What is meant where no path was given: where the project came from, else, for the user of
    this machine, the folder that is worked in.
    """
    if not project:
        if call.root_of is None:
            raise InputError(
                "index needs a path, or the project that is to be brought up to date; name one "
                "of them"
            )
        return ""
    try:
        return call.view.source_of(project)
    except UnknownProjectError as error:
        raise UnknownProjectError(
            f"{error}; to make it, give the path that it is to hold", project=project
        ) from None


RUN: Mapping[str, Callable[[Call], Answer]] = {
    "search": search,
    "more": more,
    "related": related,
    "read": read,
    "list_projects": list_projects,
    "get_response_history": get_response_history,
    "remember": remember,
    "index": index,
}


def error_text(error: UnspoolError, role: Role) -> str:
    """What went wrong, for a model: what happened and what to do, and a code that stays the
    same.
    """
    text = disclosure.words(error, role)
    for advice, instead in _CURES.items():
        text = text.replace(advice, instead)
    text = f"error ({error.code}): {text}"
    if len(text) > MAX_ERROR:
        text = f"{text[: MAX_ERROR - ERROR_END - 5]} ... {text[-ERROR_END:]}"
    return text
