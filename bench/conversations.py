"""Conversations: how long it takes until they are found, what appending costs, how fast an export
comes in, and what dates are worth.

Dates are measured on a test set of conversations (--dates DIR): all of them lie in one project,
each gets a day of its own, and every question names the day of the conversation that it is about.
The same questions are asked where the messages have those times and where they have none.
"""

from __future__ import annotations

import json
import random
import resource
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean, median

import pgdata
from common import Figure, address, call_fresh, parser, percentile, show, tell, workspace
from unspool import Conversation, Message
from unspool.corpus import Corpus
from unspool.evaluation import beir, metrics
from unspool.memory.messages import format_day
from unspool.settings import Settings

START = datetime(2024, 1, 1, 9, tzinfo=UTC)
LONG = 10_000
WORDS = 4_000
BOUNDS_S = {"sqlite": 0.5, "postgresql": 2.0}


def main() -> None:
    options = parser(__doc__)
    pgdata.add_options(options)
    options.add_argument(
        "--messages", type=int, default=100_000, help="of the export that is imported"
    )
    options.add_argument("--repeats", type=int, default=20)
    options.add_argument(
        "--engines", nargs="+", choices=sorted(BOUNDS_S), default=sorted(BOUNDS_S, reverse=True)
    )
    options.add_argument(
        "--dates", type=Path, metavar="DIR", help="a test set of conversations in BEIR layout"
    )
    given = options.parse_args()
    figures: list[Figure] = []
    with workspace(given.keep) as folder:
        export = write_export(folder / f"export-{given.messages}.jsonl", given.messages, given.seed)
        if "sqlite" in given.engines:
            figures += measured(
                "sqlite",
                address(folder / "chats.db"),
                address(folder / "imported.db"),
                export,
                given.repeats,
            )
        if "postgresql" in given.engines:
            with pgdata.place(given.server) as place, place.fresh() as one, place.fresh() as two:
                figures += measured("postgresql", one, two, export, given.repeats)
        if given.dates:
            figures += dates(given.dates, folder)
    show("conversations", figures, as_json=given.json)


def said(count: int, seed: int) -> list[Message]:
    """Messages of two people, 5 to 30 words each."""
    chance = random.Random(seed)
    names = [
        f"{chance.choice('bcdfgklmnprst')}{chance.choice('aeiou')}{chance.choice('lmnrst')}{number:x}"
        for number in range(WORDS)
    ]
    return [
        Message(
            text=" ".join(chance.choices(names, k=chance.randrange(5, 30))),
            author="Ann" if number % 2 else "Bob",
            at=START + timedelta(minutes=number),
        )
        for number in range(count)
    ]


def write_export(file: Path, count: int, seed: int) -> Path:
    """An export in JSON lines, conversations of 50 messages."""
    if not file.exists():
        messages = said(count, seed)
        with file.open("w") as out:
            for start in range(0, count, 50):
                some = [
                    {
                        "author": one.author,
                        "at": one.at.isoformat() if one.at else None,
                        "text": one.text,
                    }
                    for one in messages[start : start + 50]
                ]
                out.write(
                    json.dumps(
                        {"id": f"c{start // 50}", "title": f"Talk {start // 50}", "messages": some}
                    )
                    + "\n"
                )
    return file


