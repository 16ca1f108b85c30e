"""A job's life on every engine: begun, told of, cancelled, kept for a while, and seen by those
alone who see its project.
"""

from __future__ import annotations

import contextvars
import json
import socket
import threading
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path

import pytest

import unspool
from support import Place, assert_no_orphans, contents, doc, write
from tasks import DEADLINE_S, REPORT, Clock, Steps, Tell, at_work, over, quick, until
from unspool import jobs as module
from unspool.domain.jobs import Job, JobState
from unspool.domain.reports import Failure, IndexReport, Masked, Progress
from unspool.errors import InputError, NotFoundError, ThrottledError
from unspool.indexing import embedding, pipeline
from unspool.jobs import JobQueue, Work
from unspool.wire import encode


def indexing(corpus: unspool.Corpus, folder: Path, project: str = "a") -> Work:
    return lambda tell: corpus.index(folder, project=project, on_progress=tell)


# A job's life


def test_a_folder_is_indexed_and_its_report_kept(
    jobs: JobQueue, corpus: unspool.Corpus, tmp_path: Path
) -> None:
    folder = write(
        tmp_path / "tree",
        {"a.md": "walrus\n", "b.py": "def island():\n    return 1\n", "c.bin": "\x00\x01"},
    )
    given: list[IndexReport] = []

    def work(tell: Tell) -> IndexReport:
        given.append(corpus.index(folder, project="a", on_progress=tell))
        return given[0]

    queued = jobs.start("a", str(folder), work)
    assert (queued.state, queued.project, queued.source) == (JobState.QUEUED, "a", str(folder))
    done = over(jobs, queued)
    assert (done.state, done.error_code, done.error) == (JobState.DONE, "", "")
    assert dict(done.report) == json.loads(json.dumps(encode(given[0])))
    assert done.report["added"] == 2
    assert done.progress is not None
    assert done.started_at is not None
    assert done.finished_at is not None
    assert done.created_at <= done.started_at <= done.finished_at
    assert corpus.search("walrus", projects="a").hits


def test_the_last_progress_is_there_when_it_is_over(jobs: JobQueue) -> None:
    def work(tell: Tell) -> IndexReport:
        for number in range(500):
            tell(Progress(task="indexing", done=number + 1, total=500, chunks=number))
        return REPORT

    assert over(jobs, jobs.start("a", "here", work)).progress == Progress(
        task="indexing", done=500, total=500, chunks=499
    )


def test_progress_is_seen_while_it_runs_and_written_seldom(
    corpus: unspool.Corpus, jobs: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.2)
    steps = Steps()
    job = jobs.start("a", "here", steps)
    seen = set()
    until(
        lambda: (
            (progress := jobs.get(job.id).progress) is not None
            and len(seen.add(progress.done) or seen) >= 2
        )
    )  # type: ignore[func-returns-value]
    assert steps.told > 10 * len(seen)
    steps.may_end.set()
    assert over(jobs, job).state is JobState.DONE


def test_our_own_errors_are_told(jobs: JobQueue) -> None:
    def work(tell: Tell) -> IndexReport:
        raise NotFoundError("no such path: /there; give one that exists")

    failed = over(jobs, jobs.start("a", "here", work))
    assert (failed.state, failed.error_code, failed.error) == (
        JobState.FAILED,
        "not_found",
        "no such path: /there; give one that exists",
    )


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit])
def test_nothing_is_told_of_a_bug(jobs: JobQueue, kind: type[BaseException]) -> None:
    def work(tell: Tell) -> IndexReport:
        raise kind("hunter2")

    failed = over(jobs, jobs.start("a", "here", work))
    assert (failed.state, failed.error_code) == (JobState.FAILED, "bug")
    assert "hunter2" not in str(asdict(failed))
    # the next one is served
    assert over(jobs, jobs.start("a", "here", quick)).state is JobState.DONE


def test_a_report_lists_only_the_first_of_very_many(jobs: JobQueue) -> None:
    failures = tuple(Failure(path=f"f{number}", error="bad") for number in range(1_000))
    masked = tuple(Masked(path=f"f{number}", line=1, kind="password") for number in range(201))
    report = replace(REPORT, failed=1_000, failures=failures, masked=masked)
    kept = over(jobs, jobs.start("a", "here", lambda tell: report)).report
    assert (kept["failed"], len(kept["failures"]), len(kept["masked"])) == (1_000, 200, 200)
    assert [text.split()[0] for text in kept["warnings"]] == ["1000", "201"]


