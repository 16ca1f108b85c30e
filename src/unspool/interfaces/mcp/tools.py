"""The tools: each calls the corpus and fits the answer into its budget.

All of them block and run in a thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any

from unspool.corpus import Corpus
from unspool.domain.conversations import AuthorKind, Message
from unspool.domain.documents import Kind, Lines, Passage
from unspool.domain.history import CUT as TRUNCATED
from unspool.domain.keys import Role
from unspool.domain.queries import Page
from unspool.domain.reports import OnProgress, RememberReport
from unspool.errors import ConflictError, Hint, InputError, UnknownProjectError
from unspool.interfaces.mcp import answers, conditions, confinement, places
from unspool.interfaces.mcp.answers import ToolAnswer
from unspool.interfaces.mcp.arguments import GivenArguments, split_names
from unspool.interfaces.mcp.budgets import AnswerBudget
from unspool.interfaces.mcp.catalogue import LINES
from unspool.interfaces.mcp.excerpts import CUT
from unspool.memory.history import History
from unspool.sources import git

MAX_LINES = 2_000  # of a document in one answer
# characters of a title that becomes the id of a conversation, which every hit in it repeats
MAX_ID = 100
# characters of an error, and of its end, which contains the advice
MAX_ERROR, ERROR_END = 1_000, 300

# Advice that an agent can follow
ADVICE = {
    Hint.LIST_DOCUMENTS: "give a path as search names it",
    Hint.RENAME_PROJECT: "give this one another name as project",
}


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """Call of a tool. `home` is the project to use if none is named.

    `root_of` returns the folder of a project to the user of this machine. For other callers it is
    None.
    """

    corpus: Corpus
    given: GivenArguments
    home: str = ""
    root_of: Callable[[str], str] | None = None
    on_progress: OnProgress | None = None

    def __getitem__(self, name: str) -> Any:
        return self.given.values[name]

    @property
    def budget(self) -> AnswerBudget:
        """Budget of the answer."""
        return AnswerBudget(self["max_tokens"], self.corpus.count_tokens)

    @cached_property
    def roots(self) -> dict[str, str]:
        """Folder of each project, if the caller may know it."""
        if self.root_of is None and not self.corpus.scope.role.allows(Role.ADMIN):
            return {}
        root_of = self.root_of or self.corpus.root_of
        return {name: root_of(name) for name in self.corpus.projects()}

    def list_projects(self) -> list[str] | None:
        """Return the projects of a search. None lets the corpus decide."""
        names = split_names(self["project"])
        if names in (["all"], ["any"], ["everything"]) and names[0] not in self.corpus.projects():
            return ["*"]
        return names or ([self.home] if self.home else None)

    def find_project(self) -> str:
        """Return the project that is named, or an empty text. Reject several."""
        names = split_names(self["project"])
        if len(names) > 1 or "*" in names:
            raise InputError(f"project names {', '.join(names)[:200]}; give one project here")
        return names[0] if names else ""

    def locate(self) -> tuple[str, places.DocumentPlace]:
        """Return the project and the place that the path names."""
        return places.locate(
            self.corpus,
            self["path"],
            project=self.find_project(),
            home=self.home,
            root_of=lambda project: self.roots.get(project, ""),
        )

    def fit_page(
        self,
        ask: Callable[[int], Page],
        *notes: str,
        end: str = answers.ALL,
        asked: Mapping[str, str] | None = None,
    ) -> ToolAnswer:
        """Return a page within the budget. `asked` are the conditions as the caller wrote them."""
        build = partial(
            answers.build_page, notes=(*self.given.notes, *notes), end=end, conditions=asked
        )
        return self.budget.fit_page(ask, self["limit"], build)


def search(call: ToolCall) -> ToolAnswer:
    """Return the best hits for a query."""
    asked = {name: call[name] for name in conditions.NAMES if call[name].strip()}
    ask = partial(
        call.corpus.search,
        call["query"],
        projects=call.list_projects(),
        max_tokens=0,
        where=conditions.build_filter(asked, lambda: call.roots),
        on_progress=call.on_progress,
    )
    return call.fit_page(lambda size: ask(limit=size), asked=asked)


def resume_search(call: ToolCall) -> ToolAnswer:
    """Return the next page."""
    continuation = call["continuation"].strip(" \t\r\n`'\"")
    return call.fit_page(lambda size: call.corpus.more(continuation, limit=size, max_tokens=0))


def find_similar(call: ToolCall) -> ToolAnswer:
    """Return the chunks that are most similar to a place."""
    project, place = call.locate()
    line, limit = max(call["line"] or place.first, 1), call["limit"]
    page = call.corpus.related(place.path, line, project=project, limit=limit)

    def ask(size: int) -> Page:
        return replace(page, hits=page.hits[:size])

    end = "these are the most similar; a larger limit gives more"
    answer = call.fit_page(ask, end=end)
    if len(answer.values["hits"]) == len(page.hits):
        return answer
    # There is no next page here, so a note says how to get the others.
    note = f"not all {limit} had room; give a larger max_tokens for more"
    return call.fit_page(ask, note, end=end)


def read(call: ToolCall) -> ToolAnswer:
    """Return lines of a document, or messages of a conversation."""
    notes = call.given.notes
    project, place = call.locate()
    first, last = _select_lines(call, place)

    def load(end: int) -> Passage:
        return call.corpus.read(place.path, project=project, first=first, last=end)

    found = load(min(last, first + MAX_LINES - 1))
    is_chat, lines = found.kind is Kind.CHAT, found.text.split("\n")
    size = found.lines.last - found.lines.first + 1
    build = partial(
        answers.build_passage,
        found,
        last=min(last, found.last_line),
        with_project=project != call.home and len(call.corpus.projects()) > 1,
    )

    def take(rows: int) -> ToolAnswer:
        if rows == size:
            return build(found.text, found.lines, notes=notes)
        end = first + rows - 1
        text = load(end).text if is_chat else "\n".join(lines[:rows])
        return build(text, Lines(first, end), notes=notes)

    def shorten(length: int) -> ToolAnswer:
        text = load(first).text if is_chat else lines[0]
        note = f"{'message' if is_chat else 'line'} {first} is longer than max_tokens and was cut"
        return build(text[:length] + CUT, Lines(first, first), notes=(*notes, note))

    return call.budget.fit(take, size, shorten)


def _select_lines(call: ToolCall, place: places.DocumentPlace) -> tuple[int, int]:
    """Return the first and last line, from any of the arguments that can name them."""
    first, last, line = call["first_line"], call["last_line"], call["line"]
    for begin, end in (places.parse_lines(call["lines"]), (place.first, place.last)):
        # The end of a range belongs only to a first line inside of it.
        if end and not last and (not first or begin <= first <= end):
            last = end
        first = first or begin
    if line and not first:
        first, last = line - LINES // 2, line + LINES // 2
    first = max(first, 1)
    last = last or first + (call["limit"] or LINES) - 1
    return min(first, last), max(first, last)


def list_projects(call: ToolCall) -> ToolAnswer:
    """Return the projects, by name."""
    after = call["after"]
    found = sorted(call.corpus.status(), key=lambda one: one.name)
    found = [one for one in found if one.name > after]
    return call.budget.fit(
        lambda size: answers.build_projects(found, size, after=after, notes=call.given.notes),
        min(call["limit"] or len(found), len(found)),
    )


def get_response_history(call: ToolCall) -> ToolAnswer:
    """Return records of a stream, newest first, or the streams if none is named."""
    project, stream, offset = call.find_project() or None, call["stream"].strip(), call["offset"]
    if not stream:
        return _list_streams(call, project)
    history, notes = _find_history(call, stream, project)

    def shorten(length: int) -> ToolAnswer:
        page = history.page(1, offset)
        bodies = [(one.body or "").removesuffix(TRUNCATED)[:length] for one in page.records]
        records = tuple(
            replace(one, body=body + TRUNCATED, is_truncated=True)
            for one, body in zip(page.records, bodies, strict=True)
        )
        return answers.build_history(replace(page, records=records), notes=notes)

    return call.budget.fit(
        lambda size: answers.build_history(history.page(size, offset), notes=notes),
        call["limit"],
        shorten,
    )


def _list_streams(call: ToolCall, project: str | None) -> ToolAnswer:
    offset = call["offset"]
    found = call.corpus.streams(project=project)[offset:]
    return call.budget.fit(
        lambda size: answers.build_streams(found, size, offset=offset, notes=call.given.notes),
        len(found),
    )


def _find_history(
    call: ToolCall, stream: str, project: str | None
) -> tuple[History, Sequence[str]]:
    """Return the history of a stream, and notes.

    If the usual project has no such stream, use the only project that has.
    """
    corpus, notes = call.corpus, call.given.notes
    history = corpus.history(stream, project=project)
    if history.count():
        return history, notes
    known = corpus.streams(project=project)
    owners = [one.project for one in known if one.stream == stream]
    if len(owners) == 1:
        return corpus.history(stream, project=owners[0]), notes
    if owners:
        raise InputError(
            f"several projects have a stream {stream[:200]!r}; name one of: "
            f"{', '.join(owners[:20])}"
        )
    names = ", ".join(dict.fromkeys(one.stream for one in known[:20]))
    note = f"there is no stream {stream[:80]!r}; there are: {names}"
    return history, (*notes, note if names else "there are no streams of responses yet")


def remember(call: ToolCall) -> ToolAnswer:
    """Store a note as a message of a conversation.

    The default conversation is named after the title, else after the day. The id of the message
    follows from its text, so that it can be sent again: the same text in the same conversation is
    stored once.
    """
    conversations, now = call.corpus.conversations, datetime.now(UTC)
    project = call.find_project() or call.home or None
    title = " ".join(call["title"].split())
    speaker = " ".join(call["speaker"].split()) or AuthorKind.ASSISTANT
    text = "\n\n".join(filter(None, (title, call["text"].strip())))
    named = call["conversation"].strip() or title[:MAX_ID].rstrip()
    conversation = named or f"notes/{now:%Y-%m-%d}"
    is_kind = speaker.lower() in list(AuthorKind)
    message = Message(
        text=text,
        author="" if is_kind else speaker,
        kind=AuthorKind(speaker.lower()) if is_kind else AuthorKind.USER,
        at=now,
        id=hashlib.sha256(f"{speaker}\n{text}".encode()).hexdigest()[:24],
    )
    try:
        report = conversations.append(conversation, message, project=project)
    except ConflictError:  # the same text at another time
        stored = conversations.get(conversation, project=project)
        if stored is None or all(one.id != message.id for one in stored.messages):
            raise
        report = RememberReport(project=stored.project, unchanged=1)
    return answers.build_memory(report, conversation, notes=call.given.notes)


def index(call: ToolCall) -> ToolAnswer:
    """Index a folder, a file or a repository, or update a project."""
    path, project = call["path"].strip(), call.find_project()
    if not path and "://" in project:
        path, project = project, ""
    path = path or _find_source(call, project)
    if not git.is_git_url(path) or path.lower().startswith("file:"):
        path = str(confinement.resolve_path(path, call.corpus.scope.roots or ()))
    report = call.corpus.index(path, project=project or None, on_progress=call.on_progress)
    return answers.build_run(report, notes=call.given.notes)


def _find_source(call: ToolCall, project: str) -> str:
    """Return the source of a project, or an empty text for the current folder of a local user."""
    if not project:
        if call.root_of is None:
            raise InputError("index needs a path, or the project to update; name one of them")
        return ""
    try:
        return call.corpus.source_of(project)
    except UnknownProjectError as error:
        message = f"{error}; to create it, give the path to index"
        raise UnknownProjectError(message, project=project) from None


RUN: Mapping[str, Callable[[ToolCall], ToolAnswer]] = {
    "search": search,
    "more": resume_search,
    "related": find_similar,
    "read": read,
    "list_projects": list_projects,
    "get_response_history": get_response_history,
    "remember": remember,
    "index": index,
}


def format_error(code: str, message: str) -> str:
    """Return an error for a model: a stable code, what happened and what to do."""
    text = f"error ({code}): {message}"
    if len(text) > MAX_ERROR:
        text = f"{text[: MAX_ERROR - ERROR_END - 5]} ... {text[-ERROR_END:]}"
    return text
