"""The corpus: everything unspool does, as one object."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from unspool.access.keys import Keys
from unspool.access.scope import OWNER, Scope
from unspool.domain import continuations, filters
from unspool.domain.answers import Answer
from unspool.domain.conversations import Conversation, Message
from unspool.domain.documents import (
    DEFAULT_PROJECT,
    Document,
    DocumentRecord,
    Passage,
    Status,
    check_listing,
    check_put,
    parse_status,
)
from unspool.domain.events import Hook, Hooks
from unspool.domain.history import Retention, StreamStatus
from unspool.domain.keys import Role
from unspool.domain.queries import Hit, Page
from unspool.domain.reports import (
    IndexReport,
    OnProgress,
    Progress,
    ProjectStatus,
    RememberReport,
    StoreStatus,
)
from unspool.errors import (
    ConflictError,
    ContinuationError,
    DeniedContinuationError,
    DimensionError,
    Hint,
    InputError,
    NotFoundError,
    SweptContinuationError,
)
from unspool.memory.history import History
from unspool.session import Resources, Session
from unspool.settings import Settings

# the real imports are where they are used: `import unspool` stays under a tenth of a second
if TYPE_CHECKING:
    from unspool.answering.answer import AnswerStream
    from unspool.catalog.projects import ProjectRow
    from unspool.memory.conversations import Conversations
    from unspool.search.request import SearchRequest


_UNKNOWN_CONTINUATION = "this continuation is not known any more; search again"


class Corpus:
    """Open corpus. Safe to use from several threads; several processes may open the same one.

    `scoped` returns the same corpus for one caller. It sees only the projects in its scope. Others
    behave as if they did not exist.
    """

    def __init__(self, settings: Settings, *, embedder: object = None) -> None:
        self.settings = settings
        self._hooks = Hooks()
        self._resources = Resources(settings, embedder, emit=self._hooks.emit)
        self._keys = Keys(self._resources)  # one for all: it remembers that keys were created
        self._limit(OWNER)

    def _limit(self, scope: Scope) -> None:
        from unspool.access.projects import ProjectAccess

        self.scope = scope
        self._access = ProjectAccess(self._resources, scope)

    def scoped(self, scope: Scope) -> Corpus:
        """Return this corpus for one caller, limited to its projects, role and sources.

        Keys, events, repairs and files of this machine stay with the corpus that was opened.
        """
        self.scope.require_owner("another scope")
        limited = copy(self)
        limited._limit(scope)
        return limited

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every file and connection."""
        self.scope.require_owner("closing the corpus")
        self._resources.close()

    @property
    def embedder(self) -> str:
        """Name of the active embedder. Another process may have switched it."""
        return self._resources.session.embedder.name

    # In

    def index(
        self,
        source: str | Path,
        *,
        project: str | None = None,
        ref: str = "",
        on_progress: OnProgress | None = None,
    ) -> IndexReport:
        """Bring a project up to date with a folder, a file or a git URL.

        The default name of the project is that of the source.
        """
        from unspool.index.embedded.folder import mark_as_cache
        from unspool.indexing.pipeline import index_folder
        from unspool.sources import git
        from unspool.sources.folders import make_storable

        text = str(source)
        self.scope.check_source(text)
        if project is not None or self.scope.projects is not None:
            project = self._access.name(project, default=DEFAULT_PROJECT, task="index")
        git.check_ref(text, ref)
        if git.is_git_url(text):
            name, recorded = project or git.project_name(text), git.redact(text)
            self._access.check(name)
            clone = self._clone(name)
            mark_as_cache(clone.parent)
            redirects = self.scope.git_hosts is None
            root = git.clone(
                text, into=clone, ref=ref, redirects=redirects, on_progress=on_progress
            )
        else:
            root, name = self._locate(text, project)
            recorded = make_storable(str(root))
        return self._access.write(
            "index",
            [name],
            lambda indexer: index_folder(
                indexer, project=name, root=root, source=recorded, on_progress=on_progress
            ),
            role=Role.ADMIN,
            purpose="indexing",
        )

    def _locate(self, path: str, project: str | None) -> tuple[Path, str]:
        """Return the folder or file to index, and the name of its project."""
        from unspool.access.projects import choose_name
        from unspool.sources.folders import make_storable

        try:
            root = Path(path).expanduser().resolve(strict=True)
        # also a name that is too long for any file, links that go round, an unknown ~user
        except (OSError, RuntimeError, ValueError) as error:
            raise NotFoundError(
                f"no such path: {path}; give a folder, a file or a git URL that exists"
            ) from error
        catalog = self._resources.catalog
        known = None if project else self._access.find_by_path(catalog, root)
        if known is None:
            return root, project or choose_name(catalog, root)
        # Part of a project: its whole is brought up to date, nothing else may be removed.
        self.scope.check_source(known.root)
        is_whole = known.root == make_storable(str(root))
        return root if is_whole else Path(known.root), known.name

    def put(self, *documents: Document) -> IndexReport:
        """Store documents given as text, replacing those of the same path.

        They are findable when this returns.
        """
        from unspool.indexing.indexer import put_documents

        check_put(documents)
        return self._access.write(
            "put",
            {document.project for document in documents},
            lambda indexer: put_documents(indexer, documents),
            purpose="storing documents",
        )

    def forget(self, *, project: str, path: str | None = None) -> int:
        """Delete a document, or without a path the whole project; return the number deleted."""
        from unspool.catalog import documents
        from unspool.indexing import forgetting

        if path is None:
            self.scope.require(Role.ADMIN, "removing a project")
        else:
            self.scope.require(Role.WRITE, "removing a document")
        catalog = self._resources.catalog
        row = self._find(project)
        self._resources.refresh(catalog)
        if path is None:
            count = self._resources.run(
                lambda session: forgetting.forget_project(catalog, session.indexes, row.id)
            )
            shutil.rmtree(self._clone(project), ignore_errors=True)
            return count
        with catalog.read() as connection:
            ids = list(documents.find_ids(connection, row.id, [path]).values())
        count = self._resources.run(
            lambda session: forgetting.forget_documents(catalog, session.indexes, row.id, ids)
        )
        if not count:
            raise _build_missing_error(path, row)
        return count

    # Conversations

    @property
    def conversations(self) -> Conversations:
        """Conversations: save, append, read, list, delete."""
        from unspool.memory.conversations import Conversations

        return Conversations(self._resources, self._access)

    def remember(self, *conversations: Conversation) -> RememberReport:
        """Store conversations, all or none. Those of the same id are replaced.

        Only messages that are new or changed are embedded.
        """
        return self.conversations.save(*conversations)

    def remember_files(
        self,
        paths: Sequence[str | Path] | str | Path,
        *,
        project: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> RememberReport:
        """Import exports of conversations: ChatGPT, Claude, Slack, JSON, JSONL, agent transcripts.

        Invalid records are reported.
        """
        return self.conversations.load(paths, project=project, on_progress=on_progress)

    @property
    def keys(self) -> Keys:
        """Keys of the callers of a service: create, list, revoke."""
        self.scope.require_owner("the use of keys")
        return self._keys

    # Out

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
        caller: str = "",
        on_progress: OnProgress | None = None,
    ) -> Page:
        """Return the best chunks for a query, best first.

        The default project is the only one that exists; several are searched only if they are
        named. `max_total_tokens` limits this page and all later ones together. `caller` binds the
        continuation: no other caller can use it.
        """
        from unspool.search.request import build_request

        bound = self._bind(caller)
        rows = self._access.resolve(projects)
        options = self.settings.search.override(
            limit=limit,
            max_tokens=max_tokens,
            alpha=alpha,
            max_total_tokens=max_total_tokens,
        )

        def run(session: Session) -> Page:
            request = build_request(
                query,
                rows,
                options,
                best_alpha=session.embedder.alpha,
                where=where,
                min_score=min_score,
                explain=explain,
            )
            if not rows:
                notes = ("nothing is indexed yet",)
                alpha = request.plan.alpha
                return Page(query=query, projects=(), hits=(), alpha=alpha, notes=notes)
            page = session.engine.search(request, caller=bound, on_progress=on_progress)
            return page if page.hits else self._explain_empty(page, request)

        return self._tie(self._resources.run(run), caller)

    def more(
        self,
        continuation: str,
        *,
        limit: int | None = None,
        max_tokens: int | None = None,
        restart: bool = False,
        caller: str = "",
    ) -> Page:
        """Return the page for a continuation, the same one every time.

        `limit` and `max_tokens` change this page alone. With `restart`, a continuation that has
        expired returns the first page again, with a warning. A malformed or foreign one is always
        an error.
        """
        from unspool.search.request import check_page_size

        check_page_size(self.settings.search.limit if limit is None else limit, max_tokens or 0)
        bound = self._bind(caller)
        text = continuations.normalize(continuation)
        self._resources.refresh_now_and_then()
        try:
            page = self._resources.run(
                lambda session: session.engine.resume(
                    text, limit=limit, max_tokens=max_tokens, caller=bound
                )
            )
        except DeniedContinuationError:
            if self.scope.is_owner:
                raise
            raise SweptContinuationError(_UNKNOWN_CONTINUATION) from None
        except ContinuationError as error:
            if not restart or error.request is None:
                raise
            return self._restart(error, limit=limit, max_tokens=max_tokens, caller=caller)
        self._check_projects_visible(page.projects)
        return self._tie(page, caller)

    def ask(
        self,
        question: str,
        *,
        projects: Sequence[str] | str | None = None,
        where: Mapping[str, Any] | None = None,
        limit: int | None = None,
        conversation: Sequence[Message] = (),
        model: object = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Answer:
        """Answer a question from the best chunks, with verified citations.

        If nothing is found, no model is called. `model` is a name as in the settings, or your own
        model. Without one, the answer contains the prompt. `conversation` contains the earlier
        messages, oldest first. `on_text` is called with each piece of text.
        """
        with self.answering(
            question,
            projects=projects,
            where=where,
            limit=limit,
            conversation=conversation,
            model=model,
        ) as stream:
            for piece in stream:
                if on_text is not None:
                    on_text(piece)
            return stream.answer

    def answering(
        self,
        question: str,
        *,
        projects: Sequence[str] | str | None = None,
        where: Mapping[str, Any] | None = None,
        limit: int | None = None,
        conversation: Sequence[Message] = (),
        model: object = None,
    ) -> AnswerStream:
        """Answer a question piece by piece: iterate over the text, then read `answer`.

        Closing it ends the request at once.
        """
        from unspool.answering import choose_model

        if model is not None:
            self.scope.require_owner("the choice of a model")
        chosen = choose_model(model, self.settings.answer)

        def search(text: str) -> Page:
            return self.search(
                text, projects=projects, where=where, limit=limit, max_tokens=0, max_total_tokens=0
            )

        return self._resources.answers.begin(question, search, model=chosen, turns=conversation)

    def warm(self, queries: Iterable[str], *, on_progress: OnProgress | None = None) -> int:
        """Embed queries ahead of time, for this and other processes; return how many were new."""
        self.scope.require_owner("embedding queries ahead of time")
        self._resources.refresh_now_and_then()
        texts = [queries] if isinstance(queries, str) else list(queries)

        def report(done: int) -> None:
            if on_progress is not None:
                on_progress(Progress(task="embedding", done=done, total=len(texts)))

        return self._resources.session.engine.warm(texts, on_done=report)

    def observe(self, hook: Hook) -> Callable[[], None]:
        """Call a function with every event, such as `PageServed`. Call the result to stop."""
        self.scope.require_owner("observing events")
        return self._hooks.add(hook)

    def related(
        self, path: str, line: int = 1, *, project: str | None = None, limit: int | None = None
    ) -> Page:
        """Return the chunks nearest to the one at a line of a document, without that chunk."""
        from unspool.catalog import chunks as chunk_rows
        from unspool.search import nearest
        from unspool.search.request import check_page_size

        limit = self.settings.search.limit if limit is None else limit
        check_page_size(limit, 0)
        if line < 1:
            raise InputError(f"line is {line}; lines are counted from 1")
        row = self._access.resolve_one(project, "related")
        catalog = self._resources.search_catalog

        def run(session: Session) -> Page:
            indexes = session.search_indexes
            indexes.catch_up(row)
            with catalog.read() as connection:
                chunk = chunk_rows.find_chunk_at(connection, row.id, path, line)
            if chunk is None:
                raise _build_missing_error(path, row)
            return nearest.find_related(
                catalog,
                indexes.vectors,
                row,
                chunk,
                space_id=indexes.space_id,
                limit=limit,
                count_tokens=session.embedder.count_tokens,
            )

        return self._resources.run(run)

    def nearest(
        self,
        vector: Sequence[float],
        *,
        k: int = 10,
        projects: Sequence[str] | str | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> list[Hit]:
        """Return the k chunks with the closest vectors, without words and ranking.

        The metric is the cosine unless `vector_metric` says otherwise.
        """
        import numpy as np

        from unspool.search.nearest import find_nearest

        if not 1 <= k <= 10_000:
            raise InputError(f"k is {k}; give a number from 1 to 10000")
        rows = self._access.resolve(projects)
        condition = filters.parse(where)
        try:
            array = np.asarray(vector, dtype=np.float32)
        except (ValueError, TypeError) as error:
            raise InputError(
                f"the vector is not made of numbers ({error}); give "
                f"{self._resources.session.embedder.dimension} of them"
            ) from None
        length = float(np.linalg.norm(array))

        def run(session: Session) -> list[Hit]:
            own = session.embedder
            if array.shape != (own.dimension,):
                raise DimensionError(
                    f"the vector has {array.size} numbers, the vector space {own.dimension}; "
                    f"embed it with {own.name}"
                )
            if not np.isfinite(length) or length == 0:
                raise InputError(
                    "the vector is zero or not finite; it has no direction to search in"
                )
            for row in rows:
                session.search_indexes.catch_up(row)
            return find_nearest(
                self._resources.search_catalog,
                session.search_indexes.vectors,
                rows,
                array / length,
                k=k,
                where=condition,
                count_tokens=own.count_tokens,
            )

        return self._resources.run(run)

    def embed(self, text: str) -> list[float]:
        """Return the vector of a text in the space of this corpus, as `nearest` takes it.

        Python warns if the text is longer than the embedder reads.
        """
        from unspool.embedders.base import is_cut

        if not text.strip():
            raise InputError("the text is blank; it has no vector")
        self._resources.refresh()  # `nearest` searches with it in the active vector space
        embedder = self._resources.session.embedder
        text = text.encode("utf-8", "replace").decode()
        if is_cut(embedder, text):
            count = embedder.count_tokens(text)
            warnings.warn(
                f"the text has {count} tokens, {embedder.name} reads the first "
                f"{embedder.max_tokens}",
                stacklevel=2,
            )
        return [float(value) for value in embedder.embed_query(text)]

    def documents(
        self,
        *,
        project: str | None = None,
        status: Status | str | None = None,
        path: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[DocumentRecord]:
        """Return the records of documents, by project and path.

        `limit` and `after`, the last path of the part before, read the list of one project in
        parts.
        """
        from unspool.catalog import documents

        check_listing(project, after, limit)
        wanted = parse_status(status)
        with self._resources.catalog.read() as connection:
            ids = [row.id for row in self._access.select(connection, project)]
            listed = documents.list_documents(
                connection, project_ids=ids, status=wanted, path=path, after=after, limit=limit
            )
            return list(islice(listed, limit))

    def document(self, path: str, *, project: str) -> DocumentRecord:
        """Return the record of a document."""
        found = self.documents(project=project, path=path)
        if not found:
            raise _build_missing_error(path, self._find(project))
        return found[0]

    def passage(
        self, path: str, *, project: str, first: int = 1, last: int | None = None
    ) -> tuple[DocumentRecord, Passage]:
        """Return the record of a document and some of its lines, in one snapshot.

        This reads the catalog that is written, so that a caller sees its own writes.
        """
        from unspool.catalog import documents, passages

        with self._resources.catalog.read() as connection:
            row = self._access.get(connection, project)
            passage = passages.read_passage(connection, row, path, first=first, last=last)
            if passage is None:
                raise _build_missing_error(path, row)
            return next(
                documents.list_documents(connection, project_ids=[row.id], path=path)
            ), passage

    def read(
        self, path: str, *, project: str | None = None, first: int = 1, last: int | None = None
    ) -> Passage:
        """Return lines of a document as they were indexed, or messages of a conversation.

        `first` and `last` are included. The default is the whole document.
        """
        from unspool.catalog import passages

        row = self._access.resolve_one(project, "read")
        with self._resources.search_catalog.read() as connection:
            passage = passages.read_passage(connection, row, path, first=first, last=last)
        if passage is None:
            raise _build_missing_error(path, row)
        return passage

    def count(self, *, project: str | None = None) -> int:
        """Return the number of chunks, in one project or in all."""
        from unspool.catalog import chunks as chunk_rows

        with self._resources.catalog.read() as connection:
            rows = self._access.select(connection, project)
            return sum(chunk_rows.count_chunks(connection, row.id) for row in rows)

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens that a text has for the embedder."""
        return self._resources.session.embedder.count_tokens(text)

    def history(
        self, stream: str, *, project: str | None = None, retention: Retention | None = None
    ) -> History:
        """Return the responses of an endpoint, a job or a tool, newest first.

        The first append creates the stream. It belongs to `project`, by default that of the
        settings, else `default`. The default `retention` is that of the settings.
        """
        from unspool.memory.catalog_history import CatalogHistory

        if retention is not None:
            self.scope.require_owner("the choice of a retention")
        return CatalogHistory(
            self._resources.catalog,
            stream,
            project=self._access.name(project, default=DEFAULT_PROJECT, task="history"),
            retention=retention or self.settings.history,
            scope=self.scope,
        )

    def has_stream(self, stream: str, *, project: str) -> bool:
        """Return True if a stream exists, even if no record of it can be read any more."""
        from unspool.catalog import history

        self._access.check(project)
        with self._resources.catalog.read() as connection:
            return history.find_stream(connection, project, stream) is not None

    def streams(self, *, project: str | None = None) -> list[StreamStatus]:
        """Return every stream of responses, or those of one project, by project and name."""
        from unspool.catalog import history

        with self._resources.catalog.read() as connection:
            if project is None:
                rows = self._access.list_visible(connection)
            else:
                row = self._access.find(connection, project)
                rows = [] if row is None else [row]
            return history.list_streams(connection, [row.id for row in rows])

    def projects(self) -> list[str]:
        """Return the names of all projects."""
        with self._resources.catalog.read() as connection:
            return [row.name for row in self._access.list_visible(connection)]

    def stores(self) -> list[StoreStatus]:
        """Return all stores of vectors: capabilities, driver, and what is missing to use each."""
        from unspool.index.stores import list_stores

        return list_stores(self.settings.vectors, self.settings.database_address)

    def status(self, *, project: str | None = None) -> list[ProjectStatus]:
        """Return every project with its counts, or one."""
        from unspool.catalog import chunks as chunk_rows
        from unspool.catalog import documents, spaces

        out = []
        with self._resources.catalog.read() as connection:
            active = spaces.find_active_id(connection)
        self._resources.follow(active)
        indexes = None if active is None else self._resources.session.indexes
        is_admin = self.scope.role.allows(Role.ADMIN)
        with self._resources.catalog.read() as connection:
            for row in self._access.select(connection, project):
                chunks = chunk_rows.count_chunks(connection, row.id)
                waiting = chunks if indexes is None else indexes.count_pending(connection, row.id)
                out.append(
                    ProjectStatus(
                        name=row.name,
                        root=row.root if is_admin else "",
                        documents=documents.count_by_status(connection, row.id),
                        chunks=chunks,
                        waiting=waiting,
                    )
                )
        return out

    def size_bytes(self) -> int:
        """Return the size of the catalog on disk."""
        self.scope.require_owner("the size of the catalog")
        return self._resources.catalog.measure_size()

    def project_of(self, path: str | Path) -> str | None:
        """Return the project that was indexed from a path or from the nearest folder above it."""
        self.scope.require(Role.ADMIN, "finding a project by its path")
        row = self._access.find_by_path(self._resources.search_catalog, path)
        return None if row is None else row.name

    def root_of(self, project: str) -> str:
        """Return the path that a project was indexed from; empty if its documents were given as
        text.
        """
        self.scope.require(Role.ADMIN, "reading the source of a project")
        with self._resources.search_catalog.read() as connection:
            return self._access.get(connection, project).root

    def source_of(self, project: str) -> str:
        """Return the path or git URL that a project can be indexed from again."""
        self.scope.require(Role.ADMIN, "indexing")
        source = self.root_of(project)
        if not source:
            raise ConflictError(
                f"project {project!r} is made of what was given as text; there is nothing to "
                f"index it from, put it again instead"
            )
        return source

    def refresh(self, *, on_progress: OnProgress | None = None) -> list[str]:
        """Bring the index up to date, and rebuild missing or damaged parts; return the repairs."""
        self.scope.require_owner("repairing the index")
        self._resources.refresh(self._resources.catalog)
        with self._resources.catalog.read() as connection:
            rows = self._access.list_visible(connection)

        def run(session: Session) -> list[str]:
            for row in rows:
                session.indexes.repair(row.id, verify=True, on_progress=on_progress)
            return session.indexes.take_warnings() if rows else []

        return self._resources.run(run)

    # Inside

    def _explain_empty(self, page: Page, request: SearchRequest) -> Page:
        """Add a note for each name in the filter that does not exist."""
        from unspool.memory.conversations import describe_unknown_names

        if request.filter is None:
            return page
        notes = describe_unknown_names(
            self._resources.search_catalog, request.filter, list(request.versions)
        )
        return replace(page, notes=(*page.notes, *notes))

    def _tie(self, page: Page, caller: str) -> Page:
        """Return the page with its way to the next one."""
        return replace(page, follow=lambda continuation: self.more(continuation, caller=caller))

    def _restart(
        self, error: ContinuationError, *, limit: int | None, max_tokens: int | None, caller: str
    ) -> Page:
        """Return the first page of the search that a continuation belonged to."""
        from unspool.search.request import SearchRequest

        request = error.request
        assert isinstance(request, SearchRequest)
        names = [project.name for project in request.projects]
        self._check_projects_visible(names)
        with self._resources.search_catalog.read() as connection:
            known = {row.name for row in self._access.list_visible(connection)}
        page = self.search(
            request.plan.query,
            projects=[name for name in names if name in known] or names,
            limit=request.limit if limit is None else limit,
            max_tokens=request.max_tokens if max_tokens is None else max_tokens,
            alpha=request.plan.alpha,
            where=request.where,
            min_score=request.min_score,
            explain=request.explain,
            max_total_tokens=request.max_total_tokens,
            caller=caller,
        )
        reason = str(error).partition(";")[0]
        return replace(page, warnings=(f"{reason}; this is the first page again", *page.warnings))

    def _bind(self, caller: str) -> str:
        """Return the caller that a continuation is bound to."""
        if not isinstance(caller, str):
            raise InputError(
                f"caller is a {type(caller).__name__}; give the name of who asks as text"
            )
        if caller:
            self.scope.require_owner("the choice of a caller")
        return caller or self.scope.caller

    def _check_projects_visible(self, projects: Iterable[str]) -> None:
        """Reject a continuation of a wider scope."""
        if not all(map(self.scope.contains, projects)):
            raise SweptContinuationError(_UNKNOWN_CONTINUATION)

    def _find(self, project: str) -> ProjectRow:
        with self._resources.catalog.read() as connection:
            return self._access.get(connection, project)

    def _clone(self, project: str) -> Path:
        """Return the folder for the clone of a project. Its name is hashed, so it cannot leave the
        folder.
        """
        from unspool.catalog.projects import hash_name

        return self._resources.catalog.get_folder("clones") / hash_name(project).hex()[:32]


def _build_missing_error(path: str, row: ProjectRow) -> NotFoundError:
    return NotFoundError(f"no document {path!r} in project {row.name!r}", hint=Hint.LIST_DOCUMENTS)