def test_the_work_sees_what_whoever_asked_had_set(jobs: JobQueue) -> None:
    variable = contextvars.ContextVar("variable", default="")
    seen: list[str] = []

    def work(tell: Tell) -> IndexReport:
        seen.append(variable.get())
        return REPORT

    variable.set("request 1")
    over(jobs, jobs.start("a", "here", work))
    assert seen == ["request 1"]


@pytest.mark.parametrize(
    ("source", "ref", "shown"),
    [
        (
            "https://user:hunter2@host.invalid/repo.git?token=hunter2",
            "",
            "https://***@host.invalid/repo.git",
        ),
        ("https://host.invalid/repo.git", "v1", "https://host.invalid/repo.git#v1"),
        ("/srv/bad\udc80name", "", "/srv/bad\ufffdname~"),
        ("/srv/nul\x00", "", "/srv/nul\ufffd"),
    ],
)
def test_a_source_is_stored_without_what_is_secret_or_cannot_be(
    jobs: JobQueue, source: str, ref: str, shown: str
) -> None:
    job = jobs.start("a", source, quick, ref=ref)
    assert jobs.get(job.id).source == job.source
    assert job.source.startswith(shown)


def test_a_project_name_is_checked(jobs: JobQueue) -> None:
    with pytest.raises(InputError):
        jobs.start("a,b", "here", quick)
    assert jobs.list() == []


# Several at once


def test_jobs_of_a_project_run_one_after_the_other_and_those_of_others_beside_them(
    corpus: unspool.Corpus,
) -> None:
    first, second, other = Steps(), Steps(), Steps()
    with JobQueue(corpus, at_once=3) as jobs:
        one, two, three = (
            jobs.start("a", "x", first),
            jobs.start("a", "y", second),
            jobs.start("b", "x", other),
        )
        assert first.begun.wait(DEADLINE_S)
        assert other.begun.wait(DEADLINE_S)
        assert jobs.get(two.id).state is JobState.QUEUED
        assert not second.begun.is_set()
        assert jobs.count_by_state() == {
            **dict.fromkeys(JobState, 0),
            JobState.RUNNING: 2,
            JobState.QUEUED: 1,
        }
        first.may_end.set()
        assert second.begun.wait(DEADLINE_S)
        assert jobs.get(one.id).state is JobState.DONE
        for steps in (second, other):
            steps.may_end.set()
        assert [over(jobs, job).state for job in (two, three)] == [JobState.DONE] * 2


def test_what_waits_already_is_not_queued_twice(jobs: JobQueue) -> None:
    steps = Steps()
    running = jobs.start("a", "x", steps)
    assert steps.begun.wait(DEADLINE_S)
    waiting = jobs.start("a", "x", quick)
    assert waiting.id != running.id  # what changed since it began would be missed
    assert jobs.start("a", "x", quick).id == waiting.id
    others = {
        jobs.start("a", "y", quick).id,
        jobs.start("b", "x", quick).id,
        jobs.start("a", "x", quick, ref="v1").id,
    }
    assert len(others | {waiting.id}) == 4
    secret = [
        jobs.start("c", f"https://user:{word}@host.invalid/repo.git", quick).id
        for word in ("wrong", "right")
    ]
    assert len(set(secret)) == 2  # only the passwords differ, and one may be wrong
    steps.may_end.set()
    assert over(jobs, waiting).state is JobState.DONE


def test_a_full_queue_says_when_to_come_back(corpus: unspool.Corpus) -> None:
    steps = Steps()
    with JobQueue(corpus, at_once=1, queue=2) as jobs:
        kept = [
            jobs.start("project", f"source {number}", steps if number == 0 else quick)
            for number in range(3)
        ]
        with pytest.raises(ThrottledError) as refused:
            jobs.start("other", "source 3", quick)
        assert refused.value.retry_after
        assert "project" not in str(refused.value)
        jobs.cancel(kept[2].id)
        kept[2] = jobs.start("project", "source 3", quick)
        steps.may_end.set()
        assert [over(jobs, job).state for job in kept] == [JobState.DONE] * 3


