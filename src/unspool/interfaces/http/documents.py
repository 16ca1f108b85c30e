"""Operations on projects and their documents."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from unspool import wire
from unspool.domain.documents import DocumentRecord, Passage
from unspool.domain.reports import IndexReport, ProjectStatus
from unspool.errors import ConflictError
from unspool.interfaces.http import requests
from unspool.interfaces.http.addresses import Document, DocumentsQuery, LinesQuery, Project
from unspool.interfaces.http.responses import fit_page
from unspool.interfaces.http.routing import create_router, list_responses
from unspool.interfaces.http.service import CurrentCaller, read, write

projects = create_router("projects")
routes = create_router("documents")
_PROJECT = "/projects/{project}"
_ALL = _PROJECT + "/documents"
_ONE = _ALL + "/{path:path}"


@projects.get(
    "/projects",
    summary="List projects",
    responses=list_responses({"projects": list[ProjectStatus]}),
)
@read
def list_projects(caller: CurrentCaller) -> wire.Json:
    """Return every project that the key can see, with its counts."""
    return wire.encode({"projects": caller.corpus.status()})


@projects.get(_PROJECT, summary="Look at a project", responses=list_responses(ProjectStatus, 404))
@read
def get_project(caller: CurrentCaller, project: Project) -> wire.Json:
    """Return a project with its counts. Only admins see `root`."""
    return wire.encode(caller.corpus.status(project=project)[0])


@projects.delete(
    _PROJECT, summary="Remove a project", responses=list_responses({"forgotten": int}, 404)
)
@write
def delete_project(caller: CurrentCaller, project: Project) -> wire.Json:
    """Remove a project with everything in it; for admins."""
    return {"forgotten": caller.corpus.forget(project=project)}


@routes.get(
    _ALL,
    summary="List documents",
    responses=list_responses({"documents": list[DocumentRecord], "next": str | None}, 404),
)
@read
def list_documents(
    caller: CurrentCaller, project: Project, query: Annotated[DocumentsQuery, Query()]
) -> wire.Json:
    """Return the record of each document, by path, up to 8 MB. `next` is the `after` of the next
    page.
    """
    found = caller.corpus.documents(
        project=project, status=query.status, after=query.after, limit=query.limit
    )
    records = list(fit_page(map(wire.encode, found)))
    is_last = len(records) == len(found) < query.limit or not found
    return {"documents": records, "next": None if is_last else found[len(records) - 1].path}


@routes.put(_ALL, summary="Store documents", responses=list_responses(IndexReport, 404, body=True))
@write
def put_documents(
    caller: CurrentCaller, project: Project, body: requests.DocumentsBody
) -> wire.Json:
    """Store documents given as text, all or none, replacing those of the same path.

    Searches find them when this returns.
    """
    return wire.encode(caller.corpus.put(*body.create(project)))


@routes.get(
    _ONE,
    summary="Read a document",
    responses=list_responses({"document": DocumentRecord, "passage": Passage}, 404),
)
@read
def get_document(
    caller: CurrentCaller, project: Project, path: Document, query: Annotated[LinesQuery, Query()]
) -> wire.Json:
    """Return the record of a document, and the text of some of its lines as indexed, with secrets
    masked.
    """
    if query.last is not None and query.last < query.first:
        raise ConflictError(
            f"line {query.last} is before line {query.first}; give the first line and then the last"
        )
    record, passage = caller.corpus.passage(
        path, project=project, first=query.first, last=query.last
    )
    return wire.encode({"document": record, "passage": passage})


@routes.put(_ONE, summary="Store a document", responses=list_responses(IndexReport, 404, body=True))
@write
def put_document(
    caller: CurrentCaller, project: Project, path: Document, body: requests.GivenDocument
) -> wire.Json:
    """Store a document given as text, replacing the one of the same path."""
    return wire.encode(caller.corpus.put(body.create(project, path)))


@routes.delete(_ONE, summary="Remove a document", responses=list_responses({"forgotten": int}, 404))
@write
def delete_document(caller: CurrentCaller, project: Project, path: Document) -> wire.Json:
    """Remove a document."""
    return {"forgotten": caller.corpus.forget(project=project, path=path)}
