"""Jobs and processes: two that share a catalog, one that is closed, one that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from datetime import datetime, timedelta, tzinfo
from typing import Self

import pytest
import sqlalchemy as sa

import unspool
from support import Place, address_of, open_corpus
from tasks import DEADLINE_S, Clock, Steps, at_work, over, quick, until
from unspool import jobs as module
from unspool.catalog.schema import jobs as table
from unspool.domain.jobs import Job, JobState
from unspool.domain.reports import Progress
from unspool.errors import UnreachableError
from unspool.jobs import JobQueue

# Two processes, here two runners over two corpora


def test_another_runner_sees_a_job_and_cancels_it(jobs: JobQueue, database: Place) -> None:
    steps = Steps()
    job = jobs.start("a", "x", steps)
    waiting, never = jobs.start("a", "y", quick), Steps()
    also = jobs.start("a", "z", never)
    with open_corpus(database) as second, JobQueue(second) as other:
        until(lambda: other.get(job.id).progress is not None)
        assert other.get(job.id).state is JobState.RUNNING
        assert [one.id for one in other.list()] == [one.id for one in jobs.list()]
        assert other.cancel(also.id).state is JobState.CANCELLED
        other.cancel(job.id)
        assert over(other, job).state is JobState.CANCELLED
        assert over(other, waiting).state is JobState.DONE
        assert not never.begun.is_set()


def test_runners_share_the_turns_of_a_project_and_what_waits(
    jobs: JobQueue, database: Place
) -> None:
    steps, later = Steps(), Steps()
    first = jobs.start("a", "x", steps)
    assert steps.begun.wait(DEADLINE_S)
    with open_corpus(database) as second, JobQueue(second) as other:
        waiting = other.start("a", "y", later)
        assert jobs.start("a", "y", quick).id == waiting.id
        # which is not behind the one that waits
        assert over(other, other.start("b", "x", quick)).state is JobState.DONE
        assert other.get(waiting.id).state is JobState.QUEUED
        assert not later.begun.is_set()
        steps.may_end.set()
        assert later.begun.wait(DEADLINE_S)
        assert jobs.get(first.id).state is JobState.DONE
        later.may_end.set()
        assert over(jobs, waiting).state is JobState.DONE


def test_processes_whose_clocks_differ_agree_on_who_is_at_work(
    jobs: JobQueue, database: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps()
    running = jobs.start("a", "x", steps)
    assert steps.begun.wait(DEADLINE_S)

    class Fast(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + timedelta(seconds=40)

    monkeypatch.setattr("unspool.jobs.datetime", Fast)
    with open_corpus(database) as corpus, JobQueue(corpus) as early:
        assert early.get(running.id).state is JobState.RUNNING
        following = early.start("a", "y", quick)
        assert abs(early.get(following.id).created_at - running.created_at) < timedelta(seconds=30)
        assert early.get(following.id).state is JobState.QUEUED
        steps.may_end.set()
        assert over(early, following).state is JobState.DONE


# The end of a process


def test_closing_interrupts_what_runs_and_what_waits(corpus: unspool.Corpus) -> None:
    jobs, steps = JobQueue(corpus, at_once=1), Steps()
    running = jobs.start("a", "x", steps)
    assert steps.begun.wait(DEADLINE_S)
    waiting = jobs.start("b", "x", quick)
    jobs.close()
    assert [jobs.get(job.id).state for job in (running, waiting)] == [JobState.INTERRUPTED] * 2
    with pytest.raises(UnreachableError):
        jobs.start("a", "x", quick)
    jobs.close()
    assert not at_work()


def test_closing_does_not_wait_for_a_task_that_says_nothing(corpus: unspool.Corpus) -> None:
    jobs, silent = JobQueue(corpus), Steps(silent=True)
    job = jobs.start("a", "x", silent)
    until(lambda: jobs.get(job.id).state is JobState.RUNNING)
    jobs.close(drain_s=0.05)
    assert jobs.get(job.id).state is JobState.INTERRUPTED
    silent.may_end.set()
    until(lambda: not at_work())
    assert jobs.get(job.id).state is JobState.INTERRUPTED


def test_a_corpus_that_is_closed_first_leaves_no_thread(
    database: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # so that nobody holds a connection when the corpus is closed
    monkeypatch.setattr(JobQueue, "_poll_requests", lambda *_: None)
    monkeypatch.setattr(module, "HEARTBEAT_S", 1e9)
    steps = Steps(silent=True)
    with open_corpus(database) as corpus:
        jobs = JobQueue(corpus)
        job = jobs.start("a", "x", steps)
        jobs.start("a", "y", quick)
        assert steps.begun.wait(DEADLINE_S)
    steps.may_end.set()
    until(lambda: not at_work())
    with open_corpus(database) as again, JobQueue(again) as other:
        assert other.get(job.id).state is JobState.RUNNING  # nobody has said otherwise yet


def test_a_job_that_says_nothing_for_long_is_alive_as_long_as_its_process(
    corpus: unspool.Corpus,
) -> None:
    clock, silent = Clock(), Steps(silent=True)
    with JobQueue(corpus, clock=clock) as jobs, pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "HEARTBEAT_S", 0.05)
        running, waiting = jobs.start("a", "x", silent), jobs.start("a", "y", quick)
        until(lambda: jobs.get(running.id).state is JobState.RUNNING)
        for _ in range(3):
            clock.ahead += timedelta(seconds=20)
            until(lambda: _silence_s(corpus, running, clock) < 20)
            assert jobs.get(running.id).state is JobState.RUNNING
            assert jobs.get(waiting.id).state is JobState.QUEUED
        silent.may_end.set()
        assert over(jobs, waiting).state is JobState.DONE


def _silence_s(corpus: unspool.Corpus, job: Job, clock: Clock) -> float:
    with corpus._resources.catalog.read() as connection:
        heartbeat = connection.execute(
            sa.select(table.c.heartbeat_at).where(table.c.id == job.id)
        ).scalar_one()
    return float((clock() - heartbeat).total_seconds())


_RUNNING = """
import sys
import time
import unspool
from unspool.domain.reports import Progress
from unspool.jobs import JobQueue

