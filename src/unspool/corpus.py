"""The corpus: everything unspool does, as one object. `open()` wires it."""

from __future__ import annotations

import math
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from unspool import wiring
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
from unspool.domain.reports import IndexReport, Progress, ProjectStatus, RememberReport, StoreStatus
from unspool.errors import (
    ConflictError,
    ContinuationError,
    DimensionError,
    InputError,
    MalformedContinuationError,
    NotFoundError,
    ServiceError,
)
from unspool.memory.history import CatalogHistory, History
from unspool.parts import Parts
from unspool.settings import Settings

# the real imports are where they are used: `import unspool` stays under a tenth of a second
if TYPE_CHECKING:
    from unspool.answering.answer import AnswerStream
    from unspool.catalog import Catalog
    from unspool.catalog.projects import ProjectRow
    from unspool.indexing.pipeline import Indexer
    from unspool.memory.conversations import Conversations


MAX_LIMIT = 1000
MAX_TOTAL_TOKENS = 2_000_000
OnProgress = Callable[[Progress], None]
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _check_page(limit: int, max_tokens: int) -> None:
    if not (isinstance(limit, int) and 1 <= limit <= MAX_LIMIT):
        raise InputError(f"limit is {limit!r}; give a whole number from 1 to {MAX_LIMIT}")
    if not (isinstance(max_tokens, int) and max_tokens >= 0):
        raise InputError(
            f"max_tokens is {max_tokens!r}; give 0 for no budget, or the number of tokens a page "
            f"may take"
        )


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
    """The corpus at an address, or the one that the settings name. It is made if it does not exist.

    `embedder` is a name as in the settings, a LangChain `Embeddings` object, or an embedder of
    one's own.
    """
    name = embedder if isinstance(embedder, str) else None
    given = {"database": address, "vectors": vectors, "embedder": name}
    settings = (
        Settings.load(arguments=given) if settings is None else settings.with_arguments(given)
    )
    return Corpus(settings, embedder=None if name is not None else embedder)


