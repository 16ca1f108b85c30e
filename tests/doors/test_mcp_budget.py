"""An answer never has more tokens than it may, in neither form, and nothing is lost for it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unspool
from agents import Agent, ToolResult
from support import doc, open_corpus
from unspool.access.scope import Scope
from unspool.interfaces.mcp import arguments, catalogue, tools
from unspool.interfaces.mcp.catalogue import LEAST_TOKENS, MOST_TOKENS
from unspool.interfaces.mcp.excerpts import clip, fit_lines

HOME = "notes"
TOOLS = catalogue.build_tools(4_000)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BUDGETS = st.integers(LEAST_TOKENS, 1_500) | st.sampled_from([LEAST_TOKENS, 4_000, MOST_TOKENS])
WALKED = 25  # hits of a walk
WORDS = [
    "tomato",
    "pump",
    '"quoted"',
    "\\n",
    "{",
    "}",
    "漢字",
    "λ",
    "[1] x",
    "note: y",
    "🌱",
    "def f(x):",
    "\t",
    "0123456789",
    "https://example.org/a?b=c#d",
]


def _text(chance: random.Random) -> str:
    lines = [
        " ".join(chance.choices(WORDS, k=chance.randrange(1, 12)))
        for _ in range(chance.randrange(1, 40))
    ]
    return "\n".join([*lines, "x" * chance.choice([0, 0, 500, 4_000]), "tomato"])


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    chance = random.Random(7)
    with open_corpus(tmp_path_factory.mktemp("budget") / "catalog.db") as corpus:
        corpus.put(
            *(
                doc(f"{'deep/' * (number % 7)}n{number} [x].md", _text(chance), "notes")
                for number in range(40)
            )
        )
        corpus.put(
            doc("one line.txt", "tomato " * 6_000, "notes"),
            doc("lines.txt", "\n".join(str(n) for n in range(1, 1_001)), "notes"),
        )
        said = [
            unspool.Message(text=_text(chance), author=chance.choice(["ann", "bob"]), at=NOON)
            for _ in range(12)
        ]
        corpus.remember(unspool.Conversation(id="talk", project="notes", messages=said))
        for number in range(14):
            body = chance.choice(
                [_text(chance), "漢字" * 700, json.dumps({"a": ['"' * 300]}), "short"]
            )
            corpus.history("GET /x", project="notes").append(
                f"{number} {body}", at=NOON + timedelta(minutes=number)
            )
        yield Agent(corpus, Scope.everything(), home=HOME)


def within(agent: Agent, most: int, tool: str, **sent: object) -> ToolResult:
    """What a tool answers, asked past the protocol, which hypothesis would spend its time on."""
    understood = arguments.parse_arguments(
        tool, TOOLS[tool].arguments, {**sent, "max_tokens": most}
    )
    answer = tools.RUN[tool](
        tools.ToolCall(corpus=agent.corpus.scoped(Scope.everything()), given=understood, home=HOME)
    )
    result = ToolResult(text=answer.text, values=answer.values, is_error=False)
    assert max(agent.tokens(result)) <= most
    if "hits" in result.values:  # whatever the hits hold, each has one header
        assert len(re.findall(r"^\[\d+\] ", result.text, re.MULTILINE)) == len(result.places)
    return result


@settings(max_examples=8, deadline=None)
@given(BUDGETS, st.integers(1, 30))
def test_pages_keep_to_the_budget_and_leave_nothing_out(
    agent: Agent, most: int, limit: int
) -> None:
    answer = within(agent, most, "search", query="tomato pump", limit=limit)
    page = agent.corpus.search("tomato pump", projects="notes", limit=len(answer.places))
    places, whole = answer.places, [hit.chunk.location for hit in page.hits]
    while "continuation" in answer.values and len(places) < WALKED:
        answer = within(
            agent, most, "more", continuation=answer.values["continuation"], limit=limit
        )
        assert 1 <= len(answer.places) <= limit
        places += answer.places
    while page.continuation is not None and len(whole) < len(places):
        page = page.more()
        whole += [hit.chunk.location for hit in page.hits]
    assert places == whole[: len(places)]
    assert len(places) == len(set(places)) and (
        "continuation" in answer.values or len(whole) == len(places)
    )


@settings(max_examples=40, deadline=None)
@given(BUDGETS, st.integers(1, 1_000), st.integers(0, 400))
def test_reading_on_gives_every_line_once(agent: Agent, most: int, first: int, more: int) -> None:
    last = min(first + more, 1_000)
    answer = within(agent, most, "read", path=f"lines.txt:{first}-{last}")
    lines = answer.values["text"].split("\n")
    while "next" in answer.values:
        answer = within(agent, most, "read", path=answer.values["next"])
        lines += answer.values["text"].split("\n")
    assert lines == [str(number) for number in range(first, last + 1)]


@pytest.mark.parametrize("most", [LEAST_TOKENS, 350, 4_000, MOST_TOKENS])
@pytest.mark.parametrize(
    "path", ["one line.txt", "talk", "talk:3-9", "n0 [x].md", "deep/n1 [x].md"]
)
def test_whatever_is_read_keeps_to_the_budget(agent: Agent, path: str, most: int) -> None:
    answer = within(agent, most, "read", path=path, last_line=12)
    assert answer.values["text"]


def test_a_line_that_has_no_room_is_cut_and_it_is_said(agent: Agent) -> None:
    answer = agent.call("read", path="one line.txt", max_tokens=300)
    assert (
        answer.values["text"].endswith("[...]")
        and "note: line 1 is longer than max_tokens and was cut" in answer.text
    )


@settings(max_examples=8, deadline=None)
@given(BUDGETS, st.integers(1, 10))
def test_histories_keep_to_the_budget_and_leave_nothing_out(
    agent: Agent, most: int, limit: int
) -> None:
    numbers: list[int] = []
    has_more = True
    while has_more:
        answer = within(
            agent, most, "get_response_history", stream="GET /x", limit=limit, offset=len(numbers)
        )
        numbers += [record["number"] for record in answer.values["records"]]
        has_more = answer.values["has_more"]
        assert has_more == ("next" in answer.values) == ("older records: limit=" in answer.text)
        assert not has_more or f"offset={len(numbers)}" in answer.values["next"]
    assert numbers == list(range(14, 0, -1))


@pytest.mark.parametrize("most", [LEAST_TOKENS, 1_000])
def test_what_is_like_a_place_keeps_to_the_budget(agent: Agent, most: int) -> None:
    answer = within(agent, most, "related", path="n0 [x].md:1", limit=30)
    assert "not all 30 had room" in answer.text


def test_a_long_list_of_projects_comes_in_parts(tmp_path: Path) -> None:
    with open_corpus(tmp_path / "many.db") as corpus:
        for number in range(40):
            corpus.history("x", project=f"project number {number:02}").append("y")
        agent = Agent(corpus, Scope.everything())
        names: list[str] = []
        after = ""
        while True:
            answer = within(agent, LEAST_TOKENS, "list_projects", after=after)
            names += [one["name"] for one in answer.values["projects"]]
            if "after" not in answer.values:
                break
            after = answer.values["after"]
        assert names == [f"project number {number:02}" for number in range(40)]
        assert len(agent.call("list_projects", limit=3).values["projects"]) == 3
        past = agent.call("list_projects", after=names[-1])
        assert past.text == "note: no further projects" and past.values["projects"] == []


@pytest.mark.parametrize("tool", ["list_projects", "get_response_history"])
def test_a_row_that_exceeds_the_budget_is_refused(tmp_path: Path, tool: str) -> None:
    with open_corpus(tmp_path / "long.db") as corpus:
        corpus.history("GET /" + "number/" * 140, project="notes").append("y")
        root = tmp_path / "/".join(["deeper"] * 120)
        root.mkdir(parents=True)
        (root / "a.md").write_text("tomato", encoding="utf-8")
        corpus.index(root, project="deep")
        agent = Agent(corpus, Scope.everything())
        refused = agent.call(tool, max_tokens=LEAST_TOKENS)
        assert refused.is_error and "give a larger max_tokens" in refused.text
        assert not agent.call(tool, max_tokens=MOST_TOKENS).is_error


def test_a_long_list_of_streams_comes_in_parts(tmp_path: Path) -> None:
    with open_corpus(tmp_path / "many.db") as corpus:
        for number in range(40):
            corpus.history(f"GET /number/{number:02}", project="notes").append("y")
        agent = Agent(corpus, Scope.everything())
        names: list[str] = []
        has_more = True
        while has_more:
            answer = within(agent, LEAST_TOKENS, "get_response_history", offset=len(names))
            names += [one["stream"] for one in answer.values["streams"]]
            has_more = answer.values["has_more"]
            assert has_more == ("next" in answer.values) and (
                not has_more or f"further streams: offset={len(names)}" in answer.text
            )
        assert names == [f"GET /number/{number:02}" for number in range(40)]
        past = agent.call("get_response_history", offset=99)
        assert past.text == "note: no further streams"
        assert past.values["notes"] == ["no further streams"]


@pytest.mark.parametrize("most", [LEAST_TOKENS, 4_000])
def test_a_continuation_that_is_too_long_to_be_copied_is_left_out_and_it_is_said(
    tmp_path: Path, most: int
) -> None:
    with open_corpus(tmp_path / "signed.db", continuations="signed") as corpus:
        corpus.put(
            *(
                doc(
                    f"n{number}.md",
                    f"# Note {number}\n\nThe tomato of note {number} wants water.\n",
                    HOME,
                )
                for number in range(40)
            )
        )
        agent = Agent(corpus, Scope.everything(), home=HOME)
        answer = within(agent, most, "search", query="tomato")
        assert 1 <= len(answer.places) <= 5 and answer.values["remaining"] == 40 - len(
            answer.places
        )
        assert (
            "continuation" not in answer.values
            and "more(" not in answer.text
            and len(answer.text) < 3_000
        )
        assert (
            f"end: {40 - len(answer.places)} further hits have no page of their own here; a "
            f"larger limit"
        ) in answer.text
        assert len(within(agent, MOST_TOKENS, "search", query="tomato", limit=30).places) == 30


def test_nothing_found_in_many_projects_names_a_few_of_them(tmp_path: Path) -> None:
    with open_corpus(tmp_path / "many.db") as corpus:
        for number in range(40):
            corpus.put(doc("a.md", "Something.", f"project number {number:02}"))
        answer = within(
            Agent(corpus, Scope.everything()),
            LEAST_TOKENS,
            "search",
            query="zzqqxv",
            project="*",
            kind="chat",
        )
        assert "project number 04 and 35 other projects with kind 'chat'" in answer.text


def test_an_error_has_a_bound_and_keeps_its_end() -> None:
    text = tools.format_error("input", f"there are {'many, ' * 1_000}projects; name one")
    assert (
        len(text) < 1_100
        and text.startswith("error (input): there are many")
        and text.endswith("projects; name one")
    )


def test_a_name_that_has_no_room_is_refused_and_not_cut(tmp_path: Path) -> None:
    with open_corpus(tmp_path / "deep.db") as corpus:
        corpus.put(doc("folder/" * 300 + "file.md", "tomato"))
        refused = Agent(corpus, Scope.everything()).call(
            "search", query="tomato", max_tokens=LEAST_TOKENS
        )
        assert refused.is_error and "give a larger max_tokens" in refused.text


@given(
    st.lists(st.text(alphabet="ab ", max_size=12), min_size=1, max_size=12),
    st.sets(st.integers(0, 11)),
    st.integers(1, 60),
)
def test_lines_are_dropped_from_the_ends(rows: list[str], wanted: set[int], most: int) -> None:
    text, first = fit_lines(rows, wanted, len, most)
    assert len(text) <= most
    if not text.endswith("[...]") and text:
        assert text == "\n".join(rows[first : first + text.count("\n") + 1])


@given(st.text(max_size=60), st.integers(0, 80))
def test_a_text_is_cut_to_what_has_room(text: str, most: int) -> None:
    cut = clip(text, len, most)
    assert len(cut) <= most or cut == ""
    assert cut == text or text.startswith(cut.removesuffix(" [...]"))


def test_a_usual_session_of_an_agent_takes_at_most_6000_tokens_in_both_forms_together(
    tmp_path: Path,
) -> None:
    """On failure: an answer says more than it must; see `excerpts.py` for what of a hit is shown,
    and `catalogue.py` for how many lines are read.
    """
    with open_corpus(tmp_path / "session.db") as corpus:
        code = Path(unspool.__file__).parent
        files = [
            file
            for folder in ("search", "domain", "indexing")
            for file in sorted((code / folder).glob("*.py"))
        ]
        corpus.put(
            *(
                doc(
                    f"src/unspool/{file.relative_to(code).as_posix()}",
                    file.read_text(encoding="utf-8"),
                    "unspool",
                )
                for file in files
            )
        )
        for number in range(9):
            orders = [
                {"id": 48_210 + number * 7 + n, "state": "shipped", "total": 19.9 + n, "items": n}
                for n in range(6)
            ]
            corpus.history("GET /orders").append(
                json.dumps(
                    {
                        "status": 200,
                        "endpoint": "/v1/orders",
                        "took_ms": 31 + number,
                        "orders": orders,
                    }
                )
            )
        agent = Agent(corpus, Scope.everything(), home="unspool")
        for question in (
            "where is the token budget of a page enforced",
            "how are transient database failures retried",
            "which files are left out",
        ):
            search = agent.call("search", query=question)
            more = agent.call("more", continuation=search.values["continuation"])
            path, lines = search.places[0].rsplit(":", 1)
            read = agent.call("read", path=path, first_line=int(lines.split("-")[0]))
            history = [
                agent.call("get_response_history", stream="GET /orders", offset=offset)
                for offset in (0, 2)
            ]
            answers = [search, more, read, *history]
            assert not any(answer.is_error for answer in answers)
            total = sum(sum(agent.tokens(answer)) for answer in answers)
            # and not because little was found
            assert 3_000 < total <= 6_000, [agent.tokens(answer) for answer in answers]


def test_the_tools_themselves_take_few_tokens(agent: Agent) -> None:
    """What a model is sent with every conversation: names, descriptions and input schemas."""
    found = agent.run(lambda client: client.list_tools()).tools
    shown = [
        {"name": one.name, "description": one.description, "input_schema": one.input_schema}
        for one in found
    ]
    assert agent.corpus.count_tokens(json.dumps(shown)) <= 2_000
