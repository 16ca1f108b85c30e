"""A corpus as one caller sees it. Doors that let others in go through here and never to the corpus
itself.

What a scope does not hold does not exist for it: reading it, writing it and asking how much there
is of it end as they would if it had never been made, with the same words, in which only that is
named which can be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from unspool.access import projects as naming
from unspool.access.scope import Scope, admit
from unspool.catalog import history as stream_rows
from unspool.catalog import projects as project_rows
from unspool.domain import conversations
from unspool.domain.conversations import Conversation, ConversationRecord, Message
from unspool.domain.documents import (
    DEFAULT_PROJECT,
    Chunk,
    Document,
    DocumentRecord,
    Passage,
    Status,
)
from unspool.domain.history import PAGE, READ, HistoryPage, Record, StreamStatus
from unspool.domain.keys import Role
from unspool.domain.queries import Hit, Page
from unspool.domain.reports import (
    IndexReport,
    OnProgress,
    ProjectStatus,
    RememberReport,
    StoreStatus,
)
from unspool.errors import (
    AmbiguousError,
    ConflictError,
    DeniedContinuationError,
    ForbiddenError,
    InputError,
    NotFoundError,
    SweptContinuationError,
    UnknownProjectError,
)
from unspool.memory.history import History
from unspool.sources import git

if TYPE_CHECKING:
    from datetime import datetime

    from unspool.answering.answer import AnswerStream
    from unspool.corpus import Corpus
    from unspool.settings import Settings

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Report = TypeVar("_Report", IndexReport, RememberReport)

__all__ = ["ConversationsView", "HistoryView", "Scope", "View", "admit"]


def _unseen(method: Callable[Concatenate[View, _P], _T]) -> Callable[Concatenate[View, _P], _T]:
    """What a method gives; where it finds out that a project does not exist, it names only those
    that the caller can see.
    """

    @wraps(method)
    def run(self: View, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return method(self, *args, **kwargs)
        except UnknownProjectError as error:
            raise naming.build_unknown_error(error.project, self.projects()) from None

    return run


class View:
    """The methods of a corpus, for one scope."""

    def __init__(self, corpus: Corpus, scope: Scope) -> None:
        self._corpus = corpus
        self.scope = scope

    @property
    def settings(self) -> Settings:
        """Those of the corpus."""
        return self._corpus.settings

    @property
    def embedder(self) -> str:
        """The name of the embedder in use, which the catalog may have gone over to since the
        settings were written.
        """
        return self._corpus._resources.session.embedder.name

    def projects(self) -> list[str]:
        """The names of all projects that can be seen."""
        return [name for name in self._corpus.projects() if self.scope.contains(name)]

    @_unseen
    def check_project(self, name: str) -> None:
        """Refuse a project that does not exist."""
        self._corpus.root_of(self._held(name))

    # Out

    @_unseen
    def search(
        self,
        query: str,
        *,
        projects: Sequence[str] | str | None = None,
        limit: int | None = None,
        max_tokens: int | None = None,
        alpha: float | None = None,
        where: Mapping[str, Any] | None = None,
        min_score: float | None = None,
        explain: bool = False,
        max_total_tokens: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> Page:
        """The best chunks for a query, best first."""
        return self._corpus.search(
            query,
            projects=self._meant(projects),
            limit=limit,
            max_tokens=max_tokens,
            alpha=alpha,
            where=where,
            min_score=min_score,
            explain=explain,
            max_total_tokens=max_total_tokens,
            caller=self.scope.caller,
            on_progress=on_progress,
        )

    @_unseen
    def more(
        self,
        continuation: str,
        *,
        limit: int | None = None,
        max_tokens: int | None = None,
        restart: bool = False,
    ) -> Page:
        """The page that a continuation leads to.

        One that was given to somebody else is not known.
        """
        unknown = "this continuation is not known any more; search again"
        try:
            page = self._corpus.more(
                continuation,
                limit=limit,
                max_tokens=max_tokens,
                restart=restart,
                caller=self.scope.caller,
            )
        except DeniedContinuationError:
            raise SweptContinuationError(unknown) from None
        if not all(map(self.scope.contains, page.projects)):
            raise SweptContinuationError(unknown)
        return page

    @_unseen
    def related(
        self, path: str, line: int = 1, *, project: str | None = None, limit: int | None = None
    ) -> Page:
        """The chunks most like the one at a line of a document."""
        return self._corpus.related(path, line, project=self._one(project, "related"), limit=limit)

    @_unseen
    def nearest(
        self,
        vector: Sequence[float],
        *,
        k: int = 10,
        projects: Sequence[str] | str | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> list[Hit]:
        """The k chunks whose vectors are closest."""
        return self._corpus.nearest(vector, k=k, projects=self._meant(projects), where=where)

    def embed(self, text: str) -> list[float]:
        """A text's vector, as `nearest` takes it."""
        return self._corpus.embed(text)

    def count_tokens(self, text: str) -> int:
        """How many tokens a text has for the embedder."""
        return self._corpus.count_tokens(text)

    @_unseen
    def answering(
        self,
        question: str,
        *,
        projects: Sequence[str] | str | None = None,
        where: Mapping[str, Any] | None = None,
        limit: int | None = None,
        conversation: Sequence[Message] = (),
    ) -> AnswerStream:
        """An answer, piece by piece; closing it ends the request."""
        return self._corpus.answering(
            question,
            projects=self._meant(projects),
            where=where,
            limit=limit,
            conversation=conversation,
        )

    @_unseen
    def read(
        self, path: str, *, project: str | None = None, first: int = 1, last: int | None = None
    ) -> Passage:
        """Lines of a document, or messages of a conversation."""
        return self._corpus.read(path, project=self._one(project, "read"), first=first, last=last)

    @_unseen
    def documents(
        self,
        *,
        project: str | None = None,
        status: Status | str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[DocumentRecord]:
        """What is known of each document of a project, by path; with no project, of all that can
        be seen.
        """
        if project is not None:
            return self._corpus.documents(
                project=self._held(project), status=status, after=after, limit=limit
            )
        if after is not None or self.scope.projects is None:
            return self._corpus.documents(status=status, after=after, limit=limit)
        found = [
            one
            for name in self.projects()
            for one in self._corpus.documents(project=name, status=status, limit=limit)
        ]
        return found[:limit]

    @_unseen
    def document(self, path: str, *, project: str) -> DocumentRecord:
        """What is known of one document."""
        found = self._corpus.documents(project=self._held(project), path=path)
        if not found:
            raise _no_document(path, project)
        return found[0]

    @_unseen
    def passage(
        self, path: str, *, project: str, first: int = 1, last: int | None = None
    ) -> tuple[DocumentRecord, Passage]:
        """What is known of one document, and some of its lines as they were at the same moment."""
        found = self._corpus._document(path, project=self._held(project), first=first, last=last)
        if found is None:
            raise _no_document(path, project)
        return found

    @_unseen
    def count(self, *, project: str | None = None) -> int:
        """How many chunks there are, in one project or in all that can be seen."""
        if project is not None or self.scope.projects is None:
            return self._corpus.count(project=None if project is None else self._held(project))
        return sum(self._corpus.count(project=name) for name in self.projects())

    @_unseen
    def status(self, *, project: str | None = None) -> list[ProjectStatus]:
        """Every project that can be seen with its counts, or one.

        Where it lies on the server is for those who may index there.
        """
        if project is not None or self.scope.projects is None:
            found = self._corpus.status(project=None if project is None else self._held(project))
        else:
            found = [one for name in self.projects() for one in self._corpus.status(project=name)]
        return (
            found
            if self.scope.role.allows(Role.ADMIN)
            else [replace(one, root="") for one in found]
        )

    def stores(self) -> list[StoreStatus]:
        """Where vectors are kept, and what can be done there."""
        return self._corpus.stores()

    # In

    @_unseen
    def put(self, *documents: Document) -> IndexReport:
        """Store documents given as text."""
        self.scope.require(Role.WRITE, "storing documents")
        for document in documents:
            self._held(document.project)
        return self._told(self._corpus.put(*documents))

    @_unseen
    def forget(self, *, project: str, path: str | None = None) -> int:
        """Remove a document, or with no path the whole project."""
        self.scope.require(
            Role.WRITE if path is not None else Role.ADMIN,
            "removing a document" if path is not None else "removing a project",
        )
        return self._corpus.forget(project=self._held(project), path=path)

    @_unseen
    def index(
        self,
        source: str,
        *,
        project: str | None = None,
        ref: str = "",
        on_progress: OnProgress | None = None,
    ) -> IndexReport:
        """Bring a project up to date with a folder under the roots, or a repository."""
        self.check_source(source)
        name = project
        if name is None and self.scope.projects is not None:
            name = self._default(DEFAULT_PROJECT, "index")
        if (
            name is None
            and not git.is_git_url(source)
            and (known := naming.find_by_path(self._corpus._resources.catalog, source)) is not None
        ):
            # a part of a project is indexed as the whole of it
            self.check_source(self._corpus._project(known).root)
        held = None if name is None else self._held(name)
        redirects = self.scope.git_hosts is None
        return self._told(
            self._corpus._index(
                source, project=held, ref=ref, redirects=redirects, on_progress=on_progress
            )
        )

    @_unseen
    def source_of(self, project: str) -> str:
        """What a project was indexed from."""
        self.scope.require(Role.ADMIN, "indexing")
        source = self._corpus.root_of(self._held(project))
        if not source:
            raise ConflictError(
                f"project {project!r} is made of what was given as text; there is nothing to "
                f"index it from, put it again instead"
            )
        return source

    def check_source(self, source: str, *, project: str | None = None) -> None:
        """Refuse what may not be indexed: only admins may, on the server's own disk only under the
        roots, elsewhere only from hosts that are allowed, and only into a project that they see."""
        self.scope.require(Role.ADMIN, "indexing")
        if project is not None:
            self._held(project)
        if git.is_git_url(source) and not source.lower().startswith("file:"):
            if not self.scope.allows_url(source):
                named = ", ".join(sorted(self.scope.git_hosts or ())) or "none"
                raise ForbiddenError(
                    f"nothing may be fetched from {git.host_of(source)[:200]!r}; "
                    f"UNSPOOL_GIT_HOSTS names the hosts that may be: {named}"
                )
            return
        if "\x00" in source or not source.strip():
            raise InputError("the path is empty; give a folder, a file or a git URL")
        if not self.scope.allows_path(source):
            is_absolute = Path(source).is_absolute() or source.startswith(("~", "file:"))
            cure = (
                f"it may be one under {', '.join(map(str, self.scope.roots))}"
                if self.scope.roots
                else "UNSPOOL_ROOTS names those that may, and there are none"
            )
            raise ForbiddenError(
                f"{source[:200]!r} is no "
                f"{'folder that may be indexed' if is_absolute else 'absolute path'}; {cure}"
            )

    # What was said, what was answered

    @property
    def conversations(self) -> ConversationsView:
        """What was said: saved, continued, read, listed, deleted."""
        return ConversationsView(self)

    def history(self, stream: str, *, project: str | None = None) -> HistoryView:
        """The responses of an endpoint, a job or a tool, newest first."""
        name = (
            self._held(project)
            if project is not None
            else self._default(DEFAULT_PROJECT, "history")
        )
        return HistoryView(self._corpus.history(stream, project=name), self.scope)

    def has_stream(self, stream: str, *, project: str) -> bool:
        """Whether there is a stream of that name, also one of which nothing is to be read any
        more.
        """
        with self._corpus._resources.catalog.read() as connection:
            return stream_rows.find_stream(connection, self._held(project), stream) is not None

    def streams(self, *, project: str | None = None) -> list[StreamStatus]:
        """The streams of responses that can be seen, or those of one project."""
        found = self._corpus.streams(project=None if project is None else self._held(project))
        return [one for one in found if self.scope.contains(one.project)]

    # Inside

    def _told(self, report: _Report) -> _Report:
        """A report. Equal texts are embedded once for all projects, so a caller who sees some of
        them is told of every chunk that it was: else whoever guesses a text would learn whether
        somebody else has it."""
        return report if self.scope.projects is None else replace(report, embedded=report.chunks)

    def _held(self, project: str) -> str:
        if not self.scope.contains(project):
            raise naming.build_unknown_error(project, self.projects())
        return project

    def _meant(self, names: Sequence[str] | str | None) -> Sequence[str] | str | None:
        """The projects that a search is about, by name, so that nothing can be meant that is not
        named.
        """
        if self.scope.projects is None:
            return names
        given = [names] if isinstance(names, str) else names
        if given is None and self.scope.contains(self.settings.project):
            given = [self.settings.project]
        if given is not None and "*" not in given:
            return [self._held(name) for name in given]
        with self._corpus._resources.search_catalog.read() as connection:
            rows = [
                row
                for row in project_rows.list_projects(connection)
                if self.scope.contains(row.name)
            ]
        if not rows:
            raise NotFoundError("nothing is indexed yet in what this key can see")
        return [row.name for row in (naming.select_default(rows) if given is None else rows)]

    def _one(self, project: str | None, task: str) -> str | None:
        """The same for a task about one project."""
        meant = self._meant(None if project is None else [project])
        if isinstance(meant, list) and len(meant) != 1:
            raise AmbiguousError(f"{task} needs one project; name it")
        return meant[0] if meant else None

    def _default(self, otherwise: str, task: str) -> str:
        """The project of what is written without naming one."""
        name = self.settings.project or otherwise
        if self.scope.contains(name):
            return name
        assert self.scope.projects is not None
        if len(self.scope.projects) != 1:
            raise AmbiguousError(
                f"{task} needs a project; name one of: "
                f"{', '.join(sorted(self.scope.projects)[: naming.SHOWN])}"
            )
        return next(iter(self.scope.projects))


def _no_document(path: str, project: str) -> NotFoundError:
    return NotFoundError(
        f"no document {path!r} in project {project!r}; the list of documents names them"
    )


class ConversationsView:
    """`view.conversations`: those of the corpus, for one scope."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._own = view._corpus.conversations
        self.scope = view.scope

    def save(self, *conversations: Conversation) -> RememberReport:
        """Store conversations, all or none."""
        self.scope.require(Role.WRITE, "storing conversations")
        for one in conversations:
            self._view._held(one.project)
        return self._view._told(self._own.save(*conversations))

    def append(self, id: str, *messages: Message, project: str | None = None) -> RememberReport:
        """Store messages behind a conversation's last."""
        self.scope.require(Role.WRITE, "storing messages")
        return self._view._told(self._own.append(id, *messages, project=self._in(project)))

    def get(
        self, id: str, *, project: str | None = None, last: int | None = None
    ) -> Conversation | None:
        """A conversation with its messages, or the last so many of them."""
        return self._own.get(id, project=self._in(project), last=last)

    def exists(self, id: str, *, project: str | None = None) -> bool:
        """Whether there is a conversation of that id."""
        return self._own.exists(id, project=self._in(project))

    def list(
        self, *, project: str | None = None, skip: int = 0, limit: int = 100
    ) -> Sequence[ConversationRecord]:
        """Conversations without their messages, those that began last first."""
        return self._own.list(project=self._in(project), skip=skip, limit=limit)

    def count(self, *, project: str | None = None) -> int:
        """How many conversations there are."""
        return self._own.count(project=self._in(project))

    def chunks(self, id: str, *, project: str | None = None) -> Sequence[Chunk]:
        """What is searched of a conversation, in order."""
        return self._own.chunks(id, project=self._in(project))

    def chunk(self, chunk_id: int, *, project: str | None = None) -> Chunk | None:
        """One of those by its id."""
        return self._own.chunk(chunk_id, project=self._in(project))

    def delete(self, id: str, *, project: str | None = None) -> bool:
        """Remove a conversation with everything under it."""
        self.scope.require(Role.WRITE, "removing conversations")
        return self._own.delete(id, project=self._in(project))

    def _in(self, project: str | None) -> str:
        return (
            self._view._held(project)
            if project is not None
            else self._view._default(conversations.DEFAULT_PROJECT, "a conversation")
        )


class HistoryView:
    """A history that only those may write whose role allows it."""

    def __init__(self, own: History, scope: Scope) -> None:
        self._own = own
        self._scope = scope

    @property
    def stream(self) -> str:
        """Its name."""
        return self._own.stream

    def append(self, body: str, at: datetime | None = None) -> Record:
        """Add a response."""
        self._scope.require(Role.WRITE, "storing responses")
        return self._own.append(body, at)

    def read(self, limit: int = READ, offset: int = 0) -> list[Record]:
        """Whole records, newest first."""
        return self._own.read(limit, offset)

    def page(self, limit: int = PAGE, offset: int = 0, *, full: bool = False) -> HistoryPage:
        """A few records for an agent."""
        return self._own.page(limit, offset, full=full)

    def count(self) -> int:
        """How many records there are to read."""
        return self._own.count()

    def prune(self) -> int:
        """Remove everything that is past the retention."""
        self._scope.require(Role.WRITE, "removing responses")
        return self._own.prune()

    def clear(self) -> int:
        """Remove every record."""
        self._scope.require(Role.WRITE, "removing responses")
        return self._own.clear()