settings = unspool.Settings.load(arguments={"database": sys.argv[1]}, environment={})
corpus = unspool.open(settings=settings)
jobs = JobQueue(corpus)

def work(tell):
    tell(Progress(task="indexing", done=7, total=9))
    while True:
        time.sleep(0.05)

print(jobs.start("a", "x", work).id, jobs.start("a", "y", work).id, flush=True)
time.sleep(60)
"""


def test_the_jobs_of_a_killed_process_read_as_interrupted(
    corpus: unspool.Corpus, database: Place
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _RUNNING, address_of(database)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        running, waiting = process.stdout.readline().split()
        clock = Clock()
        with JobQueue(corpus, clock=clock) as jobs:
            until(lambda: jobs.get(running).progress is not None)
            os.kill(process.pid, signal.SIGKILL)
            process.wait(DEADLINE_S)
            assert [jobs.get(id_).state for id_ in (running, waiting)] == [
                JobState.RUNNING,
                JobState.QUEUED,
            ]
            clock.ahead = timedelta(seconds=31)
            lost = [jobs.get(id_) for id_ in (running, waiting)]
            assert [job.state for job in lost] == [JobState.INTERRUPTED] * 2
            assert lost[0].progress == Progress(task="indexing", done=7, total=9)
            assert all(
                job.finished_at is not None and job.finished_at < clock() - timedelta(seconds=30)
                for job in lost
            )
            assert jobs.count_by_state()[JobState.INTERRUPTED] == 2
            assert jobs.cancel(running).state is JobState.INTERRUPTED
            # neither behind the lost one, nor taken for it
            again = over(jobs, jobs.start("a", "y", quick))
            assert (again.state, again.id == waiting) == (JobState.DONE, False)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_an_end_that_cannot_be_written_at_once_is_written_later(database: Place) -> None:
    steps = Steps()
    with (
        open_corpus(database) as corpus,
        JobQueue(corpus) as jobs,
        pytest.MonkeyPatch.context() as patched,
    ):
        job = jobs.start("a", "x", steps)
        assert steps.begun.wait(DEADLINE_S)
        failed = threading.Event()

        def unreachable(work: object) -> None:
            failed.set()
            raise UnreachableError("it does not answer")

        patched.setattr(corpus._resources.catalog, "transact", unreachable)
        steps.may_end.set()
        assert failed.wait(DEADLINE_S)
        assert jobs.get(job.id).state is JobState.RUNNING
        patched.undo()
        assert over(jobs, job).state is JobState.DONE
