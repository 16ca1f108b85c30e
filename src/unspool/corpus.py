"""The corpus: everything unspool does, as one object."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from unspool.access.keys import Keys
from unspool.domain import filters
from unspool.domain.answers import Answer
from unspool.domain.conversations import Conversation, Message
from unspool.domain.documents import (
    DEFAULT_PROJECT,
    Document,
    DocumentRecord,
    Passage,
    Status,
    check_listed,
    check_project,
    checked_status,
)
from unspool.domain.events import Hook, Hooks
from unspool.domain.history import Retention, StreamStatus
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
    ContinuationError,
    DimensionError,
    InputError,
    MalformedContinuationError,
    NotFoundError,
)
from unspool.memory.history import History
from unspool.session import Resources, Session
from unspool.settings import Settings

# the real imports are where they are used: `import unspool` stays under a tenth of a second
if TYPE_CHECKING:
    from unspool.answering.answer import AnswerStream
    from unspool.catalog import Catalog
    from unspool.catalog.projects import ProjectRow
    from unspool.indexing.indexer import Indexer
    from unspool.memory.conversations import Conversations
    from unspool.search.request import SearchRequest


def _check_caller(caller: str) -> None:
    if not isinstance(caller, str):
        raise InputError(f"caller is a {type(caller).__name__}; give the name of who asks as text")


def open(  # noqa: A001
    address: str | None = None,
    *,
    vectors: str | None = None,
    embedder: object = None,
    settings: Settings | None = None,
) -> Corpus:
    """Open the corpus at an address, or the one that the settings name. Create it if missing.

    `embedder` is a name as in the settings, a LangChain `Embeddings` object, or your own embedder.
    """
    name = embedder if isinstance(embedder, str) else None
    given = {"database": address, "vectors": vectors, "embedder": name}
    settings = (
        Settings.load(arguments=given) if settings is None else settings.with_arguments(given)
    )
    return Corpus(settings, embedder=None if name is not None else embedder)


class Corpus:
    """Open corpus. Safe to use from several threads; several processes may open the same one."""

    def __init__(self, settings: Settings, *, embedder: object = None) -> None:
        self.settings = settings
        self._hooks = Hooks()
        self._resources = Resources(settings, embedder, emit=self._hooks.emit)
        self._keys = Keys(self._resources)  # one for all: it remembers that keys were created

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
        self._resources.close()

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
        return self._index(source, project=project, ref=ref, on_progress=on_progress)

    def _index(
        self,
        source: str | Path,
        *,
        project: str | None,
        ref: str = "",
        redirects: bool = True,
        on_progress: OnProgress | None = None,
    ) -> IndexReport:
        """Index a source. Without `redirects`, redirections of a git URL are not followed."""
        from unspool.access import projects as naming
        from unspool.index.embedded.partition import mark_as_cache
        from unspool.indexing.pipeline import index_folder
        from unspool.sources import git
        from unspool.sources.folders import storable

        text = str(source)
        if git.is_git_url(text):
            name = project or git.project_name(text)
            check_project(name)
            mark_as_cache(self._clones())
            root = git.clone(
                text, into=self._clone(name), ref=ref, redirects=redirects, on_progress=on_progress
            )
            return self._write(
                lambda indexer: index_folder(
                    indexer,
                    project=name,
                    root=root,
                    source=git.redact(text),
                    on_progress=on_progress,
                )
            )
        git.check_ref(text, ref)
        if not text.strip() or "\x00" in text:
            raise InputError("the path is empty; give a folder, a file or a git URL")
        try:
            root = Path(source).expanduser().resolve(strict=True)
        # also a name that is too long for any file, links that go round, an unknown ~user
        except (OSError, RuntimeError, ValueError) as error:
            raise NotFoundError(
                f"no such path: {text}; give a folder, a file or a git URL that exists"
            ) from error
        if (
            project is None
            and (known := naming.find_by_path(self._resources.catalog, root)) is not None
        ):
            project, whole = known, self._project(known).root
            if whole != storable(str(root)):
                # part of a project: its whole is brought up to date, nothing else may be removed
                root = Path(whole)
        name = project or naming.choose_name(self._resources.catalog, root)
        check_project(name)
        return self._write(
            lambda indexer: index_folder(
                indexer,
                project=name,
                root=root,
                source=storable(str(root)),
                on_progress=on_progress,
            )
        )

    def put(self, *documents: Document) -> IndexReport:
        """Store documents given as text, replacing those of the same path.

        They are findable when this returns.
        """
        from unspool.indexing.indexer import put_documents

        if not documents:
            raise InputError("no document was given; put takes at least one")
        names = {document.project for document in documents}
        if len(names) > 1:
            raise InputError(
                f"the documents belong to {len(names)} projects; put one project at a time"
            )
        if len({document.path for document in documents}) < len(documents):
            raise InputError("two of the documents have the same path; give each path once")
        return self._write(lambda indexer: put_documents(indexer, documents), task="put")

    def forget(self, *, project: str, path: str | None = None) -> int:
        """Delete a document, or without a path the whole project; return the number deleted."""
        from unspool.catalog import documents
        from unspool.indexing import forgetting

        row = self._project(project)
        catalog = self._resources.catalog
        self._resources.refresh(catalog)
        if path is None:
            count = self._resources.run(
                lambda session: forgetting.forget_project(catalog, session.store, row.id)
            )
            shutil.rmtree(self._clone(project), ignore_errors=True)
            return count
        with catalog.read() as connection:
            ids = list(documents.find_ids(connection, row.id, [path]).values())
        count = self._resources.run(
            lambda session: forgetting.forget_documents(catalog, session.store, row.id, ids)
        )
        if not count:
            raise NotFoundError(
                f"no document {path!r} in project {project!r}; `unspool documents` lists them"
            )
        return count

    # Conversations

    @property
    def conversations(self) -> Conversations:
        """Conversations: save, append, read, list, delete."""
        from unspool.memory.conversations import Conversations

        return Conversations(self._resources, self.settings.project)

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

        _check_caller(caller)
        rows = self._named(projects)
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
            page = session.engine.search(request, caller=caller, on_progress=on_progress)
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
        _check_caller(caller)
        if not isinstance(continuation, str):
            raise MalformedContinuationError(
                f"a continuation is text, not a {type(continuation).__name__}; give "
                f"page.continuation"
            )
        self._resources.refresh_now_and_then()
        text = continuation.strip()
        try:
            page = self._resources.run(
                lambda session: session.engine.resume(
                    text, limit=limit, max_tokens=max_tokens, caller=caller
                )
            )
        except ContinuationError as error:
            if not restart or error.request is None:
                raise
            return self._restart(error, limit=limit, max_tokens=max_tokens, caller=caller)
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

        chosen = choose_model(model, self.settings.answer)

        def search(text: str) -> Page:
            """Return the best chunks for a query, best first.

            The default project is the only one that exists; several are searched only if they are
            named. `max_total_tokens` limits this page and all later ones together. `caller` binds
            the continuation: no other caller can use it.
            """
            return self.search(
                text, projects=projects, where=where, limit=limit, max_tokens=0, max_total_tokens=0
            )

        return self._resources.answers.begin(question, search, model=chosen, turns=conversation)

    def warm(self, queries: Iterable[str], *, on_progress: OnProgress | None = None) -> int:
        """Embed queries ahead of time, for this and other processes; return how many were new."""
        self._resources.refresh_now_and_then()
        texts = [queries] if isinstance(queries, str) else list(queries)

        def report(done: int) -> None:
            if on_progress is not None:
                on_progress(Progress(task="embedding", done=done, total=len(texts)))

        return self._resources.session.engine.warm(texts, on_done=report)

    def observe(self, hook: Hook) -> Callable[[], None]:
        """Call a function with every event, such as `PageServed`. Call the result to stop."""
        return self._hooks.add(hook)

    def related(
        self, path: str, line: int = 1, *, project: str | None = None, limit: int | None = None
    ) -> Page:
        """Return the chunks nearest to the one at a line of a document, without that chunk."""
        from unspool.access import projects as naming
        from unspool.catalog import chunks as chunk_rows
        from unspool.search import nearest
        from unspool.search.request import check_page_size

        limit = self.settings.search.limit if limit is None else limit
        check_page_size(limit, 0)
        if line < 1:
            raise InputError(f"line is {line}; lines are counted from 1")
        row = naming.require_one(self._named([project] if project else None), "related")
        catalog = self._resources.search_catalog

        def run(session: Session) -> Page:
            store = session.search_store
            store.catch_up(row)
            with catalog.read() as connection:
                chunk = chunk_rows.find_chunk_at(connection, row.id, path, line)
            if chunk is None:
                raise NotFoundError(
                    f"no document {path!r} in project {row.name!r}; `unspool documents` lists them"
                )
            return nearest.find_related(
                catalog,
                store,
                row,
                chunk,
                space_id=store.space_id,
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
        rows = self._named(projects)
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
                session.search_store.catch_up(row)
            return find_nearest(
                self._resources.search_catalog,
                session.search_store,
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

        check_listed(project, after, limit)
        wanted = checked_status(status)
        ids = None if project is None else [self._project(project).id]
        with self._resources.catalog.read() as connection:
            return list(
                documents.list_documents(
                    connection, project_ids=ids, status=wanted, path=path, after=after, limit=limit
                )
            )

    def read(
        self, path: str, *, project: str | None = None, first: int = 1, last: int | None = None
    ) -> Passage:
        """Return lines of a document as they were indexed, or messages of a conversation.

        `first` and `last` are included. The default is the whole document.
        """
        from unspool.access import projects as naming
        from unspool.catalog import passages

        row = naming.require_one(self._named([project] if project else None), "read")
        with self._resources.search_catalog.read() as connection:
            passage = passages.read_passage(connection, row, path, first=first, last=last)
        if passage is None:
            raise NotFoundError(
                f"no document {path!r} in project {row.name!r}; `unspool documents` lists them"
            )
        return passage

    def count(self, *, project: str | None = None) -> int:
        """Return the number of chunks, in one project or in all."""
        from unspool.catalog import chunks as chunk_rows
        from unspool.catalog import projects

        named = None if project is None else [self._project(project)]
        with self._resources.catalog.read() as connection:
            rows = projects.list_projects(connection) if named is None else named
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

        kept = self.settings.history if retention is None else retention
        name = project if project is not None else self.settings.project or DEFAULT_PROJECT
        return CatalogHistory(self._resources.catalog, stream, project=name, retention=kept)

    def streams(self, *, project: str | None = None) -> list[StreamStatus]:
        """Return every stream of responses, or those of one project, by project and name."""
        from unspool.catalog import history

        with self._resources.catalog.read() as connection:
            return history.list_streams(connection, project)

    def projects(self) -> list[str]:
        """Return the names of all projects."""
        from unspool.catalog import projects

        with self._resources.catalog.read() as connection:
            return [row.name for row in projects.list_projects(connection)]

    def stores(self) -> list[StoreStatus]:
        """Return the stores of vectors and their capabilities."""
        from dataclasses import asdict

        store = self._resources.session.search_store
        return [StoreStatus(name=store.name, in_use=True, capabilities=asdict(store.capabilities))]

    def status(self, *, project: str | None = None) -> list[ProjectStatus]:
        """Return every project with its counts, or one."""
        from unspool.catalog import chunks as chunk_rows
        from unspool.catalog import documents, projects, spaces

        out = []
        with self._resources.catalog.read() as connection:
            active = spaces.find_active_id(connection)
        self._resources.follow(active)
        store = None if active is None else self._resources.session.store
        with self._resources.catalog.read() as connection:
            for row in (
                [self._project(project)]
                if project is not None
                else projects.list_projects(connection)
            ):
                chunks = chunk_rows.count_chunks(connection, row.id)
                out.append(
                    ProjectStatus(
                        name=row.name,
                        root=row.root,
                        documents=documents.count_by_status(connection, row.id),
                        chunks=chunks,
                        waiting=chunks
                        if store is None
                        else store.count_pending(connection, row.id),
                    )
                )
        return out

    def size_bytes(self) -> int:
        """Return the size of the catalog on disk."""
        return self._resources.catalog.measure_size()

    def project_of(self, path: str | Path) -> str | None:
        """Return the project that was indexed from a path or from the nearest folder above it."""
        from unspool.access import projects as naming

        return naming.find_by_path(self._resources.search_catalog, path)

    def root_of(self, project: str) -> str:
        """Return the path that a project was indexed from; empty if its documents were given as
        text.
        """
        return self._project(project, self._resources.search_catalog).root

    def refresh(self, *, on_progress: OnProgress | None = None) -> list[str]:
        """Bring the index up to date, and rebuild missing or damaged parts; return the repairs."""
        from unspool.catalog import projects

        self._resources.refresh(self._resources.catalog)
        with self._resources.catalog.read() as connection:
            rows = projects.list_projects(connection)

        def run(session: Session) -> list[str]:
            for row in rows:
                session.store.repair(row.id, verify=True, on_progress=on_progress)
            return session.store.take_warnings() if rows else []

        return self._resources.run(run)

    # Inside

    def _write(
        self, write: Callable[[Indexer], IndexReport], *, task: str = "index"
    ) -> IndexReport:
        report = self._resources.write(write)
        return self._resources.emit_report(
            task, report, failed=report.failed, removed=report.removed
        )

    def _document(
        self, path: str, *, project: str, first: int, last: int | None
    ) -> tuple[DocumentRecord, Passage] | None:
        """Return the record of a document and some of its lines, in one snapshot; None if missing.

        This reads the catalog that is written, so that a caller sees its own writes.
        """
        from unspool.access import projects as naming
        from unspool.catalog import documents, passages

        with self._resources.catalog.read() as connection:
            row = naming.find_project(connection, project)
            passage = passages.read_passage(connection, row, path, first=first, last=last)
            known = list(documents.list_documents(connection, project_ids=[row.id], path=path))
        return None if passage is None else (known[0], passage)

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
        from unspool.catalog import projects
        from unspool.search.request import SearchRequest

        request = error.request
        assert isinstance(request, SearchRequest)
        with self._resources.search_catalog.read() as connection:
            known = {row.name for row in projects.list_projects(connection)}
        names = [project.name for project in request.projects]
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

    def _project(self, name: str, catalog: Catalog | None = None) -> ProjectRow:
        from unspool.access import projects as naming

        with (catalog or self._resources.catalog).read() as connection:
            return naming.find_project(connection, name)

    def _named(self, names: Sequence[str] | str | None) -> list[ProjectRow]:
        """Return the projects of a search, by default that of the settings."""
        from unspool.access import projects as naming

        if names is None and self.settings.project:
            names = [self.settings.project]
        rows, active = naming.resolve_projects(self._resources.search_catalog, names)
        self._resources.follow(active)
        return rows

    def _clones(self) -> Path:
        return self._resources.catalog.get_folder("clones")

    def _clone(self, project: str) -> Path:
        """Return the folder for the clone of a project. Its name is hashed, so it cannot leave the
        folder.
        """
        from unspool.catalog.projects import hash_name

        return self._clones() / hash_name(project).hex()[:32]
