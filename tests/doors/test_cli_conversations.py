"""`unspool search` where there are conversations, for people and as JSON; `unspool eval` on a
test set made of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result

import unspool
from unspool.domain.conversations import AuthorKind, Conversation, Message

Cli = Callable[..., Result]
START = datetime(2024, 5, 4, 9, 30, tzinfo=UTC)


def lines_of(*texts: str) -> list[Message]:
    """Two who talk, ten hours between their messages."""
    return [
        Message(
            text=text,
            author="Ann" if at % 2 == 0 else "",
            kind=AuthorKind.USER if at % 2 == 0 else AuthorKind.ASSISTANT,
            at=START + timedelta(hours=10 * at),
        )
        for at, text in enumerate(texts)
    ]


@pytest.fixture
def talks(database: Path) -> Path:
    """A project `talks` with two conversations and a document."""
    settings = unspool.Settings.load(
        arguments={"database": f"sqlite:///{database}"}, environment={}, folder=database.parent
    )
    boats = lines_of(
        "Hello there.",
        "Good morning.",
        "Which colour has the dinghy?",
        "Red with a\nwhite stripe.",
        "Thanks.",
        "See you.",
    )
    with unspool.open(settings=settings) as corpus:
        corpus.remember(
            Conversation(project="talks", id="boats/1", title="Buying a boat", messages=boats),
            Conversation(
                project="talks",
                id="plain",
                messages=[Message(text="The dinghy leaks."), Message(text="Then patch it.")],
            ),
        )
        corpus.put(
            unspool.Document(
                project="talks",
                path="shed.md",
                text=(
                    "# Shed\n\nThere is a boat, some say a dinghy, and much else that nobody uses."
                ),
            )
        )
    return database


def blocks(text: str) -> list[list[str]]:
    return [block.split("\n") for block in text.rstrip("\n").split("\n\n")]


def test_hits_of_a_conversation_are_shown_together_in_the_order_they_were_said(
    cli: Cli, talks: Path
) -> None:
    result = cli("search", "which colour has the dinghy", "--limit", "20")
    assert result.exit_code == 0
    found = {block[0].split()[0]: block for block in blocks(result.stdout)}
    assert set(found) == {"boats/1", "plain", "shed.md:1-3"}
    boats = found["boats/1"]
    assert boats[0] == "boats/1  Buying a boat"
    numbers = [int(line[2:].split()[0]) for line in boats if re.match(r"^[> ] [1-9]", line)]
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert [line.strip() for line in boats if re.fullmatch(r" +\d{4}-\d\d-\d\d \(UTC\)", line)] == [
        f"2024-05-0{day} (UTC)" for day in (4, 5, 6)
    ]
    assert re.search(
        r"^> 3  Ann +05:30  Which colour has the dinghy\?  \d\.\d{3}$", "\n".join(boats), re.M
    )
    assert re.search(
        r"^> 4  assistant  15:30  Red with a  \d\.\d{3}\n {23}white stripe\.$",
        "\n".join(boats),
        re.M,
    ), "its lines stand below each other"
    assert found["plain"][0] == "plain"
    assert re.fullmatch(r"> 1  user  The dinghy leaks\.  \d\.\d{3}", found["plain"][1])


def test_what_was_said_around_a_hit_stands_beside_it_without_a_mark(cli: Cli, talks: Path) -> None:
    result = cli("search", "which colour has the dinghy", "--limit", "1", "--alpha", "0")
    (block,) = blocks(result.stdout)
    marks = [
        (line[:1], line.split()[1 if line.startswith(">") else 0])
        for line in block[1:]
        if re.match(r"^[> ] [1-9]", line)
    ]
    assert marks == [(" ", "2"), (">", "3"), (" ", "4")]
    assert "Red with a white stripe." in result.stdout, "what only stands beside is one line"


def test_a_gap_between_messages_is_shown(cli: Cli, talks: Path) -> None:
    settings = unspool.Settings.load(
        arguments={"database": f"sqlite:///{talks}"}, environment={}, folder=talks.parent
    )
    with unspool.open(settings=settings) as corpus:
        messages = [
            Message(text="walrus one" if at in (0, 14) else f"filler {at}") for at in range(15)
        ]
        corpus.remember(Conversation(project="gap", id="c", messages=messages))
    result = cli("search", "walrus one", "-p", "gap", "--limit", "2", "--alpha", "0")
    (block,) = blocks(result.stdout)
    assert [line.strip() for line in block].count("...") == 1
    assert [line.split()[1 if line.startswith(">") else 0] for line in block[1:]] == [
        "1",
        "2",
        "...",
        "14",
        "15",
    ]


def test_several_projects_are_named(cli: Cli, talks: Path) -> None:
    cli(
        "remember",
        "-",
        "-p",
        "other",
        input='{"id": "x", "messages": [{"role": "user", "content": "a dinghy of my own"}]}\n',
    )
    result = cli("search", "dinghy", "-p", "*", "--limit", "50")
    assert "boats/1  Buying a boat  [talks]\n" in result.stdout
    assert re.search(r"^x .*\[other\]$", result.stdout, re.M)


def test_colour_marks_the_words_and_changes_no_text(cli: Cli, talks: Path) -> None:
    plain = cli("search", "which colour has the dinghy").stdout
    assert "\x1b" not in plain
    colored = cli("search", "which colour has the dinghy", "--color").stdout
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain
    assert re.search(r"\x1b\[[0-9;]+mdinghy\x1b\[0m", colored)


def test_json_has_the_message_and_what_stands_around_it(cli: Cli, talks: Path) -> None:
    page = json.loads(
        cli(
            "search", "which colour has the dinghy", "--limit", "1", "--alpha", "0", "--json"
        ).stdout
    )
    (hit,) = page["hits"]
    assert (hit["path"], hit["lines"], hit["kind"], hit["title"], hit["text"]) == (
        "boats/1",
        [3, 3],
        "chat",
        "Buying a boat",
        "Which colour has the dinghy?",
    )
    assert hit["message"] == {
        "number": 3,
        "speaker": "Ann",
        "kind": "user",
        "text": "",
        "at": "2024-05-05T05:30:00+00:00",
        "is_cut": False,
    }
    assert hit["before"] == [
        {
            "number": 2,
            "speaker": "assistant",
            "kind": "assistant",
            "at": "2024-05-04T19:30:00+00:00",
            "is_cut": False,
            "text": "Good morning.",
        }
    ]
    assert [one["text"] for one in hit["after"]] == ["Red with a white stripe."]
    documents = json.loads(cli("search", "dinghy", "--where", "kind=docs", "--json").stdout)["hits"]
    assert [(one["path"], one["message"], one["before"], one["after"]) for one in documents] == [
        ("shed.md", None, [], [])
    ]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["conversation=plain"], {("plain", 1), ("plain", 2)}),
        (["speaker=ann"], {("boats/1", 1), ("boats/1", 3), ("boats/1", 5)}),
        (["speaker=assistant", "time<2024-05-05"], {("boats/1", 2)}),
        (["time>=2024-05-06"], {("boats/1", 5), ("boats/1", 6)}),
        (["conversation=boats/1", "speaker!=ann", "time>2024-05-05T15:30:00Z"], {("boats/1", 6)}),
    ],
)
def test_conditions_on_messages_can_be_given(
    cli: Cli, talks: Path, where: list[str], expected: set[tuple[str, int]]
) -> None:
    conditions = [part for one in where for part in ("--where", one)]
    result = cli("search", "dinghy colour", "--limit", "50", "--json", *conditions)
    assert result.exit_code == 0, result.stderr
    assert {(hit["path"], hit["lines"][0]) for hit in json.loads(result.stdout)["hits"]} == expected


def test_more_goes_on_through_a_conversation(cli: Cli, talks: Path) -> None:
    page = json.loads(cli("search", "dinghy", "--limit", "3", "--json").stdout)
    seen = [(hit["path"], hit["lines"][0]) for hit in page["hits"]]
    while page["continuation"]:
        page = json.loads(cli("more", page["continuation"], "--json").stdout)
        seen += [(hit["path"], hit["lines"][0]) for hit in page["hits"]]
    assert len(seen) == len(set(seen)) == 9


def test_eval_measures_a_test_set_of_conversations(
    cli: Cli, tmp_path: Path, database: Path
) -> None:
    spoken = {
        "meeting": [
            "Which colour did we choose for the casing?",
            "Yellow.",
            "Good morning",
            "The lift is stuck",
            "Bye",
            "See you",
            "Later",
        ],
        "garden": ["Tomatoes want sun", "And water", "In the morning"],
    }
    records = [
        {
            "_id": f"{conversation}-{turn}",
            "title": "",
            "text": text,
            "metadata": {
                "conversation": conversation,
                "turn": turn,
                "speaker": "AB"[turn % 2],
                "time": f"2024-05-0{turn + 1}T10:00:00",
            },
        }
        for conversation, texts in spoken.items()
        for turn, text in reversed(list(enumerate(texts)))
    ]
    asked = [
        {"_id": "q1", "text": "colour of the casing", "metadata": {"conversation": "meeting"}},
        {"_id": "q2", "text": "what do tomatoes want", "metadata": {"conversation": "garden"}},
        {
            "_id": "q3",
            "text": "what was said on 4 May 2024",
            "metadata": {"conversation": "meeting"},
        },
    ]
    grades = "q1\tmeeting-0\t1\nq2\tgarden-0\t1\nq3\tmeeting-3\t1\n"
    (tmp_path / "set" / "qrels").mkdir(parents=True)
    (tmp_path / "set" / "corpus.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in records)
    )
    (tmp_path / "set" / "queries.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in asked)
    )
    (tmp_path / "set" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + grades)
    result = cli("eval", str(tmp_path / "set"), "--alpha", "0", "--json")
    assert result.exit_code == 0, result.stderr
    measured = json.loads(result.stdout)
    assert (measured["documents"], measured["chunks"], measured["queries"]) == (10, 10, 3)
    assert (measured["ndcg_10"], measured["mrr"], measured["recall_10"]) == (1.0, 1.0, 1.0)
    (tmp_path / "set" / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq1\tmeeting-1\t1\n"
    )
    beside = json.loads(cli("eval", str(tmp_path / "set"), "--alpha", "0", "--json").stdout)
    assert beside["mrr"] == 0.5, "the answer stands right beside the question"
    assert not database.exists()


def test_a_message_without_a_time_stands_below_those_with_one(cli: Cli, database: Path) -> None:
    with unspool.open(f"sqlite:///{database}") as corpus:
        corpus.remember(
            Conversation(
                id="c",
                messages=[
                    Message(text="When is the regatta?", at=START),
                    Message(text="The regatta is in June."),
                ],
            )
        )
    rows = cli("search", "regatta").stdout.splitlines()
    (first,) = [row.index("When is") for row in rows if "When is" in row]
    (second,) = [row.index("The regatta") for row in rows if "The regatta" in row]
    assert first == second


def test_related_numbers_a_message_once_however_many_lines_it_has(cli: Cli, talks: Path) -> None:
    rows = cli("related", "boats/1:3", "--limit", "10").stdout.splitlines()
    at = next(index for index, row in enumerate(rows) if row.startswith("> 4  "))
    assert "Red with a" in rows[at] and rows[at + 1].strip() == "white stripe."


def test_a_question_goes_on_from_a_conversation_of_the_project_that_is_searched(
    cli: Cli, talks: Path
) -> None:
    assert (
        cli("ask", "which colour?", "--project", "talks", "--conversation", "plain").exit_code == 0
    )
    assert cli("ask", "which colour?", "--project", "*", "--conversation", "plain").exit_code == 0
    result = cli("ask", "which colour?", "--project", "talks", "--conversation", "nowhere")
    assert result.exit_code == 1 and "no conversation 'nowhere'" in result.stderr


def test_what_a_model_would_be_shown_is_free_of_carriage_returns(cli: Cli, database: Path) -> None:
    with unspool.open(f"sqlite:///{database}") as corpus:
        corpus.remember(Conversation(id="c", messages=[Message(text="The regatta\r\nis in June.")]))
    result = cli("ask", "when is the regatta?")
    assert "regatta\nis in June." in result.stdout


def test_a_long_name_does_not_push_what_others_said_to_the_right(cli: Cli, database: Path) -> None:
    with unspool.open(f"sqlite:///{database}") as corpus:
        said = [
            Message(text="When is the regatta?", author="Ann"),
            Message(text="The regatta is in June.", author="B" * 150),
        ]
        corpus.remember(Conversation(id="c", messages=said))
    rows = cli("search", "regatta").stdout.splitlines()
    assert max(row.find("When is") for row in rows) < 40
    assert any("B" * 150 + "  The regatta" in row for row in rows)


def test_names_that_nobody_has_are_said(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSPOOL_DATABASE", f"sqlite:///{tmp_path}/names.db")
    with unspool.open() as corpus:
        corpus.remember(Conversation(id="c", messages=lines_of("walrus")))
    result = cli(
        "search", "walrus", "--where", "speaker=nobody,ann", "--where", "conversation=stand-up"
    )
    assert result.exit_code == 1
    assert "nobody called 'nobody' says anything here" in result.stderr
    assert "there is no conversation 'stand-up' here" in result.stderr
    assert "'ann'" not in result.stderr


def test_a_long_message_is_cut_around_what_matched_and_does_not_fill_the_page(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSPOOL_DATABASE", f"sqlite:///{tmp_path}/long.db")
    filler = " ".join(f"word{number}" for number in range(4000))
    with unspool.open() as corpus:
        corpus.remember(
            Conversation(
                id="c",
                messages=lines_of(
                    f"{filler} walrus {filler}",
                    *(f"the walrus number {number}" for number in range(5)),
                ),
            )
        )
        page = corpus.search("walrus", limit=6)
        assert len(corpus.conversations.chunks("c")) > 15
        assert len({hit.message.number for hit in page.hits if hit.message}) == 6
    result = cli("search", "word3210", "--limit", "1")
    [line] = [line for line in result.stdout.splitlines() if line.startswith("> 1 ")]
    assert "word3210" in line
    assert len(line) < 600
    assert len(cli("search", "word3210", "--limit", "1", "--full").stdout) > len(result.stdout)


def test_documents_name_conversations_by_their_titles(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSPOOL_DATABASE", f"sqlite:///{tmp_path}/titles.db")
    with unspool.open() as corpus:
        corpus.remember(Conversation(id="c-1", title="Buying a boat", messages=lines_of("walrus")))
    assert re.search(r"c-1 +Buying a boat", cli("documents").stdout)


def test_a_secret_is_reported_by_its_message(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSPOOL_DATABASE", f"sqlite:///{tmp_path}/secrets.db")
    with unspool.open() as corpus:
        report = corpus.remember(
            Conversation(id="c", messages=lines_of("walrus", "one\ntwo\nAKIA" + "Z7Q2WMX4PLK9VD3T"))
        )
    assert [(one.path, one.line) for one in report.masked] == [("c", 2)]
