"""Operations on conversations and their messages."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from unspool import wire
from unspool.domain.conversations import Conversation, ConversationRecord
from unspool.domain.documents import Chunk
from unspool.domain.reports import RememberReport
from unspool.errors import NotFoundError
from unspool.interfaces.http import requests
from unspool.interfaces.http.addresses import (
    ChunkId,
    ConversationId,
    ConversationsQuery,
    MessagesQuery,
    Project,
)
from unspool.interfaces.http.routing import create_router, list_responses
from unspool.interfaces.http.service import CurrentCaller, read, write

routes = create_router("conversations")
_ALL = "/projects/{project}/conversations"
_ONE = _ALL + "/{id}"


@routes.get(
    _ALL,
    summary="List conversations",
    responses=list_responses({"conversations": list[ConversationRecord], "count": int}, 404),
)
@read
def list_conversations(
    caller: CurrentCaller, project: Project, query: Annotated[ConversationsQuery, Query()]
) -> wire.Json:
    """Return conversations without their messages, newest first."""
    found = caller.corpus.conversations.list(project=project, skip=query.skip, limit=query.limit)
    count = caller.corpus.conversations.count(project=project)
    if not count:
        caller.corpus.count(project=project)  # rejects an unknown project
    return wire.encode({"conversations": found, "count": count})


@routes.post(
    _ALL,
    summary="Save conversations",
    responses=list_responses(RememberReport, 404, body=True),
)
@write
def save_conversations(
    caller: CurrentCaller, project: Project, body: requests.ConversationsBody
) -> wire.Json:
    """Store conversations, all or none, replacing those of the same id.

    Only new or changed messages are embedded.
    """
    return wire.encode(caller.corpus.conversations.save(*body.create(project)))


@routes.get(_ONE, summary="Read a conversation", responses=list_responses(Conversation, 404))
@read
def get_conversation(
    caller: CurrentCaller,
    project: Project,
    id: ConversationId,
    query: Annotated[MessagesQuery, Query()],
) -> wire.Json:
    """Return a conversation with its messages in order, or with only the last ones."""
    found = caller.corpus.conversations.get(id, project=project, last=query.last)
    if found is None:
        raise _create_missing_error(id, project)
    return wire.encode(found)


@routes.put(
    _ONE,
    summary="Save a conversation",
    responses=list_responses(RememberReport, 404, body=True),
)
@write
def put_conversation(
    caller: CurrentCaller, project: Project, id: ConversationId, body: requests.GivenConversation
) -> wire.Json:
    """Store a conversation, replacing the one of the same id."""
    return wire.encode(caller.corpus.conversations.save(body.create(project, id)))


@routes.delete(
    _ONE, summary="Remove a conversation", responses=list_responses({"forgotten": int}, 404)
)
@write
def delete_conversation(caller: CurrentCaller, project: Project, id: ConversationId) -> wire.Json:
    """Remove a conversation with everything under it."""
    if not caller.corpus.conversations.delete(id, project=project):
        raise _create_missing_error(id, project)
    return {"forgotten": 1}


@routes.post(
    _ONE + "/messages",
    summary="Continue a conversation",
    responses=list_responses(RememberReport, 404, body=True),
)
@write
def append_messages(
    caller: CurrentCaller, project: Project, id: ConversationId, body: requests.MessagesBody
) -> wire.Json:
    """Store messages after a conversation's last. A missing conversation is created.

    A message whose id exists already is left out.
    """
    messages = requests.create_messages(body.messages)
    return wire.encode(caller.corpus.conversations.append(id, *messages, project=project))


@routes.get(
    _ONE + "/chunks",
    summary="List a conversation's chunks",
    responses=list_responses({"chunks": list[Chunk]}, 404),
)
@read
def list_chunks(caller: CurrentCaller, project: Project, id: ConversationId) -> wire.Json:
    """Return the chunks of a conversation in order. A long message has several."""
    if not caller.corpus.conversations.exists(id, project=project):
        raise _create_missing_error(id, project)
    found = caller.corpus.conversations.chunks(id, project=project)
    return wire.encode({"chunks": found})


@routes.get(
    "/projects/{project}/chunks/{chunk}",
    summary="Read a chunk",
    responses=list_responses(Chunk, 404),
)
@read
def get_chunk(caller: CurrentCaller, project: Project, chunk: ChunkId) -> wire.Json:
    """Return a chunk of a conversation by its id, which a hit with `full` contains."""
    found = caller.corpus.conversations.chunk(int(chunk), project=project)
    if found is None:
        raise NotFoundError(
            f"no chunk {chunk} among the conversations of project {project!r}; search again, "
            f"it may have been rewritten"
        )
    return wire.encode(found)


def _create_missing_error(id_: str, project: str) -> NotFoundError:
    return NotFoundError(
        f"no conversation {id_[:80]!r} in project {project!r}; the list of conversations names them"
    )
