"""Two keys, two projects, over HTTP and MCP: no endpoint and no tool shows anything of the
other's project, in a body, a header or an error.
"""

from __future__ import annotations

import base64
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx2
import pytest

from neighbours import SEED, Neighbour, Street, settled, street_at, turns
from support import Places, settings_for
from unspool.interfaces.http.app import create_app
from unspool.interfaces.http.server import HttpServer, bind, create_config

CALLS = 500
UNLIKE = {"date", "content-length"}  # headers that are different each time


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, Any] | None = None
    body: dict[str, Any] | None = None


Asked = Callable[[Neighbour, Neighbour, random.Random], Request]


@contextmanager
def served(street: Street) -> Iterator[str]:
    """The address of a service over the street's catalog."""
    settings = settings_for(
        street.place,
        roots=street.corpus.settings.serve.roots,
        serve_port=0,
        rate_limit=0,
        log_level="error",
    )
    listening = bind(settings)
    server = HttpServer(create_config(settings, create_app(settings)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@pytest.fixture(scope="module")
def street(module_places: Places, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Street]:
    with street_at(module_places.new(), tmp_path_factory.mktemp("street")) as made:
        yield made


@pytest.fixture(scope="module")
def clients(street: Street) -> Iterator[dict[str, httpx2.Client]]:
    """A client for each key."""
    with served(street) as address:
        made = {
            mark: httpx2.Client(
                base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=30
            )
            for mark, key in street.keys.items()
        }
        yield made
        for client in made.values():
            client.close()


def _at(whose: Neighbour, *names: str) -> str:
    return "/".join(["/v1/projects", *(quote(name, safe="") for name in (whose.project, *names))])


def _where(whose: Neighbour, me: Neighbour, chance: random.Random) -> dict[str, Any]:
    projects = chance.choice(
        [None, [whose.project], [me.project, whose.project], ["*"], ["*", whose.project]]
    )
    return {
        "projects": projects,
        "where": chance.choice(whose.filters()),
        "full": chance.random() < 0.5,
    }


def _document(whose: Neighbour, me: Neighbour, chance: random.Random) -> dict[str, Any]:
    return {
        "text": f"{me.mark}text {chance.random()}",
        "title": f"{me.mark}title",
        "metadata": {f"{me.mark}key": 1},
    }


def _talk(whose: Neighbour, me: Neighbour, chance: random.Random) -> dict[str, Any]:
    return {
        "title": f"{me.mark}title",
        "messages": [{"text": f"{me.mark}said {chance.random()}", "author": f"{me.mark}speaker"}],
    }


HTTP: dict[str, Asked] = {
    "search": lambda whose, me, chance: Request(
        "POST",
        "/v1/search",
        body={
            "query": chance.choice(me.queries),
            "limit": chance.choice([1, 50]),
            "explain": True,
            **_where(whose, me, chance),
        },
    ),
    "more": lambda whose, me, chance: Request(
        "POST",
        "/v1/more",
        body={
            "continuation": chance.choice(whose.continuations),
            "restart": chance.random() < 0.5,
            "full": True,
        },
    ),
    "related": lambda whose, me, chance: Request(
        "POST",
        "/v1/related",
        body={
            "path": chance.choice(whose.paths),
            "project": chance.choice([None, whose.project]),
            "full": True,
        },
    ),
    "nearest": lambda whose, me, chance: Request(
        "POST",
        "/v1/nearest",
        body={
            "vector": [chance.uniform(-1, 1) for _ in range(256)],
            "k": 100,
            **_where(whose, me, chance),
        },
    ),
    "embed": lambda whose, me, chance: Request(
        "POST", "/v1/embed", body={"text": chance.choice(me.queries)}
    ),
    "count_tokens": lambda whose, me, chance: Request(
        "POST", "/v1/count_tokens", body={"text": chance.choice(me.queries)}
    ),
    "ask": lambda whose, me, chance: Request(
        "POST",
        "/v1/ask",
        body={
            "question": chance.choice(me.queries),
            "stream": chance.random() < 0.5,
            **_where(whose, me, chance),
        },
    ),
    "list_projects": lambda whose, me, chance: Request("GET", "/v1/projects"),
    "get_project": lambda whose, me, chance: Request("GET", _at(whose)),
    "delete_project": lambda whose, me, chance: Request(
        "GET" if whose is me else "DELETE", _at(whose)
    ),
    "list_documents": lambda whose, me, chance: Request(
        "GET", _at(whose, "documents"), {"after": chance.choice(whose.paths), "limit": 5}
    ),
    "put_documents": lambda whose, me, chance: Request(
        "PUT",
        _at(whose, "documents"),
        body={"documents": [{"path": f"extra-{me.mark}path", **_document(whose, me, chance)}]},
    ),
    "get_document": lambda whose, me, chance: Request(
        "GET", _at(whose, "documents", chance.choice([*whose.paths, *whose.talks])), {"first": 1}
    ),
    "put_document": lambda whose, me, chance: Request(
        "PUT", _at(whose, "documents", f"extra-{me.mark}path"), body=_document(whose, me, chance)
    ),
    "delete_document": lambda whose, me, chance: Request(
        "DELETE", _at(whose, "documents", whose.spare("path"))
    ),
    "start_index": lambda whose, me, chance: Request(
        "POST", _at(whose, "index"), body={"source": chance.choice([None, whose.root, me.root])}
    ),
    "list_jobs": lambda whose, me, chance: Request("GET", "/v1/jobs"),
    "get_job": lambda whose, me, chance: Request("GET", f"/v1/jobs/{chance.choice(whose.jobs)}"),
    "cancel_job": lambda whose, me, chance: Request(
        "DELETE", f"/v1/jobs/{chance.choice(whose.jobs)}"
    ),
    "watch_job": lambda whose, me, chance: Request(
        "GET", f"/v1/jobs/{chance.choice(whose.jobs)}/events"
    ),
    "list_conversations": lambda whose, me, chance: Request(
        "GET", _at(whose, "conversations"), {"skip": chance.choice([0, 1])}
    ),
    "save_conversations": lambda whose, me, chance: Request(
        "POST",
        _at(whose, "conversations"),
        body={"conversations": [{"id": f"extra-{me.mark}talk", **_talk(whose, me, chance)}]},
    ),
    "get_conversation": lambda whose, me, chance: Request(
        "GET", _at(whose, "conversations", chance.choice(whose.talks))
    ),
    "put_conversation": lambda whose, me, chance: Request(
        "PUT", _at(whose, "conversations", f"extra-{me.mark}talk"), body=_talk(whose, me, chance)
    ),
    "delete_conversation": lambda whose, me, chance: Request(
        "DELETE", _at(whose, "conversations", whose.spare("talk"))
    ),
    "append_messages": lambda whose, me, chance: Request(
        "POST",
        _at(whose, "conversations", f"extra-{me.mark}talk", "messages"),
        body={"messages": [{"text": f"{me.mark}said {chance.random()}"}]},
    ),
    "list_chunks": lambda whose, me, chance: Request(
        "GET", _at(whose, "conversations", chance.choice(whose.talks), "chunks")
    ),
    "get_chunk": lambda whose, me, chance: Request(
        "GET", _at(chance.choice([whose, me]), "chunks", str(chance.choice(whose.chunk_ids)))
    ),
    "list_streams": lambda whose, me, chance: Request("GET", _at(whose, "streams")),
    "read_stream": lambda whose, me, chance: Request("GET", _at(whose, "streams", whose.stream)),
    "clear_stream": lambda whose, me, chance: Request(
        "DELETE", _at(whose, "streams", whose.spare("stream"))
    ),
    "list_records": lambda whose, me, chance: Request(
        "GET", _at(whose, "streams", whose.stream, "records"), {"full": "true"}
    ),
    "append_record": lambda whose, me, chance: Request(
        "POST",
        _at(whose, "streams", f"extra-{me.mark}stream", "records"),
        body={"body": f"{me.mark}body"},
    ),
    "prune_stream": lambda whose, me, chance: Request(
        "POST", _at(whose, "streams", whose.stream, "prune")
    ),
    "list_stores": lambda whose, me, chance: Request("GET", "/v1/stores"),
    "health": lambda whose, me, chance: Request("GET", "/health"),
    "ready": lambda whose, me, chance: Request("GET", "/ready"),
    "metrics": lambda whose, me, chance: Request("GET", "/metrics"),
}


def _message(method: str, **params: Any) -> Request:
    return Request(
        "POST", "/mcp", body={"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    )


def _tool(name: str, **arguments: Any) -> Request:
    return _message(
        "tools/call",
        name=name,
        arguments={key: value for key, value in arguments.items() if value is not None},
    )


def _named(whose: Neighbour, chance: random.Random) -> str | None:
    return chance.choice([None, whose.project])


def _resource(whose: Neighbour, chance: random.Random) -> str:
    kind, name = chance.choice(
        [
            *(("documents", path) for path in whose.paths),
            *(("conversations", talk) for talk in whose.talks),
        ]
    )
    return f"unspool://{whose.project}/{kind}/{quote(name)}"


def _cursor(whose: Neighbour) -> str:
    return (
        base64.urlsafe_b64encode(json.dumps([whose.project, whose.paths[0]]).encode())
        .decode()
        .rstrip("=")
    )


TOOLS: dict[str, Asked] = {
    "search": lambda whose, me, chance: _tool(
        "search",
        query=chance.choice(me.queries),
        project=chance.choice([None, "*", whose.project, f"{me.project},{whose.project}"]),
        path=chance.choice([None, whose.paths[0], f"{whose.mark}*"]),
    ),
    "more": lambda whose, me, chance: _tool(
        "more", continuation=chance.choice(whose.continuations)
    ),
    "related": lambda whose, me, chance: _tool(
        "related", path=chance.choice([*whose.paths, whose.root]), project=_named(whose, chance)
    ),
    "read": lambda whose, me, chance: _tool(
        "read",
        path=chance.choice([*whose.paths, *whose.talks, f"{whose.root}/{whose.paths[0]}"]),
        project=_named(whose, chance),
    ),
    "list_projects": lambda whose, me, chance: _tool(
        "list_projects", after=chance.choice([None, whose.project])
    ),
    "get_response_history": lambda whose, me, chance: _tool(
        "get_response_history",
        stream=chance.choice([None, whose.stream]),
        project=_named(whose, chance),
    ),
    "remember": lambda whose, me, chance: _tool(
        "remember",
        text=f"{me.mark}said {chance.random()}",
        conversation=f"extra-{me.mark}talk",
        project=whose.project,
    ),
    "index": lambda whose, me, chance: _tool("index", path=whose.root, project=whose.project),
}
MCP: dict[str, Asked] = {
    **{f"tools/call {name}": ask for name, ask in TOOLS.items()},
    "tools/list": lambda whose, me, chance: _message("tools/list"),
    "resources/list": lambda whose, me, chance: _message(
        "resources/list", **chance.choice([{}, {"cursor": _cursor(whose)}])
    ),
    "resources/templates/list": lambda whose, me, chance: _message("resources/templates/list"),
    "resources/read": lambda whose, me, chance: _message(
        "resources/read", uri=_resource(whose, chance)
    ),
}
EVERYTHING = {**HTTP, **MCP}


def _answered(client: httpx2.Client, request: Request) -> str:
    """All of a response as text.

    The id is the same each time, so that it differs in nothing else.
    """
    headers = {"Accept": "application/json, text/event-stream", "X-Request-ID": "the-same"}
    response = client.request(
        request.method, request.path, params=request.query, json=request.body, headers=headers
    )
    assert response.status_code < 500, response.text
    shown = sorted((name, value) for name, value in response.headers.items() if name not in UNLIKE)
    return f"{response.status_code} {shown} {response.text}"


def test_every_endpoint_and_tool_is_called_here(clients: dict[str, httpx2.Client]) -> None:
    client = next(iter(clients.values()))
    paths = client.get("/openapi.json").json()["paths"]
    assert {
        operation["operationId"] for methods in paths.values() for operation in methods.values()
    } == set(HTTP)
    listed = _answered(client, _message("tools/list")).partition("data: ")[2]
    assert {tool["name"] for tool in json.loads(listed)["result"]["tools"]} == set(TOOLS)


def test_nothing_of_the_other_project_is_seen_through_the_service(
    street: Street, clients: dict[str, httpx2.Client]
) -> None:
    chance = random.Random(SEED)
    for number, name in enumerate(turns(sorted(EVERYTHING), CALLS, chance)):
        mark, seed = chance.choice(sorted(street.own)), chance.random()
        me, other = street.own[mark], street.other(mark)
        me.is_own, other.is_own = True, False

        def ask(whose: Neighbour, name: str = name, mark: str = mark, seed: float = seed) -> str:
            return _answered(
                clients[mark], EVERYTHING[name](whose, street.own[mark], random.Random(seed))
            )

        told = f"call {number}, {name} by {mark}"
        if chance.random() < 0.5:
            assert other.mark not in ask(me), told
        else:
            told += ", of what is the other's"
            assert settled(ask(other), other) == settled(ask(street.nobody), street.nobody), told


def test_what_was_there_is_still_there_and_nobody_wrote_elsewhere(street: Street) -> None:
    street.check()
