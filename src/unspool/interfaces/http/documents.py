"""Projects and their documents: listed, read, stored, removed."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from unspool.errors import ConflictError
from unspool.interfaces import render, shapes
from unspool.interfaces.http import requests
from unspool.interfaces.http.addresses import Document, DocumentsAsked, LinesAsked, Project
from unspool.interfaces.http.responses import JsonResponse, fitting
from unspool.interfaces.http.routing import gives, router
from unspool.interfaces.http.service import Asking
from unspool.views import View

projects = router("projects")
routes = router("documents")


@projects.get(
    "/projects",
    operation_id="list_projects",
    summary="List projects",
    responses=gives(shapes.Projects),
)
async def list_projects(asking: Asking) -> JsonResponse:
    """Every project that the key can see, with its counts."""
    return await asking.json(
        lambda view: {"projects": [render.project_status(one) for one in view.status()]}
    )


@projects.get(
    "/projects/{project}",
    operation_id="get_project",
    summary="Look at a project",
    responses=gives(shapes.ProjectStatus, 404),
)
async def get_project(asking: Asking, project: Project) -> JsonResponse:
    """A project with its counts. `root` is told to admins alone."""
    return await asking.json(lambda view: render.project_status(view.status(project=project)[0]))


@projects.delete(
    "/projects/{project}",
    operation_id="delete_project",
    summary="Remove a project",
    responses=gives(shapes.Forgotten, 404),
)
async def delete_project(asking: Asking, project: Project) -> JsonResponse:
    """Remove a project with everything in it; for admins."""
    return await asking.written(lambda view: {"forgotten": view.forget(project=project)})


@routes.get(
    "/projects/{project}/documents",
    operation_id="list_documents",
    summary="List documents",
    responses=gives(shapes.Documents, 404),
)
async def list_documents(
    asking: Asking, project: Project, asked: Annotated[DocumentsAsked, Query()]
) -> JsonResponse:
    """What is known of each document, by path, up to 8 MB of it; `next` is what to give as
    `after` for the next ones.
    """

    def listed(view: View) -> shapes.Documents:
        found = view.documents(
            project=project, status=asked.status, after=asked.after, limit=asked.limit
        )
        shown = list(fitting(map(render.document, found)))
        is_last = len(shown) == len(found) < asked.limit or not found
        return {"documents": shown, "next": None if is_last else found[len(shown) - 1].path}

    return await asking.json(listed)


@routes.put(
    "/projects/{project}/documents",
    operation_id="put_documents",
    summary="Store documents",
    responses=gives(shapes.IndexReport, 404, body=True),
)
async def put_documents(
    asking: Asking, project: Project, body: requests.DocumentsRequest
) -> JsonResponse:
    """Store documents given as text, all or none, replacing those of the same path.

    They are findable when this returns.
    """
    return await asking.written(lambda view: render.index_report(view.put(*body.values(project))))


@routes.get(
    "/projects/{project}/documents/{path:path}",
    operation_id="get_document",
    summary="Read a document",
    responses=gives(shapes.DocumentText, 404),
)
async def get_document(
    asking: Asking, project: Project, path: Document, asked: Annotated[LinesAsked, Query()]
) -> JsonResponse:
    """What is known of a document, and the text of some of its lines, as it was indexed: secrets
    are masked.
    """
    if asked.last is not None and asked.last < asked.first:
        raise ConflictError(
            f"line {asked.last} is before line {asked.first}; give the first line and then the last"
        )

    def found(view: View) -> shapes.DocumentText:
        record, passage = view.passage(path, project=project, first=asked.first, last=asked.last)
        return {"document": render.document(record), "passage": render.passage(passage)}

    return await asking.json(found)


@routes.put(
    "/projects/{project}/documents/{path:path}",
    operation_id="put_document",
    summary="Store a document",
    responses=gives(shapes.IndexReport, 404, body=True),
)
async def put_document(
    asking: Asking, project: Project, path: Document, body: requests.GivenDocument
) -> JsonResponse:
    """Store a document given as text, replacing the one of the same path."""
    return await asking.written(
        lambda view: render.index_report(view.put(body.value(project, path)))
    )


@routes.delete(
    "/projects/{project}/documents/{path:path}",
    operation_id="delete_document",
    summary="Remove a document",
    responses=gives(shapes.Forgotten, 404),
)
async def delete_document(asking: Asking, project: Project, path: Document) -> JsonResponse:
    """Remove a document."""
    return await asking.written(lambda view: {"forgotten": view.forget(project=project, path=path)})