def measured(engine: str, place: str, other: str, export: Path, repeats: int) -> Iterator[Figure]:
    """The figures of one engine."""
    with Corpus(Settings.load(arguments={"database": place}, environment={})) as corpus:
        times = []
        for number in range(repeats + 1):
            messages = said(10, 1000 + number)
            wanted = messages[7].text
            begun = time.perf_counter()
            corpus.remember(Conversation(project="ten", id=f"c{number}", messages=messages))
            found = corpus.search(wanted, projects=["ten"], limit=1).hits[0]
            times.append(time.perf_counter() - begun)
            assert found.chunk.text == wanted
        first, warm = times[0], times[1:]
        yield Figure(
            name=f"{engine}: ten messages saved and found, the first time",
            value=first,
            unit="s",
            bound=BOUNDS_S[engine],
        )
        yield Figure(
            name=f"{engine}: ten messages saved and found, p50",
            value=median(warm),
            unit="s",
            bound=BOUNDS_S[engine],
        )
        tell(f"{engine}: a conversation of {LONG} messages")
        corpus.remember(Conversation(project="long", id="long", messages=said(LONG, 7)))
        times = []
        embedded = 0
        for number, message in enumerate(said(repeats, 8)):
            begun = time.perf_counter()
            report = corpus.conversations.append(
                "long", Message(text=f"{message.text} {number}x"), project="long"
            )
            times.append(time.perf_counter() - begun)
            embedded += report.embedded
        yield Figure(
            name=f"{engine}: appending one to {LONG}, p50",
            value=1000 * median(times),
            unit="ms",
            bound=50,
            note=f"{embedded / repeats:g} embeddings",
        )
        yield Figure(
            name=f"{engine}: appending one to {LONG}, p95",
            value=1000 * percentile(times, 95),
            unit="ms",
        )
    tell(f"{engine}: importing {export.name}")
    seconds, messages, peak, ms = call_fresh("conversations:imported", other, str(export))
    yield Figure(
        name=f"{engine}: messages imported",
        value=messages / seconds,
        unit="/s",
        bound=1000,
        at_least=True,
        note=f"{messages} in {seconds:.1f} s",
    )
    yield Figure(name=f"{engine}: peak memory of that", value=peak, unit="MB")
    yield Figure(name=f"{engine}: a search in them, p50", value=ms, unit="ms")


def imported(place: str, export: str) -> tuple[float, int, float, float]:
    """Seconds, messages, peak memory in MB, and how long a search takes afterwards in ms; for a
    process of its own.
    """
    with Corpus(Settings.load(arguments={"database": place}, environment={})) as corpus:
        begun = time.perf_counter()
        report = corpus.remember_files(export, project="imported")
        seconds = time.perf_counter() - begun
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        times = []
        for message in said(60, 99):
            begun = time.perf_counter()
            corpus.search(" ".join(message.text.split()[:6]), projects=["imported"])
            times.append(time.perf_counter() - begun)
        return seconds, report.messages, peak, 1000 * median(times[10:])


def dates(folder: Path, work: Path) -> Iterator[Figure]:
    """What the days of messages are worth to questions that name a day."""
    conversations: dict[str, list[beir.Turn]] = defaultdict(list)
    for turn in beir.read_documents(folder):
        assert isinstance(turn, beir.Turn), "a set of conversations is needed"
        conversations[turn.conversation].append(turn)
    days = {name: START + timedelta(days=17 * number) for number, name in enumerate(conversations)}
    questions = beir.read_questions(folder)
    for dated in (False, True):
        with Corpus(
            Settings.load(
                arguments={"database": address(work / f"dates-{dated}.db"), "window": 0},
                environment={},
            )
        ) as corpus:
            names = {}
            for name, turns in conversations.items():
                turns.sort(key=lambda turn: turn.number)
                at = days[name] if dated else None
                messages = [
                    Message(text=turn.message.text, author=turn.message.author, at=at)
                    for turn in turns
                ]
                corpus.remember(Conversation(project="all", id=name, messages=messages))
                names |= {f"{name}:{number}": turn.id for number, turn in enumerate(turns, 1)}
            for named in (False, True):
                asked = [
                    (f"{one.text} on {format_day(days[one.project])}" if named else one.text, one)
                    for one in questions
                ]
                found = [score(corpus, text, names, one) for text, one in asked]
                about = (
                    f"messages {'with' if dated else 'without'} days, questions "
                    f"{'with' if named else 'without'}"
                )
                yield Figure(
                    name=f"{folder.name}, all in one project, {about}: nDCG@10", value=fmean(found)
                )


def score(corpus: Corpus, text: str, names: dict[str, str], question: beir.Question) -> float:
    hits: Sequence = corpus.search(text, projects=["all"], limit=10).hits
    return metrics.ndcg([names[hit.chunk.location] for hit in hits], question.grades, 10)


if __name__ == "__main__":
    main()