def test_many_are_started_from_many_threads(corpus: unspool.Corpus) -> None:
    with JobQueue(corpus, at_once=3) as jobs:
        started: list[Job] = []

        def start(name: str) -> None:
            started.extend(jobs.start(name, f"source {number}", quick) for number in range(5))

        threads = [threading.Thread(target=start, args=(f"p{number}",)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({job.id for job in started}) == 30
        assert {over(jobs, job).state for job in started} == {JobState.DONE}
        assert jobs.count_by_state()[JobState.DONE] == 30


def test_no_thread_is_left_when_nothing_is_left_to_do(jobs: JobQueue) -> None:
    for number in range(3):
        over(jobs, jobs.start("a", f"source {number}", quick))
    until(lambda: not at_work())


# Cancelled


def test_a_running_job_is_cancelled(jobs: JobQueue) -> None:
    steps = Steps()
    job = jobs.start("a", "x", steps)
    assert steps.begun.wait(DEADLINE_S)
    jobs.cancel(job.id)
    assert over(jobs, job).state is JobState.CANCELLED
    assert jobs.cancel(job.id).state is JobState.CANCELLED  # once more changes nothing


def test_only_the_thread_that_does_the_work_is_led_out_of_it(jobs: JobQueue) -> None:
    cancelled, told = threading.Event(), threading.Event()

    def work(tell: Tell) -> IndexReport:
        def watch() -> None:
            cancelled.wait(DEADLINE_S)
            tell(Progress(task="building the index", done=1, total=2))
            told.set()

        watcher = threading.Thread(target=watch)
        watcher.start()
        watcher.join()
        tell(Progress(task="building the index", done=2, total=2))
        raise AssertionError("it was cancelled")

    job = jobs.start("a", "x", work)
    until(lambda: jobs.get(job.id).state is JobState.RUNNING)
    jobs.cancel(job.id)
    cancelled.set()
    assert over(jobs, job).state is JobState.CANCELLED
    assert told.is_set()


def test_a_fetch_that_hangs_is_cancelled_and_holds_up_no_other_project(
    jobs: JobQueue, corpus: unspool.Corpus
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = f"git://127.0.0.1:{silent.getsockname()[1]}/x"
        job = jobs.start(
            "slow", source, lambda tell: corpus.index(source, project="slow", on_progress=tell)
        )
        until(lambda: jobs.get(job.id).progress == Progress(task="fetching", done=0, total=0))
        assert over(jobs, jobs.start("a", "here", quick)).state is JobState.DONE
        jobs.cancel(job.id)
        assert over(jobs, job).state is JobState.CANCELLED
    assert "slow" not in corpus.projects()


def test_a_job_that_waits_is_cancelled_at_once_and_never_begins(jobs: JobQueue) -> None:
    steps, never = Steps(), Steps()
    first, second = jobs.start("a", "x", steps), jobs.start("a", "y", never)
    assert jobs.cancel(second.id).state is JobState.CANCELLED
    steps.may_end.set()
    assert over(jobs, first).state is JobState.DONE
    assert over(jobs, jobs.start("a", "z", quick)).state is JobState.DONE
    assert not never.begun.is_set()


def test_what_is_over_stays_as_it_is(jobs: JobQueue) -> None:
    job = over(jobs, jobs.start("a", "x", quick))
    assert jobs.cancel(job.id) == job


def test_an_index_that_is_cancelled_halfway_is_completed_by_the_next(
    jobs: JobQueue,
    corpus: unspool.Corpus,
    database: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "COMMIT_DOCUMENTS", 5)
    monkeypatch.setattr(pipeline, "BATCH_FILES", 5)
    monkeypatch.setattr(embedding, "CHEAP_BATCH", 5)
    folder = write(
        tmp_path / "tree",
        {
            f"d{number % 3}/f{number}.md": f"# File {number}\n\nwalrus number {number}\n"
            for number in range(40)
        },
    )

    def halfway(tell: Tell) -> IndexReport:
        def watch(progress: Progress) -> None:
            if progress.task == "indexing" and progress.done == 20:
                jobs.cancel(jobs.list()[0].id)
            tell(progress)

        return corpus.index(folder, project="a", on_progress=watch)

    cancelled = over(jobs, jobs.start("a", str(folder), halfway))
    assert cancelled.state is JobState.CANCELLED
    assert cancelled.progress == Progress(task="indexing", done=20, total=40, chunks=20)
    assert sum(status == "indexed" for status, _, _ in contents(database).documents.values()) == 20
    completed = over(jobs, jobs.start("a", str(folder), indexing(corpus, folder)))
    assert (completed.state, completed.report["added"], completed.report["busy"]) == (
        JobState.DONE,
        20,
        0,
    )
    found = assert_no_orphans(database)
    assert len(found.documents) == 40
    assert {status for status, _, _ in found.documents.values()} == {"indexed"}


# Kept, and seen


def test_jobs_go_after_a_week_and_the_oldest_beyond_a_thousand(
    corpus: unspool.Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unspool.catalog import jobs as statements

    clock, steps = Clock(), Steps()
    with JobQueue(corpus, clock=clock, at_once=2) as jobs:
        running = jobs.start("b", "x", steps)
        old = over(jobs, jobs.start("a", "x", quick))
        clock.ahead = timedelta(days=6)
        newer = [over(jobs, jobs.start("a", f"source {number}", quick)) for number in range(3)]
        assert jobs.get(old.id) == old
        clock.ahead = timedelta(days=8)
        until(lambda: jobs.get(running.id).state is JobState.RUNNING)  # its heartbeat goes on
        newer.append(over(jobs, jobs.start("a", "y", quick)))
        with pytest.raises(NotFoundError):
            jobs.get(old.id)
        monkeypatch.setattr(statements, "KEPT_AT_MOST", 2)
        last = over(jobs, jobs.start("a", "z", quick))
        assert [job.id for job in jobs.list()] == [last.id, newer[-1].id, newer[-2].id, running.id]
        assert [job.id for job in jobs.list(limit=1)] == [last.id]
        steps.may_end.set()
        assert over(jobs, running).state is JobState.DONE


def test_a_job_exists_for_those_alone_who_see_its_project(jobs: JobQueue) -> None:
    mine, theirs = (
        over(jobs, jobs.start("mine", "x", quick)),
        over(jobs, jobs.start("theirs", "hidden source", quick)),
    )
    assert jobs.list(projects=["mine"]) == [mine]
    assert (
        jobs.list(projects=frozenset())
        == jobs.list(projects=["Mine", "min_", "%", "\udc80", "\x00"])
        == []
    )
    assert jobs.count_by_state(projects=["mine"])[JobState.DONE] == 1
    assert jobs.get(mine.id, projects=["mine", "other"]) == mine
    never = "0" * 16
    for ask in (jobs.get, jobs.cancel):
        refused = []
        for id_ in (theirs.id, never):
            with pytest.raises(NotFoundError) as error:
                ask(id_, projects=["mine"])
            refused.append(str(error.value).replace(id_, "ID"))
        assert refused[0] == refused[1]


@pytest.mark.parametrize(
    "id_",
    ["", "x", "0" * 15, "0" * 17, "A" * 16, "\x00" * 16, "\udc80", "' OR 1=1 --", "0" * 16 + "\n"],
)
def test_an_id_that_never_was_any_is_not_found(jobs: JobQueue, id_: str) -> None:
    with pytest.raises(NotFoundError):
        jobs.get(id_)


@pytest.mark.parametrize("limit", [0, -1, 1_001])
def test_a_limit_is_checked(jobs: JobQueue, limit: int) -> None:
    with pytest.raises(InputError):
        jobs.list(limit=limit)


def test_the_jobs_of_a_project_go_with_it(jobs: JobQueue, corpus: unspool.Corpus) -> None:
    corpus.put(doc("a.md", "walrus", "a"), doc("b.md", "walrus", "a"))
    corpus.put(doc("a.md", "walrus", "b"))
    steps, never = Steps(), Steps()
    done, kept = over(jobs, jobs.start("a", "x", quick)), over(jobs, jobs.start("b", "x", quick))
    running, waiting = jobs.start("a", "y", steps), jobs.start("a", "z", never)
    assert steps.begun.wait(DEADLINE_S)
    corpus.forget(project="a")
    assert over(jobs, running).state is JobState.CANCELLED
    for gone in (done, waiting):
        with pytest.raises(NotFoundError):
            jobs.get(gone.id)
    assert jobs.get(kept.id) == kept
    assert over(jobs, jobs.start("a", "z", quick)).state is JobState.DONE
    assert not never.begun.is_set()
