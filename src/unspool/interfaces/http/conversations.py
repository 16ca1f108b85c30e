"""What was said: saved, continued, read, listed, removed."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from unspool.errors import NotFoundError
from unspool.interfaces import render, shapes
from unspool.interfaces.http import requests
from unspool.interfaces.http.addresses import (
    ChunkId,
    ConversationId,
    ConversationsAsked,
    MessagesAsked,
    Project,
)
from unspool.interfaces.http.responses import JsonResponse
from unspool.interfaces.http.routing import gives, router
from unspool.interfaces.http.service import Asking
from unspool.views import View

routes = router("conversations")
_ALL = "/projects/{project}/conversations"
_ONE = _ALL + "/{id}"


@routes.get(
    _ALL,
    operation_id="list_conversations",
    summary="List conversations",
    responses=gives(shapes.Conversations, 404),
)
async def list_conversations(
    asking: Asking, project: Project, asked: Annotated[ConversationsAsked, Query()]
) -> JsonResponse:
    """Conversations without their messages, those that began last first."""

    def listed(view: View) -> shapes.Conversations:
        found = view.conversations.list(project=project, skip=asked.skip, limit=asked.limit)
        count = view.conversations.count(project=project)
        if not count:
            view.check_project(project)
        return {"conversations": [render.conversation_record(one) for one in found], "count": count}

    return await asking.json(listed)


@routes.post(
    _ALL,
    operation_id="save_conversations",
    summary="Save conversations",
    responses=gives(shapes.RememberReport, 404, body=True),
)
async def save_conversations(
    asking: Asking, project: Project, body: requests.ConversationsRequest
) -> JsonResponse:
    """Store conversations, all or none: those of the same id are replaced, and only messages
    that are new or changed are embedded.
    """
    return await asking.written(
        lambda view: render.remember_report(view.conversations.save(*body.values(project)))
    )


@routes.get(
    _ONE,
    operation_id="get_conversation",
    summary="Read a conversation",
    responses=gives(shapes.Conversation, 404),
)
async def get_conversation(
    asking: Asking, project: Project, id: ConversationId, asked: Annotated[MessagesAsked, Query()]
) -> JsonResponse:
    """A conversation with its messages in order, or the last so many of them."""

    def found(view: View) -> shapes.Conversation:
        one = view.conversations.get(id, project=project, last=asked.last)
        if one is None:
            raise _missing(id, project)
        return render.conversation(one)

    return await asking.json(found)


@routes.put(
    _ONE,
    operation_id="put_conversation",
    summary="Save a conversation",
    responses=gives(shapes.RememberReport, 404, body=True),
)
async def put_conversation(
    asking: Asking, project: Project, id: ConversationId, body: requests.GivenConversation
) -> JsonResponse:
    """Store a conversation, replacing the one of the same id."""
    return await asking.written(
        lambda view: render.remember_report(view.conversations.save(body.value(project, id)))
    )


@routes.delete(
    _ONE,
    operation_id="delete_conversation",
    summary="Remove a conversation",
    responses=gives(shapes.Forgotten, 404),
)
async def delete_conversation(asking: Asking, project: Project, id: ConversationId) -> JsonResponse:
    """Remove a conversation with everything under it."""

    def removed(view: View) -> shapes.Forgotten:
        if not view.conversations.delete(id, project=project):
            raise _missing(id, project)
        return {"forgotten": 1}

    return await asking.written(removed)


@routes.post(
    _ONE + "/messages",
    operation_id="append_messages",
    summary="Continue a conversation",
    responses=gives(shapes.RememberReport, 404, body=True),
)
async def append_messages(
    asking: Asking, project: Project, id: ConversationId, body: requests.MessagesRequest
) -> JsonResponse:
    """Store messages behind a conversation's last; one that does not exist begins with them.

    A message that is there by its id is left out.
    """

    def appended(view: View) -> shapes.RememberReport:
        return render.remember_report(
            view.conversations.append(id, *requests.values_of(body.messages), project=project)
        )

    return await asking.written(appended)


@routes.get(
    _ONE + "/chunks",
    operation_id="list_chunks",
    summary="List a conversation's chunks",
    responses=gives(shapes.Chunks, 404),
)
async def list_chunks(asking: Asking, project: Project, id: ConversationId) -> JsonResponse:
    """What is searched of a conversation, in order: a chunk for each message, several for a long
    one.
    """

    def found(view: View) -> shapes.Chunks:
        if not view.conversations.exists(id, project=project):
            raise _missing(id, project)
        return {
            "chunks": [render.chunk(one) for one in view.conversations.chunks(id, project=project)]
        }

    return await asking.json(found)


@routes.get(
    "/projects/{project}/chunks/{chunk}",
    operation_id="get_chunk",
    summary="Read a chunk",
    responses=gives(shapes.Chunk, 404),
)
async def get_chunk(asking: Asking, project: Project, chunk: ChunkId) -> JsonResponse:
    """A chunk of a conversation by its id, as a hit with `full` names it."""

    def found(view: View) -> shapes.Chunk:
        one = view.conversations.chunk(int(chunk), project=project)
        if one is None:
            raise NotFoundError(
                f"no chunk {chunk} among the conversations of project {project!r}; search again, "
                f"it may have been rewritten"
            )
        return render.chunk(one)

    return await asking.json(found)


def _missing(id_: str, project: str) -> NotFoundError:
    return NotFoundError(
        f"no conversation {id_[:80]!r} in project {project!r}; the list of conversations names them"
    )
