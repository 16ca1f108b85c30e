"""The pure parts of the client: addresses and names, what answers mean, when a call is made
again, and what takes several calls.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import needed
from unspool import (
    Conversation,
    Document,
    IndexReport,
    Message,
    Progress,
    RememberReport,
    Settings,
    errors,
)
from unspool.domain.documents import MAX_NAME_LENGTH, storable
from unspool.domain.history import StreamStatus
from unspool.domain.jobs import Job, JobState
from unspool.domain.queries import Hit
from unspool.errors import (
    AddressError,
    ConfigError,
    ConflictError,
    InputError,
    NotFoundError,
    OverdueError,
    RateLimitedError,
    ServiceError,
    ServiceTimeoutError,
    ThrottledError,
    TooLargeError,
    UnauthenticatedError,
    UnreachableError,
    UnspoolError,
)

needed("httpx2", "pip install 'unspool[client]'")

import httpx2  # noqa: E402

from unspool.client import RemoteConversations, RemoteHistory, indexing  # noqa: E402
from unspool.client.call import Call, delete, encode_json, get, in_project  # noqa: E402
from unspool.client.corpus import read_preferences  # noqa: E402
from unspool.client.service import Service  # noqa: E402

KEY = "unspool_0123456789ab_" + "k" * 43
PLACE = "http://127.0.0.1:8765"


def service(address: str = PLACE, key: str = KEY) -> Service:
    return Service(address, key=key, request_s=30, answer_s=120)


def address_of(call: Call[Any], address: str = PLACE) -> str:
    return str(service(address).build_request(call)["url"])


def answer(status: int, body: Any = None, **headers: str) -> httpx2.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx2.Response(
        status,
        content=content,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def refused(
    code: str, message: str = "no", *, status: int = 400, request_id: str = "r1", **headers: str
) -> httpx2.Response:
    return answer(
        status, {"error": {"code": code, "message": message, "request_id": request_id}}, **headers
    )


# Names

NAMES = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="*,"), min_size=1, max_size=30
).map(str.strip)
PROJECTS = NAMES.filter(lambda name: bool(name) and len(name) <= MAX_NAME_LENGTH)
PATHS = st.one_of(
    st.sampled_from([".", "..", "a/../b", "/", "//", "%2F", "%", "a?b#c", " ", "日本/ä"]),
    st.text(min_size=1, max_size=30).filter(storable),
)


@given(project=PROJECTS, path=PATHS)
def test_a_name_is_one_part_of_the_address_whatever_it_holds(project: str, path: str) -> None:
    for further in (["documents", path], ["conversations", path, "messages"]):
        call = get(in_project(project, *further), object, first=1)
        sent = httpx2.URL(address_of(call)).raw_path.decode("ascii").partition("?")[0]
        assert [unquote(part) for part in sent.split("/")] == [
            "",
            "v1",
            "projects",
            project,
            *further,
        ]


@given(after=PATHS)
def test_what_follows_the_question_mark_arrives_as_it_was(after: str) -> None:
    call = get(in_project("p", "documents"), list, status=None, after=after, limit=7)
    query = httpx2.URL(address_of(call)).query.decode("ascii")
    assert parse_qs(query, keep_blank_values=True, strict_parsing=True) == {
        "after": [after],
        "limit": ["7"],
    }


@pytest.mark.parametrize(
    "address",
    [
        "http://?q",
        "ftp://host",
        "http://host:port",
        "http://host:0",
        "http://[::1",
        "http://.host",
        "host:9999",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(AddressError) as found:
        service(address)
    assert address not in str(found.value)


@pytest.mark.parametrize(
    "address", ["http://ann:secret@host", "http://host?key=secret", "http://host#secret"]
)
def test_an_address_with_a_password_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(AddressError, match="UNSPOOL_KEY") as found:
        service(address)
    assert "secret" not in str(found.value)


def test_a_service_may_stand_below_a_path() -> None:
    call = get("/v1/stores", list)
    assert address_of(call, "https://host/unspool/") == "https://host/unspool/v1/stores"


@pytest.mark.parametrize("key", ["half of a", "key\nX-More: 1", "schlüssel"])
def test_a_key_that_no_header_takes_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ConfigError) as found:
        service(key=key)
    assert key not in str(found.value)


def test_a_key_goes_unencrypted_to_this_machine_alone_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for address in (
            "http://localhost:1",
            "http://127.0.0.9:1",
            "http://[::1]:1",
            "http://dev.localhost",
            "https://example.org",
        ):
            service(address)
        service("http://example.org", key="")
    with pytest.warns(UserWarning, match="without encryption") as told:
        service("http://example.org")
    assert KEY not in str(told[0].message)


# Answers


def _classes() -> list[type[UnspoolError]]:
    return [
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, UnspoolError)
    ]


@pytest.mark.parametrize("kind", _classes(), ids=lambda kind: kind.__name__)
def test_every_error_arrives_as_what_it_is(kind: type[UnspoolError]) -> None:
    found = service().error_of(refused(kind.code, "what happened", status=kind.http_status))
    assert (type(found).code, str(found), found.request_id) == (kind.code, "what happened", "r1")
    assert issubclass(kind, type(found))
    assert any("r1" in note for note in found.__notes__)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, UnauthenticatedError),
        (404, NotFoundError),
        (409, ConflictError),
        (418, InputError),
        (500, ServiceError),
        (503, UnreachableError),
    ],
)
def test_a_code_of_a_newer_service_is_known_by_its_status(
    status: int, kind: type[UnspoolError]
) -> None:
    assert type(service().error_of(refused("of_tomorrow", status=status))) is kind


def test_how_long_to_wait_is_taken_from_the_header() -> None:
    for code, kind in (("throttled", ThrottledError), ("rate_limited", RateLimitedError)):
        found = service().error_of(refused(code, status=429, retry_after="7"))
        assert isinstance(found, kind)
        assert found.retry_after == 7


def test_a_key_is_never_in_what_is_said_of_an_error() -> None:
    assert KEY not in str(service().error_of(refused("input", f"you sent {KEY}")))
    assert KEY not in f"{service()} {service().away(OSError())} {service().late()} {service()!r}"


@pytest.mark.parametrize("status", [502, 503, 504, 429])
def test_what_stands_before_a_service_and_cannot_reach_it_is_told(status: int) -> None:
    assert isinstance(
        service().error_of(answer(status, b"<html>Bad Gateway</html>")), UnreachableError
    )


@pytest.mark.parametrize(
    "response",
    [
        answer(404, b"<html>"),
        answer(404, {"detail": "Not Found"}),
        answer(400, [1]),
        answer(500, {"error": "no"}),
    ],
)
def test_an_answer_of_somebody_else_is_told_from_one_of_a_service(
    response: httpx2.Response,
) -> None:
    found = service().error_of(response)
    assert type(found) is ServiceError
    assert "unspool serve" in str(found)


def test_a_redirection_is_not_followed() -> None:
    assert "redirects" in str(service().error_of(answer(301, b"", location="http://example.org")))


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"hits": 7}', b'{"hits": [{}]}', b"[" * 100_000]
)
def test_what_cannot_be_read_is_an_error_that_says_so(body: bytes) -> None:
    call = get("/v1/nearest", list[Hit], "hits")
    with pytest.raises(ServiceError, match="cannot be read"):
        service().parse_response(call, answer(200, body))


def test_keys_of_a_newer_service_are_left_out() -> None:
    status = {"project": "p", "stream": "s", "records": 1, "newest": None, "colour": "red"}
    streams = get("/v1/streams", list[StreamStatus], "streams")
    found = service().parse_response(streams, answer(200, {"streams": [status], "more": 1}))
    assert found[0].stream == "s"
    report = dict.fromkeys(
        (
            "added",
            "updated",
            "unchanged",
            "removed",
            "failed",
            "busy",
            "chunks",
            "embedded",
            "seconds",
        ),
        0,
    )
    masked = {"path": "x", "line": 1, "kind": "password", "colour": "red"}
    body = {
        **report,
        "project": "p",
        "skipped": {},
        "masked": [masked],
        "failures": [],
        "warnings": [],
    }
    put = get("/v1/documents", IndexReport)
    assert service().parse_response(put, answer(200, body)).masked[0].line == 1


# Again


SAFE, UNSAFE = get("/v1/projects", list), delete("/v1/projects/p", dict)


@pytest.mark.parametrize(
    ("call", "error", "repeated"),
    [
        (SAFE, UnreachableError("away"), True),
        (SAFE, ThrottledError("slow", retry_after=2), True),
        (SAFE, ThrottledError("slow", retry_after=60), False),
        (SAFE, ServiceTimeoutError("late"), False),
        (SAFE, OverdueError("late"), False),
        (SAFE, NotFoundError("none"), False),
        (UNSAFE, UnreachableError("away"), False),
        (UNSAFE, ThrottledError("slow", retry_after=2), True),
    ],
)
def test_a_call_is_made_again_where_that_may_help_and_does_no_harm(
    call: Call[Any], error: UnspoolError, repeated: bool
) -> None:
    assert (service().choose_pause(call, error, 1) is not None) == repeated
    assert service().choose_pause(call, error, 4) is None


@pytest.mark.parametrize(
    ("work", "repeats"),
    [
        (
            lambda sender: indexing.put_documents(sender, [Document(path="x", text="")], most=9),
            True,
        ),
        (
            lambda sender: indexing.put_documents(
                sender, [Document(path="x", text="", version=3)], most=9
            ),
            False,
        ),
        (lambda sender: talks(sender).append("x", Message(text="a", id="1")), True),
        (lambda sender: talks(sender).append("x", Message(text="a")), False),
        (lambda sender: talks(sender).get("x"), True),
        (lambda sender: talks(sender).delete("x"), False),
        (lambda sender: RemoteHistory(sender, "s", project="p").append("x"), False),
        (lambda sender: RemoteHistory(sender, "s", project="p").prune(), True),
    ],
)
def test_a_call_repeats_only_where_the_second_one_changes_nothing(
    work: Callable[[Service], Any], repeats: bool
) -> None:
    calls: list[Call[Any]] = []
    play(lambda call: calls.append(call), work)
    assert [call.repeats for call in calls] == [repeats]


def talks(sender: Service) -> RemoteConversations:
    return RemoteConversations(sender, "p", most=10**9)


# Several calls


class ScriptedService(Service):
    """A service whose calls a function answers; an exception that it returns is raised."""

    def __init__(self, reply: Callable[[Call[Any]], Any]) -> None:
        super().__init__(PLACE, key=KEY, request_s=30, answer_s=120)
        self.sent: list[str] = []
        self._reply = reply

    def send(self, call: Call[Any]) -> Any:
        self.sent.append(f"{call.method} {call.target}")
        given = self._reply(call)
        if isinstance(given, BaseException):
            raise given
        return given


def body_of(call: Call[Any]) -> Any:
    return json.loads(call.content or b"{}")


def play(
    reply: Callable[[Call[Any]], Any], work: Callable[..., Any], *args: Any, **kwargs: Any
) -> tuple[list[str], Any]:
    """Run a function with a scripted service.

    Returns what was sent, and the result or the exception.
    """
    sender = ScriptedService(reply)
    try:
        return sender.sent, work(sender, *args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - it is what the function ended with
        return sender.sent, error
    finally:
        sender.close()


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "FIRST_PAUSE_S", 0.0)


def job(state: JobState, *, done: int = 0, **more: Any) -> Job:
    return Job(
        id="j1",
        project="p",
        source="x",
        state=state,
        created_at=datetime.now(UTC),
        progress=Progress(task="indexing", done=done, total=9),
        **more,
    )


def run_index(
    *answers: Any, on_progress: Callable[[Progress], None] | None = None
) -> tuple[list[str], Any]:
    """What an indexing run does when these are the answers, one after the other."""
    waiting = list(answers)
    return play(
        lambda call: waiting.pop(0),
        indexing.index_source,
        "/srv/x",
        project="p",
        ref="",
        on_progress=on_progress,
    )


START, LOOK, CANCEL = "POST /v1/projects/p/index", "GET /v1/jobs/j1", "DELETE /v1/jobs/j1"
REPORT = dict.fromkeys(
    ("added", "updated", "unchanged", "removed", "failed", "busy", "chunks", "embedded", "seconds"),
    0,
)
REPORT |= {"project": "p", "skipped": {}, "masked": [], "failures": [], "warnings": []}


def test_a_job_is_watched_to_its_end() -> None:
    told: list[int] = []
    running = [job(JobState.RUNNING, done=done) for done in (1, 1, 2)]
    sent, end = run_index(
        job(JobState.QUEUED),
        *running,
        job(JobState.DONE, done=9, report=REPORT),
        on_progress=lambda one: told.append(one.done),
    )
    assert (sent, end) == ([START, *[LOOK] * 4], IndexReport(project="p"))
    assert told == [1, 2, 9]


@pytest.mark.parametrize(
    ("over", "kind"),
    [
        (job(JobState.FAILED, error_code="not_found", error="no such path"), NotFoundError),
        (job(JobState.FAILED, error_code="bug", error="a bug"), ServiceError),
        (job(JobState.CANCELLED), ConflictError),
        (job(JobState.INTERRUPTED), UnreachableError),
    ],
)
def test_a_job_that_ends_otherwise_is_an_error(over: Job, kind: type[UnspoolError]) -> None:
    sent, end = run_index(job(JobState.QUEUED), over)
    assert type(end) is kind
    assert CANCEL not in sent


def test_whoever_stops_watching_stops_the_job() -> None:
    sent, end = run_index(job(JobState.QUEUED), KeyboardInterrupt(), job(JobState.CANCELLED))
    assert (sent, type(end)) == ([START, LOOK, CANCEL], KeyboardInterrupt)

    def complain(_: Progress) -> None:
        raise InputError("enough")

    sent, end = run_index(
        job(JobState.QUEUED),
        job(JobState.RUNNING),
        NotFoundError("it is over"),
        on_progress=complain,
    )
    assert (sent, str(end)) == ([START, LOOK, CANCEL], "enough")


def test_a_job_that_is_out_of_sight_goes_on() -> None:
    sent, end = run_index(job(JobState.QUEUED), UnreachableError("away"))
    assert (sent, type(end)) == ([START, LOOK], UnreachableError)


def _documents(count: int) -> list[Document]:
    return [Document(project="p", path=f"{number}", text="x" * 100) for number in range(count)]


def test_documents_are_sent_in_as_few_requests_as_there_can_be() -> None:
    sizes: list[int] = []
    most = 1_000

    def reply(call: Call[Any]) -> Any:
        assert len(call.content or b"") <= most + 50
        sizes.append(len(body_of(call)["documents"]))
        return IndexReport(project="p", added=sizes[-1], seconds=0.1, warnings=("slow",))

    sent, end = play(reply, indexing.put_documents, _documents(12), most=most)
    assert (sum(sizes), len(sent) > 1, len(sent) <= 3) == (12, True, True)
    assert end == IndexReport(
        project="p", added=12, seconds=round(0.1 * len(sent), 3), warnings=("slow",)
    )
    most = 10**9
    assert len(play(reply, indexing.put_documents, _documents(1_001), most=most)[0]) == 2


def test_a_service_that_takes_less_at_once_is_sent_halves() -> None:
    def reply(call: Call[Any]) -> Any:
        count = len(body_of(call)["documents"])
        return IndexReport(project="p", added=count) if count <= 2 else TooLargeError("too much")

    sent, end = play(reply, indexing.put_documents, _documents(5), most=10**9)
    assert (end.added, len(sent)) == (5, 5)
    assert isinstance(
        play(
            lambda call: TooLargeError("too much"),
            indexing.put_documents,
            _documents(1),
            most=10**9,
        )[1],
        TooLargeError,
    )


def test_a_conversation_that_is_refused_does_not_keep_the_others_out(tmp_path: Path) -> None:
    lines = [
        json.dumps({"id": f"c{number}", "messages": [{"role": "user", "content": "x"}]})
        for number in range(9)
    ]
    (tmp_path / "export.jsonl").write_text("\n".join(lines))

    def reply(call: Call[Any]) -> Any:
        ids = [one["id"] for one in body_of(call)["conversations"]]
        return (
            InputError("not this one")
            if "c5" in ids
            else RememberReport(project="p", added=len(ids))
        )

    _, end = play(
        reply,
        lambda sender: RemoteConversations(sender, "p", most=10**9).load(tmp_path / "export.jsonl"),
    )
    assert (end.added, end.bad_count) == (8, 1)
    assert (end.bad[0].source, end.bad[0].reason) == ("c5", "not this one")


def test_conversations_that_belong_together_are_sent_together() -> None:
    some = [
        Conversation(id=str(number), messages=[Message(text="x" * 10_000)]) for number in range(50)
    ]
    sent, _ = play(
        lambda call: RememberReport(project="conversations"),
        lambda sender: RemoteConversations(sender, "", most=1_000).save(*some),
    )
    assert len(sent) == 1


def test_a_project_without_a_name_is_called_after_its_folder() -> None:
    from unspool import ProjectStatus

    known = [
        ProjectStatus(name="shop", root="/srv/shop", documents={}, chunks=1, waiting=0),
        ProjectStatus(name="taken", root="", documents={}, chunks=1, waiting=0),
    ]

    def started(source: str) -> Any:
        found: list[Any] = []

        def reply(call: Call[Any]) -> Any:
            if call.method == "GET":
                return known
            found.append((call.target.split("/")[3], body_of(call)["source"]))
            return job(JobState.DONE, report=REPORT)

        _, end = play(reply, indexing.index_source, source, project=None, ref="", on_progress=None)
        return found[0] if found else type(end)

    assert started("/srv/shop/") == started("/srv/shop/src/deep") == ("shop", "/srv/shop")
    assert started("/srv/other") == ("other", "/srv/other")
    assert started("C:\\work\\mine") == ("mine", "C:\\work\\mine")
    assert started("/srv/taken") is InputError
    assert started("https://example.org/ann/tools.git") == (
        "tools",
        "https://example.org/ann/tools.git",
    )


def test_only_settings_that_somebody_has_set_are_sent(tmp_path: Path) -> None:
    assert read_preferences(Settings.load(environment={}, folder=tmp_path)) == {}
    given = Settings.load(
        environment={"UNSPOOL_LIMIT": "10", "UNSPOOL_PROJECT": "p"}, folder=tmp_path
    )
    assert read_preferences(given) == {"limit": 10, "project": "p"}
    assert read_preferences(Settings.of(max_tokens=5)) == {"max_tokens": 5}


def test_values_of_python_are_sent_as_json_has_them() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    local = noon.astimezone(timezone(timedelta(hours=1, seconds=20)))
    sent = encode_json(
        [
            Document(project="p", path="x", text="y", modified=local, metadata={"n": 1}),
            Conversation(id="c", messages=[Message(text="z", at=noon)]),
            {"any": {"a"}, "since": date(2026, 3, 1)},
            np.array([0.5, 1], dtype=np.float32),
            [np.float32(0.25)],
        ]
    )
    message = {"text": "z", "author": "", "kind": "user", "at": noon.isoformat(), "id": ""}
    document, conversation, *rest = json.loads(sent)
    assert document == {
        "path": "x",
        "text": "y",
        "title": "",
        "language": "",
        "modified": noon.isoformat(),
        "metadata": {"n": 1},
    }
    assert conversation["messages"] == [message]
    assert "project" not in conversation
    assert rest == [{"any": ["a"], "since": "2026-03-01"}, [0.5, 1], [0.25]]


def test_what_no_json_takes_is_refused_before_it_is_sent() -> None:
    with pytest.raises(InputError, match="cannot be sent"):
        encode_json({"x": float("inf")})
    assert json.loads(encode_json({"x": "a\ud83d"})) == {"x": "a\ufffd"}