def _following(
    method: Callable[Concatenate[Corpus, _P], _T],
) -> Callable[Concatenate[Corpus, _P], _T]:
    """What a method gives; once more where the catalog went over to another embedder while it
    ran, and perhaps forgot the old one.
    """

    @wraps(method)
    def run(self: Corpus, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        embedder = self._parts.embedder
        try:
            return method(self, *args, **kwargs)
        except (ConflictError, ServiceError):
            self._parts.look(searched=True)
            if self._parts.embedder is embedder:
                raise
            return method(self, *args, **kwargs)

    return run


class Corpus:
    """An open corpus. Safe to use from several threads; several processes may open the same one."""

    def __init__(self, settings: Settings, *, embedder: object = None) -> None:
        self.settings = settings
        self._hooks = Hooks()
        self._parts = Parts(settings, embedder, emit=self._hooks.emit)
        self._keys = Keys(self._parts)  # one for all: it remembers that there have been keys

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
        """Let go of every file and connection."""
        self._parts.close()

    # In

    def index(
        self,
        source: str | Path,
        *,
        project: str | None = None,
        ref: str = "",
        on_progress: OnProgress | None = None,
    ) -> IndexReport:
        """Bring a project up to date with a folder, a file or a git URL. The project is called
        after it unless named.
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
        """The same; without `redirects`, what a git URL leads elsewhere from is not followed."""
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
            return self._indexed(
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
        if project is None and (known := naming.at(self._parts.catalog, root)) is not None:
            project, whole = known, self._project(known).root
            if whole != storable(str(root)):
                # part of a project: its whole is brought up to date, nothing else may be removed
                root = Path(whole)
        name = project or naming.free(self._parts.catalog, root)
        check_project(name)
        return self._indexed(
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
        from unspool.indexing.pipeline import put

        if not documents:
            raise InputError("no document was given; put takes at least one")
        names = {document.project for document in documents}
        if len(names) > 1:
            raise InputError(
                f"the documents belong to {len(names)} projects; put one project at a time"
            )
        if len({document.path for document in documents}) < len(documents):
            raise InputError("two of the documents have the same path; give each path once")
        return self._indexed(lambda indexer: put(indexer, documents), task="put")

    @_following
    def forget(self, *, project: str, path: str | None = None) -> int:
        """Remove a document, or with no path the whole project; returns how many documents went."""
        from unspool.catalog import documents
        from unspool.indexing import forgetting

        row = self._project(project)
        self._parts.look()
        store = self._parts.ready()
        if path is None:
            count = forgetting.forget_project(self._parts.catalog, store, row.id)
            shutil.rmtree(self._clone(project), ignore_errors=True)
            return count
        with self._parts.catalog.read() as connection:
            found = documents.find_ids(connection, row.id, [path])
        count = forgetting.forget_documents(
            self._parts.catalog, store, row.id, list(found.values())
        )
        if not count:
            raise NotFoundError(
                f"no document {path!r} in project {project!r}; `unspool documents` lists them"
            )
        return count

    # Conversations

    @property
    def conversations(self) -> Conversations:
        """What was said: saved, continued, read, listed, deleted."""
        from unspool.memory.conversations import Conversations

        return Conversations(self._parts, self.settings.project)

    def remember(self, *conversations: Conversation) -> RememberReport:
        """Store conversations, all or none: those of the same id are replaced, and only messages
        that are new or changed are embedded.
        """
        return self.conversations.save(*conversations)

    def remember_files(
        self,
        paths: Sequence[str | Path] | str | Path,
        *,
        project: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> RememberReport:
        """Take in exports of conversations: ChatGPT, Claude, Slack, JSON, JSONL, transcripts of
        agents. What cannot be read is reported.
        """
        return self.conversations.load(paths, project=project, on_progress=on_progress)

    @property
    def keys(self) -> Keys:
        """Who may ask through a service: made, listed, revoked."""
        return self._keys

    # Out

    @_following
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
        """The best chunks for a query, best first. With no project named, the only one there is;
        never several by accident.

        `max_total_tokens` caps this page and all that follow it together. `caller` binds the
        continuation: nobody else can use it.
        """
        from unspool.search import engine
        from unspool.windows import AskedProject, Question

        filters.parse(where)
        settings = self.settings
        limit = settings.limit if limit is None else limit
        max_tokens = settings.max_tokens if max_tokens is None else max_tokens
        max_total_tokens = (
            settings.max_total_tokens if max_total_tokens is None else max_total_tokens
        )
        _check_page(limit, max_tokens)
        _check_caller(caller)
        if min_score is not None and not (
            isinstance(min_score, int | float) and math.isfinite(min_score)
        ):
            raise InputError(f"min_score is {min_score!r}; give a number")
        if not (isinstance(max_total_tokens, int) and 0 <= max_total_tokens <= MAX_TOTAL_TOKENS):
            raise InputError(
                f"max_total_tokens is {max_total_tokens}; give 0 for no budget, or up to "
                f"{MAX_TOTAL_TOKENS} for all pages together"
            )
        rows = self._named(projects)
        planned = engine.plan_for(
            query,
            self._parts.embedder,
            alpha=settings.alpha if alpha is None else alpha,
            limit=limit,
            window=settings.window,
        )
        if not rows:
            return Page(
                query=query,
                projects=(),
                hits=(),
                alpha=planned.alpha,
                notes=("nothing is indexed yet",),
            )
        question = Question(
            query=planned.query,
            projects=tuple(AskedProject(row.id, row.name, row.seq) for row in rows),
            alpha=planned.alpha,
            limit=limit,
            max_tokens=max_tokens,
            max_total_tokens=max_total_tokens,
            where=where,
            min_score=min_score,
            explain=explain,
        )
        page = self._parts.finding().ask(
            question, planned, rows, caller=caller, on_progress=on_progress
        )
        if not page.hits and where:
            from unspool.memory.conversations import unknown_names

            page = replace(
                page,
                notes=(
                    *page.notes,
                    *unknown_names(self._parts.searched, where, [row.id for row in rows]),
                ),
            )
        return self._tied(page, caller)

    @_following
    def more(
        self,
        continuation: str,
        *,
        limit: int | None = None,
        max_tokens: int | None = None,
        restart: bool = False,
        caller: str = "",
    ) -> Page:
        """The page that a continuation leads to: the same one every time. `limit` and `max_tokens`
        change this page alone.

        With `restart`, a continuation that cannot be followed any more gives the first page again,
        with a warning; one that never was any, or was somebody else's, is an error all the same.
        """
        _check_page(self.settings.limit if limit is None else limit, max_tokens or 0)
        _check_caller(caller)
        if not isinstance(continuation, str):
            raise MalformedContinuationError(
                f"a continuation is text, not a {type(continuation).__name__}; give "
                f"page.continuation"
            )
        self._parts.glance()
        try:
            return self._tied(
                self._parts.finding().go_on(
                    continuation.strip(), limit=limit, max_tokens=max_tokens, caller=caller
                ),
                caller,
            )
        except ContinuationError as error:
            if not restart or error.question is None:
                raise
            return self._again(error, limit=limit, max_tokens=max_tokens, caller=caller)

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
        """What a model answers from the best chunks for a question, each citation checked. Where
        nothing is found, no model is called.

        `model` is a name as in the settings or a model of one's own; with none, the answer holds
        what one would be shown. `conversation` is what was said before, oldest first. `on_text` is
        called with each piece as it comes.
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
        """The same as `ask`, piece by piece: iterate over the text, then look at `answer`.

        Closing it ends the request at once.
        """
        chosen = wiring.open_model(self.settings, model)

        def search(text: str) -> Page:
            return self.search(
                text, projects=projects, where=where, limit=limit, max_tokens=0, max_total_tokens=0
            )

        return self._parts.answers().begin(question, search, model=chosen, turns=conversation)

    def warm(self, queries: Iterable[str], *, on_progress: OnProgress | None = None) -> int:
        """Embed queries ahead of time, for this process and for others; returns how many were
        not known yet.
        """
        self._parts.glance()
        texts = [queries] if isinstance(queries, str) else list(queries)

        def tell(done: int) -> None:
            if on_progress is not None:
                on_progress(Progress(task="embedding", done=done, total=len(texts)))

        return self._parts.finding().warm(texts, on_done=tell)

    def observe(self, hook: Hook) -> Callable[[], None]:
        """Call a function with every event, such as `PageServed`; what is returned ends it."""
        return self._hooks.add(hook)

    @_following
    def related(
        self, path: str, line: int = 1, *, project: str | None = None, limit: int | None = None
    ) -> Page:
        """The chunks most like the one at a line of a document, itself left out."""
        from unspool.access import projects as naming
        from unspool.catalog import chunks as chunk_rows
        from unspool.search import nearest

        limit = self.settings.limit if limit is None else limit
        _check_page(limit, 0)
        if line < 1:
            raise InputError(f"line is {line}; lines are counted from 1")
        row = naming.only(self._named([project] if project else None), "related")
        store = self._parts.searching()
        store.fresh(row)
        with self._parts.searched.read() as connection:
            chunk = chunk_rows.find_chunk_at(connection, row.id, path, line)
        if chunk is None:
            raise NotFoundError(
                f"no document {path!r} in project {row.name!r}; `unspool documents` lists them"
            )
        return nearest.related(
            self._parts.searched,
            store,
            row,
            chunk,
            space_id=store.space_id,
            limit=limit,
            count_tokens=self._parts.embedder.count_tokens,
        )

    @_following
    def nearest(
        self,
        vector: Sequence[float],
        *,
        k: int = 10,
        projects: Sequence[str] | str | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> list[Hit]:
        """The k chunks whose vectors are closest, by cosine unless `vector_metric` says
        otherwise: raw vector search, no words and no ranking.
        """
        import numpy as np

        from unspool.search.nearest import nearest as search

        if not 1 <= k <= 10_000:
            raise InputError(f"k is {k}; give a number from 1 to 10000")
        rows = self._named(projects)
        try:
            array = np.asarray(vector, dtype=np.float32)
        except (ValueError, TypeError) as error:
            raise InputError(
                f"the vector is not made of numbers ({error}); give "
                f"{self._parts.embedder.dimension} of them"
            ) from None
        if array.shape != (self._parts.embedder.dimension,):
            raise DimensionError(
                f"the vector has {array.size} numbers, the vector space "
                f"{self._parts.embedder.dimension}; embed it with {self._parts.embedder.name}"
            )
        length = float(np.linalg.norm(array))
        if not np.isfinite(length) or length == 0:
            raise InputError("the vector is zero or not finite; it has no direction to search in")
        if not rows:
            return []
        store = self._parts.searching()
        for row in rows:
            store.fresh(row)
        return search(
            self._parts.searched,
            store,
            rows,
            array / length,
            k=k,
            where=filters.parse(where),
            count_tokens=self._parts.embedder.count_tokens,
        )

    def embed(self, text: str) -> list[float]:
        """A text's vector in this corpus's space, as `nearest` takes it.

        Python warns where the embedder reads only its beginning.
        """
        from unspool.embedders.base import is_cut

        if not text.strip():
            raise InputError("the text is blank; it has no vector")
        # `nearest` would search with it in the space that is in use
        self._parts.look(searched=True)
        embedder = self._parts.embedder
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
        """What is known of each document, by project and path. A project's can be had in parts:
        `limit` of them, `after` the last path of the ones before."""
        from unspool.catalog import documents

        check_listed(project, after, limit)
        wanted = checked_status(status)
        ids = None if project is None else [self._project(project).id]
        with self._parts.catalog.read() as connection:
            return list(
                documents.list_documents(
                    connection, project_ids=ids, status=wanted, path=path, after=after, limit=limit
                )
            )

    def read(
        self, path: str, *, project: str | None = None, first: int = 1, last: int | None = None
    ) -> Passage:
        """The lines of a document from one to another, both included, or to its end, as they
        were indexed; of a conversation the messages.
        """
        from unspool.access import projects as naming
        from unspool.catalog import passages

        row = naming.only(self._named([project] if project else None), "read")
        with self._parts.searched.read() as connection:
            passage = passages.read_passage(connection, row, path, first=first, last=last)
        if passage is None:
            raise NotFoundError(
                f"no document {path!r} in project {row.name!r}; `unspool documents` lists them"
            )
        return passage

    def count(self, *, project: str | None = None) -> int:
        """How many chunks there are, in one project or in all."""
        from unspool.catalog import chunks as chunk_rows
        from unspool.catalog import projects

        named = None if project is None else [self._project(project)]
        with self._parts.catalog.read() as connection:
            rows = projects.list_projects(connection) if named is None else named
            return sum(chunk_rows.count_chunks(connection, row.id) for row in rows)

    def count_tokens(self, text: str) -> int:
        """How many tokens a text has for the embedder."""
        return self._parts.embedder.count_tokens(text)

    def history(
        self, stream: str, *, project: str | None = None, retention: Retention | None = None
    ) -> History:
        """The responses of an endpoint, a job or a tool, newest first. Nothing is made before the
        first one is appended.

        A stream belongs to a project: the one named, else the setting's, else `default`.
        `retention` is the settings' unless given.
        """
        kept = wiring.retention(self.settings) if retention is None else retention
        name = project if project is not None else self.settings.project or DEFAULT_PROJECT
        return CatalogHistory(self._parts.catalog, stream, project=name, retention=kept)

    def streams(self, *, project: str | None = None) -> list[StreamStatus]:
        """Every stream of responses, or those of one project, by project and name."""
        from unspool.catalog import history

        with self._parts.catalog.read() as connection:
            return history.list_streams(connection, project)

    def projects(self) -> list[str]:
        """The names of all projects."""
        from unspool.catalog import projects

        with self._parts.catalog.read() as connection:
            return [row.name for row in projects.list_projects(connection)]

    def stores(self) -> list[StoreStatus]:
        """Where vectors are kept, and what can be done there."""
        from dataclasses import asdict

        store = self._parts.searching()
        return [StoreStatus(name=store.name, in_use=True, capabilities=asdict(store.capabilities))]

    def status(self, *, project: str | None = None) -> list[ProjectStatus]:
        """Every project with its counts, or one."""
        from unspool.catalog import chunks as chunk_rows
        from unspool.catalog import documents, projects, spaces

        out = []
        with self._parts.catalog.read() as connection:
            active = spaces.find_active_id(connection)
        self._parts.follow(active)
        store = None if active is None else self._parts.ready()
        with self._parts.catalog.read() as connection:
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
                        waiting=chunks if store is None else store.unseen(connection, row.id),
                    )
                )
        return out

    def size_bytes(self) -> int:
        """What the catalog takes on disk."""
        return self._parts.catalog.measure_size()

    def project_of(self, path: str | Path) -> str | None:
        """The project that was indexed from a path or a folder above it; the nearest one."""
        from unspool.access import projects as naming

        return naming.at(self._parts.searched, path)

    def root_of(self, project: str) -> str:
        """Where a project was indexed from; empty for one made of documents given as text."""
        return self._project(project, self._parts.searched).root

    @_following
    def refresh(self, *, on_progress: OnProgress | None = None) -> list[str]:
        """Make the index absorb everything that is stored, and rebuild what is missing or damaged.

        Returns what was repaired.
        """
        from unspool.catalog import projects

        self._parts.look()
        with self._parts.catalog.read() as connection:
            rows = projects.list_projects(connection)
        for row in rows:
            self._parts.ready().absorb(row.id, verify=True, on_progress=on_progress)
        return self._parts.ready().take_warnings() if rows else []

    # Inside

    def _indexed(
        self, write: Callable[[Indexer], IndexReport], *, task: str = "index"
    ) -> IndexReport:
        report = self._parts.written(write)
        return self._parts.told(task, report, failed=report.failed, removed=report.removed)

    def _document(
        self, path: str, *, project: str, first: int, last: int | None
    ) -> tuple[DocumentRecord, Passage] | None:
        """What is known of a document and some of its lines, both of one moment; None where there
        is no such document.

        From the catalog that is written, as all that is known of documents: who has just put one
        reads that one, and the version to replace.
        """
        from unspool.access import projects as naming
        from unspool.catalog import documents, passages

        with self._parts.catalog.read() as connection:
            row = naming.found(connection, project)
            passage = passages.read_passage(connection, row, path, first=first, last=last)
            known = list(documents.list_documents(connection, project_ids=[row.id], path=path))
        return None if passage is None else (known[0], passage)

    def _tied(self, page: Page, caller: str) -> Page:
        """The page, with its way to the next."""
        return replace(page, follow=lambda continuation: self.more(continuation, caller=caller))

    def _again(
        self, error: ContinuationError, *, limit: int | None, max_tokens: int | None, caller: str
    ) -> Page:
        """The first page of what a continuation was about."""
        from unspool.catalog import projects
        from unspool.windows import Question

        asked = error.question
        assert isinstance(asked, Question)
        with self._parts.searched.read() as connection:
            known = {row.name for row in projects.list_projects(connection)}
        page = self.search(
            asked.query,
            projects=[project.name for project in asked.projects if project.name in known]
            or [project.name for project in asked.projects],
            limit=asked.limit if limit is None else limit,
            max_tokens=asked.max_tokens if max_tokens is None else max_tokens,
            alpha=asked.alpha,
            where=asked.where,
            min_score=asked.min_score,
            explain=asked.explain,
            max_total_tokens=asked.max_total_tokens,
            caller=caller,
        )
        reason = str(error).partition(";")[0]
        return replace(page, warnings=(f"{reason}; this is the first page again", *page.warnings))

    def _project(self, name: str, catalog: Catalog | None = None) -> ProjectRow:
        from unspool.access import projects as naming

        with (catalog or self._parts.catalog).read() as connection:
            return naming.found(connection, name)

    def _named(self, names: Sequence[str] | str | None) -> list[ProjectRow]:
        """The projects that a search is about; where none is named, the settings' one."""
        from unspool.access import projects as naming

        if names is None and self.settings.project:
            names = [self.settings.project]
        rows, active = naming.named(self._parts.searched, names)
        self._parts.follow(active)
        return rows

    def _clones(self) -> Path:
        return self._parts.catalog.get_folder("clones")

    def _clone(self, project: str) -> Path:
        """Where a project's repository is fetched to; its name is only hashed, so no name can
        lead out of the folder.
        """
        from unspool.catalog.projects import hash_name

        return self._clones() / hash_name(project).hex()[:32]
