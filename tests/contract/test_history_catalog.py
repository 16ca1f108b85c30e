"""What a catalog adds to a history: projects, streams side by side, other processes, and records
that are not shown any more before they go.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

import unspool
from support import Place, Places, address_of, beside, doc, open_corpus, paths
from unspool import History, Record, Retention
from unspool.catalog import history as history_sql
from unspool.errors import InputError

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SECRET = "AKIA" + "Z7Q2WMX4PLK9VD3T"
_APPENDING = """
import sys
import unspool
settings = unspool.Settings.load(arguments={"database": sys.argv[1]}, environment={})
with unspool.open(settings=settings) as corpus:
    for number in range(30):
        corpus.history("jobs").append(f"{sys.argv[2]} {number}")
"""


def bodies(records: list[Record]) -> list[str]:
    return [record.body for record in records]


def filled(log: History, count: int) -> History:
    for number in range(1, count + 1):
        log.append(f"body {number}", at=NOON + timedelta(minutes=number))
    return log


def test_streams_and_projects_keep_apart(corpus: unspool.Corpus) -> None:
    for project, stream in itertools.product(("one", "two"), ("a", "A", "b")):
        corpus.history(stream, project=project).append(f"{project} {stream}")
    for project, stream in itertools.product(("one", "two"), ("a", "A", "b")):
        log = corpus.history(stream, project=project)
        assert bodies(log.read()) == [f"{project} {stream}"]
        assert log.count() == 1
    corpus.history("a", project="one").clear()
    assert [(one.project, one.stream, one.records) for one in corpus.streams()] == [
        ("one", "A", 1),
        ("one", "b", 1),
        ("two", "A", 1),
        ("two", "a", 1),
        ("two", "b", 1),
    ]
    assert [one.stream for one in corpus.streams(project="two")] == ["A", "a", "b"]
    assert corpus.streams(project="three") == []


def test_reading_makes_nothing(corpus: unspool.Corpus, database: Place) -> None:
    log = corpus.history("jobs", project="unknown")
    assert (log.read(), log.page().records, log.count(), log.prune(), log.clear()) == (
        [],
        (),
        0,
        0,
        0,
    )
    assert corpus.projects() == []
    corpus.put(doc("a.md", "walrus", "known"))
    assert corpus.history("jobs", project="known").read() == []
    with beside(database) as catalog:
        assert catalog.rows("SELECT count(*) FROM streams") == [(0,)]
    assert corpus.projects() == ["known"]


def test_the_project_is_the_settings_or_default(places: Places) -> None:
    place = places.new()
    with open_corpus(place) as corpus:
        corpus.history("jobs").append("plain")
    with open_corpus(place, project="mine") as corpus:
        corpus.history("jobs").append("set")
        corpus.history("jobs", project="named").append("named")
        assert [one.project for one in corpus.streams()] == ["default", "mine", "named"]


@pytest.mark.parametrize("name", ["", "a,b", " x"])
def test_a_bad_project_or_stream_name_is_refused(corpus: unspool.Corpus, name: str) -> None:
    with pytest.raises(InputError, match="project name"):
        corpus.history("jobs", project=name)
    with pytest.raises(InputError, match="stream name"):
        corpus.history("a\nb")


def test_it_is_there_when_the_corpus_is_opened_again(database: Place) -> None:
    with open_corpus(database) as corpus:
        given = [corpus.history("jobs").append(f"body {number}") for number in range(3)]
    with open_corpus(database) as corpus:
        assert corpus.history("jobs").read() == given[::-1]
        assert corpus.history("jobs").append("next").number == 4


def test_forgetting_the_project_forgets_its_streams(
    corpus: unspool.Corpus, database: Place
) -> None:
    corpus.put(doc("a.md", "walrus", "one"))
    corpus.history("jobs", project="one").append("gone")
    corpus.history("jobs", project="two").append("stays")
    corpus.forget(project="one")
    assert [(one.project, one.records) for one in corpus.streams()] == [("two", 1)]
    assert corpus.history("jobs", project="one").read() == []
    with beside(database) as catalog:
        assert catalog.rows("SELECT body FROM records") == [("stays",)]
    assert corpus.history("jobs", project="one").append("anew").number == 1


def test_a_project_of_streams_alone_does_not_stand_in_the_way_of_a_search(
    corpus: unspool.Corpus,
) -> None:
    corpus.history("jobs").append("walrus")
    assert corpus.search("walrus").hits == ()
    corpus.put(doc("a.md", "The walrus.", "notes"))
    assert paths(corpus.search("walrus")) == ["a.md"]
    assert paths(corpus.search("walrus", projects="*")) == ["a.md"]
    assert corpus.forget(project="default") == 0
    assert corpus.streams() == []


def test_secrets_are_nowhere_in_the_catalog(corpus: unspool.Corpus, database: Place) -> None:
    corpus.history("jobs").append(f"token {SECRET}")
    with beside(database) as catalog:
        ((body,),) = catalog.rows("SELECT body FROM records")
    assert SECRET not in body


def test_the_settings_say_what_is_kept_and_a_handle_may_say_otherwise(places: Places) -> None:
    place = places.new()
    with open_corpus(place, history_max_records=2) as corpus:
        filled(corpus.history("short"), 5)
        filled(corpus.history("long", retention=Retention(max_records=4)), 5)
    with open_corpus(place) as corpus:
        assert {one.stream: one.records for one in corpus.streams()} == {"short": 2, "long": 4}
        assert [record.number for record in corpus.history("short").read()] == [5, 4]
    now = datetime.now(UTC)
    with open_corpus(place, history_max_age_s=3600) as corpus:
        for hours in (3, 2, 0):
            corpus.history("aged").append(f"{hours} hours ago", at=now - timedelta(hours=hours))
        assert bodies(corpus.history("aged").read()) == ["0 hours ago"]


def test_a_stream_that_is_suddenly_to_be_short_is_shown_short_at_once_and_shrinks_bit_by_bit(
    corpus: unspool.Corpus,
) -> None:
    step = history_sql.PRUNED_BY_APPEND
    filled(corpus.history("jobs"), 2 * step + 10)
    short = corpus.history("jobs", retention=Retention(max_records=5))
    assert [record.number for record in short.read()] == list(
        range(2 * step + 10, 2 * step + 5, -1)
    )
    assert short.count() == 5
    assert not short.page(2, 3).has_more
    short.append("one more", at=NOON + timedelta(days=1))
    assert corpus.history("jobs").count() == step + 11
    assert short.prune() == step + 6
    assert corpus.history("jobs").count() == short.count() == 5
    assert short.prune() == 0


def test_what_grew_old_is_not_shown_before_it_is_removed(corpus: unspool.Corpus) -> None:
    now = datetime.now(UTC)
    for minutes in (90, 80, 10):
        corpus.history("jobs").append(str(minutes), at=now - timedelta(minutes=minutes))
    hour = corpus.history("jobs", retention=Retention(max_age_s=3600))
    assert (bodies(hour.read()), hour.count()) == (["10"], 1)
    assert [entry.body for entry in hour.page().records] == ["10"]
    assert (hour.page(1).has_more, hour.page(2, 1).records) == (False, ())
    assert hour.prune() == 2
    assert corpus.history("jobs").count() == 1


def test_processes_that_append_at_once_lose_nothing(database: Place) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _APPENDING, address_of(database), str(number)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    with open_corpus(database) as corpus:
        records = corpus.history("jobs").read()
        assert sorted(record.number for record in records) == list(range(1, 61))
        assert sorted(bodies(records)) == sorted(
            f"{process} {number}" for process in range(2) for number in range(30)
        )
        assert corpus.history("jobs").count() == 60


def test_a_closed_corpus_says_so(database: Place) -> None:
    with open_corpus(database) as corpus:
        log = corpus.history("jobs")
    with pytest.raises(InputError, match="closed"):
        log.append("late")
    with pytest.raises(InputError, match="closed"):
        log.read()
