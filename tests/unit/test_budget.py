"""The token budget: what is shown of each hit."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from unspool.domain.documents import Chunk, Lines
from unspool.domain.queries import Form, Snippet
from unspool.search import budget
from unspool.search.budget import Fitted, format_header


def count(text: str) -> int:
    return len(text.split())


def cut(chunk: Chunk) -> Snippet:
    return Snippet(text=chunk.title, first_line=1)


def fit(chunks: list[Chunk], *, max_tokens: int, count: Callable[[str], int]) -> list[Fitted]:
    return budget.fit_hits(chunks, cut, max_tokens=max_tokens, count=count)


def item(tokens: int, excerpt: int, head: int = 1) -> Chunk:
    """A chunk whose header, snippet and text cost so many tokens."""
    return Chunk(
        id=1,
        project="p",
        path="a",
        index=0,
        text="w " * tokens,
        start=0,
        end=1,
        lines=Lines(1, 1),
        token_count=tokens,
        symbol=" ".join(["s"] * (head - 1)),
        title="w " * excerpt,
    )


def forms(fitted: list[Fitted]) -> str:
    return "".join(one.form.value[0] for one in fitted)


items = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 20), st.integers(1, 8)).map(
        lambda row: item(max(row[0], row[1]), row[1], row[2])
    ),
    max_size=15,
)


def test_the_header_names_the_place_and_what_is_there() -> None:
    assert format_header(item(1, 1, 3)) == "a:1 s s"
    assert format_header(item(1, 1)) == "a:1"


def test_no_budget_shows_everything_whole() -> None:
    assert forms(fit([item(1000, 10), item(5000, 10)], max_tokens=0, count=count)) == "ww"


def test_hits_degrade_from_whole_to_snippet_to_location_and_then_end() -> None:
    some = [item(100, 10) for _ in range(4)]
    assert forms(fit(some, max_tokens=404, count=count)) == "wwww"
    assert forms(fit(some, max_tokens=403, count=count)) == "wwws"
    assert forms(fit(some, max_tokens=110, count=count)) == "wlll"
    assert forms(fit(some, max_tokens=44, count=count)) == "ssss"
    assert forms(fit(some, max_tokens=14, count=count)) == "slll"
    assert forms(fit(some, max_tokens=4, count=count)) == "llll"
    assert forms(fit(some, max_tokens=3, count=count)) == "lll"


def test_the_first_hit_does_not_hide_the_others() -> None:
    """A page that shows one hit and hides nine is no page."""
    some = [item(95, 30), *[item(5, 3) for _ in range(9)]]
    assert len(fit(some, max_tokens=100, count=count)) == 10


@given(items, st.integers(1, 300))
def test_the_budget_is_never_exceeded_and_each_form_costs_what_it_says(
    some: list[Chunk], max_tokens: int
) -> None:
    fitted = fit(some, max_tokens=max_tokens, count=count)
    assert sum(one.tokens for one in fitted) <= max_tokens
    for chunk, one in zip(some, fitted, strict=False):
        text = {Form.WHOLE: chunk.text, Form.SNIPPET: cut(chunk).text, Form.LOCATION: ""}[one.form]
        assert one.tokens == count(format_header(chunk)) + count(text)


@given(items, st.integers(1, 300))
def test_a_page_is_empty_only_if_not_even_the_first_location_fits(
    some: list[Chunk], max_tokens: int
) -> None:
    fitted = fit(some, max_tokens=max_tokens, count=count)
    assert bool(fitted) == bool(some and count(format_header(some[0])) <= max_tokens)


@given(items, st.integers(1, 300))
def test_what_ends_a_page_is_only_that_the_next_location_does_not_fit(
    some: list[Chunk], max_tokens: int
) -> None:
    fitted = fit(some, max_tokens=max_tokens, count=count)
    if len(fitted) < len(some):
        locations = [count(format_header(chunk)) for chunk in some[: len(fitted) + 1]]
        assert sum(locations) > max_tokens


@given(items, st.integers(1, 300))
def test_no_form_could_be_better_without_hiding_a_hit_that_follows(
    some: list[Chunk], max_tokens: int
) -> None:
    """Each hit has the best form that leaves room for the locations that could be shown anyway."""
    fitted = fit(some, max_tokens=max_tokens, count=count)
    for index, one in enumerate(fitted):
        if one.form is Form.WHOLE:
            continue
        used = sum(other.tokens for other in fitted[:index])
        after = sum(count(format_header(chunk)) for chunk in some[index + 1 : len(fitted)])
        chunk = some[index]
        better = count(format_header(chunk)) + (
            count(chunk.text) if one.form is Form.SNIPPET else count(cut(chunk).text)
        )
        assert used + better + after > max_tokens
