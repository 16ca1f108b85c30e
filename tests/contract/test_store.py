"""A corpus from outside, on every engine: what goes in comes out, only that, and only where it
was put.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

import unspool
from support import (
    Place,
    Places,
    address_of,
    assert_no_orphans,
    contents,
    doc,
    name,
    open_corpus,
    paths,
    write,
)
from unspool.errors import DimensionError, InputError, NotFoundError, UnspoolError

MARKDOWN = (
    "# Garden\n\nTomatoes want sun.\n\n## Water\n\nWater them in the morning.\n\n## Harvest\n\n"
    "Pick the ripe ones in August.\n"
)


def long_text(sections: int, word: str = "walrus") -> str:
    return "\n".join(
        f"# Section {n}\n\n"
        + f"The {word} number {n} eats fish near the coast of island {n}. " * 30
        for n in range(sections)
    )


# An empty corpus, and putting


def test_an_empty_corpus_answers_with_an_empty_page_and_a_note(corpus: unspool.Corpus) -> None:
    page = corpus.search("anything")
    assert (page.hits, page.tokens) == ((), 0)
    assert page.notes
    assert (corpus.count(), corpus.projects(), corpus.documents(), corpus.status()) == (
        0,
        [],
        [],
        [],
    )
    assert corpus.nearest(corpus.embed("anything")) == []


def test_what_is_put_is_found_with_its_place(corpus: unspool.Corpus) -> None:
    report = corpus.put(
        doc(
            "garden.md",
            MARKDOWN,
            title="My garden",
            metadata={"author": "ann"},
            modified=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        )
    )
    assert (report.added, report.updated, report.failed) == (1, 0, 0)
    hit = corpus.search("when to water tomatoes").hits[0]
    assert hit.chunk.project == "notes"
    assert hit.chunk.path == "garden.md"
    assert hit.chunk.text == MARKDOWN[hit.chunk.start : hit.chunk.end]
    assert MARKDOWN.split("\n")[hit.chunk.lines.first - 1] == hit.chunk.text.split("\n")[0]
    assert (hit.chunk.title, hit.chunk.metadata["author"], hit.chunk.language, hit.chunk.kind) == (
        "My garden",
        "ann",
        "markdown",
        "docs",
    )
    assert hit.chunk.modified == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_put_twice_is_put_once(corpus: unspool.Corpus, database: Place) -> None:
    first = corpus.put(doc("a.md", long_text(5)))
    again = corpus.put(doc("a.md", long_text(5)))
    assert (first.added, again.added, again.updated, again.embedded) == (1, 0, 1, 0)
    assert corpus.count() == first.chunks == len(assert_no_orphans(database).chunks)
    found = corpus.search("walrus", limit=1000)
    assert len(found.hits) == len({hit.chunk.id for hit in found.hits}) == first.chunks


@pytest.mark.parametrize("absorbed", [True, False])
def test_a_shrunk_document_leaves_no_orphan(
    corpus: unspool.Corpus, database: Place, absorbed: bool
) -> None:
    corpus.put(doc("a.md", long_text(8)), doc("b.md", "Something about penguins."))
    if absorbed:
        corpus.refresh()
    corpus.put(doc("a.md", long_text(2)))
    assert not any(
        "number 5" in hit.chunk.text
        for hit in corpus.search("walrus number 5 island", limit=100).hits
    )
    assert_no_orphans(database)
    corpus.put(doc("a.md", " \n"))
    assert paths(corpus.search("walrus", limit=100)) in ([], ["b.md"])
    assert {row[1] for row in assert_no_orphans(database).chunks.values()} == {"b.md"}


def test_equal_texts_in_one_document_and_in_many_are_all_kept_and_embedded_once(
    corpus: unspool.Corpus, database: Place
) -> None:
    text = "The same paragraph about walruses. " * 40
    report = corpus.put(*(doc(f"{n}.txt", f"{text}\n\n{text}\n\n{text}") for n in range(3)))
    assert report.chunks > 3
    assert report.embedded < report.chunks
    assert len(assert_no_orphans(database).chunks) == report.chunks
    hits = corpus.search("walruses", limit=100).hits
    assert len({hit.chunk.text for hit in hits}) == len(hits), "the same text is one hit"
    assert sum(1 + len(hit.copies) for hit in hits) == report.chunks


def test_putting_is_refused_without_documents_with_two_projects_or_a_path_twice(
    corpus: unspool.Corpus,
) -> None:
    for documents in ([], [doc("a", "x", "p"), doc("a", "x", "q")], [doc("a", "x"), doc("a", "y")]):
        with pytest.raises(InputError):
            corpus.put(*documents)
    assert corpus.projects() == []


def test_five_thousand_documents_in_batches_are_all_there_and_the_right_ones_come_first(
    corpus: unspool.Corpus, database: Place
) -> None:
    for start in range(0, 5000, 1250):
        corpus.put(
            *(
                doc(f"d/{n}.txt", f"Record {n} speaks of subject {name(n)} and of walruses.")
                for n in range(start, start + 1250)
            )
        )
    assert corpus.count() == 5000
    for n in (0, 1249, 1250, 4999):
        assert paths(corpus.search(name(n), alpha=0))[0] == f"d/{n}.txt"
    assert len(corpus.search("walruses", limit=1000).hits) == 1000
    assert len(assert_no_orphans(database).chunks) == 5000


# Folders


def test_indexing_again_changes_nothing_and_a_removed_file_goes(
    corpus: unspool.Corpus, database: Place, tmp_path: Path
) -> None:
    tree = write(
        tmp_path / "tree",
        {
            "a.py": "def alpha():\n    return 1\n",
            "b.md": MARKDOWN,
            "sub/c.py": "def gamma():\n    return 3\n",
        },
    )
    first = corpus.index(tree)
    again = corpus.index(tree)
    assert (first.added, again.added, again.unchanged, again.chunks, again.embedded) == (
        3,
        0,
        3,
        0,
        0,
    )
    (tree / "b.md").unlink()
    (tree / "a.py").write_text("def alpha():\n    return 2\n")
    report = corpus.index(tree)
    assert (report.added, report.updated, report.unchanged, report.removed) == (0, 1, 1, 1)
    assert "b.md" not in paths(corpus.search("water the tomatoes in the morning", limit=100))
    assert_no_orphans(database)
    shutil.rmtree(tree / "sub")
    assert corpus.index(tree).removed == 1
    assert {row[1] for row in assert_no_orphans(database).chunks.values()} == {"a.py"}


def test_a_touched_file_costs_nothing_and_keeps_its_new_time(
    corpus: unspool.Corpus, tmp_path: Path
) -> None:
    tree = write(tmp_path / "tree", {"a.py": "def alpha():\n    return 1\n"})
    corpus.index(tree)
    os.utime(tree / "a.py", (1_700_000_000, 1_700_000_000))
    report = corpus.index(tree)
    assert (report.updated, report.unchanged, report.chunks, report.embedded) == (0, 1, 0, 0)
    assert corpus.documents()[0].modified == datetime.fromtimestamp(1_700_000_000, UTC)
    assert corpus.documents()[0].status is unspool.Status.INDEXED


def test_a_filter_by_time_sees_a_file_that_was_touched_since_the_filter_was_last_used(
    corpus: unspool.Corpus, tmp_path: Path
) -> None:
    tree = write(tmp_path / "tree", {"a.py": "def alpha():\n    return 1\n"})
    old, where = datetime(2020, 1, 1, tzinfo=UTC).timestamp(), {"modified": {"lt": "2021-01-01"}}
    corpus.index(tree)
    assert paths(corpus.search("alpha", where=where)) == []
    os.utime(tree / "a.py", (old, old))
    corpus.index(tree)
    assert paths(corpus.search("alpha", where=where)) == ["a.py"]


def test_a_renamed_file_costs_no_embedding(
    corpus: unspool.Corpus, database: Place, tmp_path: Path
) -> None:
    tree = write(tmp_path / "tree", {"a.md": long_text(4), "b.py": "def beta():\n    return 2\n"})
    corpus.index(tree)
    (tree / "a.md").rename(tree / "moved.md")
    report = corpus.index(tree)
    assert (report.added, report.removed, report.embedded) == (1, 1, 0)
    assert paths(corpus.search("walrus", limit=50))[0] == "moved.md"
    assert_no_orphans(database)


def test_a_second_clone_of_a_tree_embeds_nothing(
    corpus: unspool.Corpus, database: Place, tmp_path: Path
) -> None:
    tree = write(
        tmp_path / "one" / "tree", {"a.md": long_text(4), "b.py": "def beta():\n    return 2\n"}
    )
    first = corpus.index(tree)
    shutil.copytree(tree, tmp_path / "two" / "tree")
    second = corpus.index(tmp_path / "two" / "tree")
    assert (second.project != first.project, second.added, second.chunks, second.embedded) == (
        True,
        2,
        first.chunks,
        0,
    )
    assert_no_orphans(database)


def test_text_that_was_put_survives_an_indexing_run_over_its_project(
    corpus: unspool.Corpus, tmp_path: Path
) -> None:
    tree = write(tmp_path / "tree", {"a.py": "def alpha():\n    return 1\n"})
    corpus.index(tree, project="notes")
    corpus.put(doc("memo.md", "Remember the walrus."))
    corpus.index(tree, project="notes")
    assert paths(corpus.search("walrus"))[0] == "memo.md"


@pytest.mark.parametrize(
    "parent", ["a,b", "*", " a ", "b" * 179 + " ", "c\x1f\x7fd", "p" * 200, "plain"]
)
@pytest.mark.parametrize("own", ["x", "y, z", "n" * 149 + " m"])
def test_a_folder_that_is_called_as_another_gets_a_name_that_can_be_used(
    corpus: unspool.Corpus, tmp_path: Path, parent: str, own: str
) -> None:
    one, other, third = (
        write(tmp_path / above / own, {"a.md": "the walrus"})
        for above in ("first", parent, f"again/{parent}")
    )
    projects = [corpus.index(folder).project for folder in (one, other, third)]
    assert len(set(projects)) == 3
    assert projects[0].startswith(own[:1]) and projects[0] == projects[0].strip()
    if (parent, own) == ("plain", "x"):
        assert projects == ["x", "plain-x", "x-2"]
    if (parent, own) == ("a,b", "x"):
        assert projects == ["x", "ab-x", "x-2"]


def test_indexing_what_does_not_exist_or_is_empty_is_answered_clearly(
    corpus: unspool.Corpus, tmp_path: Path
) -> None:
    (tmp_path / "round").symlink_to("round")
    for missing in ("nowhere", "x" * 300, "round"):
        with pytest.raises(NotFoundError, match=f"no such path: .*{missing}; give a folder"):
            corpus.index(tmp_path / missing)
    with pytest.raises(NotFoundError, match="no such path: ~nobody-of-that-name/x"):
        corpus.index("~nobody-of-that-name/x")
    with pytest.raises(InputError):
        corpus.index("")
    (tmp_path / "empty").mkdir()
    report = corpus.index(tmp_path / "empty")
    assert (report.added, report.failed, report.chunks) == (0, 0, 0)


def test_a_changed_outer_heading_is_found_by_its_new_word_and_not_by_the_old(
    corpus: unspool.Corpus,
) -> None:
    """Only three headings are embedded, but all are words: the chunk's vector stays while its
    words change.
    """

    def nested(top: str) -> str:
        return (
            f"# {top}\n\n## Two\n\n### Three\n\n#### Four\n\n##### Five\n\nThe body stays as it "
            f"is, whatever stands above it, and is long enough. "
        ) * 1

    corpus.put(doc("a.md", nested("Aardvark") + "\n\n" + "filler words here " * 400))
    corpus.refresh()
    corpus.put(doc("a.md", nested("Zebra") + "\n\n" + "filler words here " * 400))
    for _ in range(2):
        assert len(corpus.search("zebra", alpha=0, limit=100).hits) == corpus.count()
        assert corpus.search("aardvark", alpha=0, limit=100).hits == ()
        corpus.refresh()


# Searching


ZOO = (
    doc("walrus.md", long_text(6)),
    doc("penguin.md", long_text(6, "penguin")),
    doc("cars.md", "An automobile drives quickly on the road. " * 10),
    doc("config.py", "def parse_config(text):\n    return text.split()\n"),
    doc(
        "tests/test_config.py",
        "from config import parse_config\n\n\ndef test_it():\n    assert parse_config('a b')\n",
    ),
)


@pytest.fixture(scope="module")
def zoo(module_places: Places) -> Iterator[unspool.Corpus]:
    with open_corpus(module_places.new()) as opened:
        opened.put(*ZOO)
        yield opened


def test_words_only_finds_only_what_holds_a_word(zoo: unspool.Corpus) -> None:
    page = zoo.search("penguin", alpha=0, limit=100)
    assert paths(page) == ["penguin.md"]
    assert {hit.origin for hit in page.hits} == {unspool.Origin.KEYWORD}
    assert zoo.search("zzzzqqq", alpha=0).hits == ()
    for query in ("?", "the", "..."):  # no word at all
        assert zoo.search(query, alpha=0, projects="*").hits == ()


def test_meaning_only_finds_what_shares_no_word(zoo: unspool.Corpus) -> None:
    page = zoo.search("a fast car", alpha=1)
    assert paths(page)[0] == "cars.md"
    assert {hit.origin for hit in page.hits} == {unspool.Origin.VECTOR}


def test_unset_both_are_used_and_the_page_says_how_much(zoo: unspool.Corpus) -> None:
    page = zoo.search("where is the config parsed")
    assert 0 < page.alpha < 1
    assert {hit.origin for hit in page.hits} == {unspool.Origin.FUSED}
    assert paths(page)[0] == "config.py"


@pytest.mark.parametrize("spelling", ["parseConfig", "parse_config", "parse config", "ParseConfig"])
def test_every_spelling_of_a_name_finds_its_definition_before_its_test(
    zoo: unspool.Corpus, spelling: str
) -> None:
    found = paths(zoo.search(spelling))
    assert found[0] == "config.py"


def test_hits_are_ranked_and_the_order_is_the_same_every_time(zoo: unspool.Corpus) -> None:
    first = zoo.search("walrus on an island", limit=50)
    assert [hit.rank for hit in first.hits] == list(range(1, len(first.hits) + 1))
    assert [hit.score for hit in first.hits] == sorted(
        (hit.score for hit in first.hits), reverse=True
    )
    assert zoo.search("walrus on an island", limit=50) == first


def test_a_smaller_limit_gives_the_beginning_of_a_larger_one(zoo: unspool.Corpus) -> None:
    ids = [hit.chunk.id for hit in zoo.search("walrus island", limit=100).hits]
    assert len(ids) == zoo.count()
    for limit in (1, 3, 7):
        assert [hit.chunk.id for hit in zoo.search("walrus island", limit=limit).hits] == ids[
            :limit
        ]


def test_a_minimum_score_cuts_the_list_where_it_says(zoo: unspool.Corpus) -> None:
    everything = zoo.search("walrus island", limit=100).hits
    threshold = everything[len(everything) // 2].score
    kept = zoo.search("walrus island", limit=100, min_score=threshold).hits
    assert [hit.chunk.id for hit in kept] == [
        hit.chunk.id for hit in everything if hit.score >= threshold
    ]
    assert zoo.search("walrus island", min_score=1000).hits == ()


@pytest.mark.parametrize("max_tokens", [1, 10, 50, 200, 1000, 100_000])
def test_a_page_never_takes_more_than_its_budget_of_real_tokens(
    zoo: unspool.Corpus, max_tokens: int
) -> None:
    page = zoo.search("walrus island", limit=20, max_tokens=max_tokens)
    assert page.tokens == sum(hit.tokens for hit in page.hits)
    assert page.tokens <= max_tokens or (
        page.warnings and [hit.form for hit in page.hits] == [unspool.Form.LOCATION]
    )
    for hit in page.hits:
        assert zoo.count_tokens(hit.text) <= hit.tokens
    assert [hit.chunk.id for hit in page.hits] == [
        hit.chunk.id for hit in zoo.search("walrus island", limit=20).hits
    ][: len(page.hits)]
    if max_tokens >= 1000:
        assert len(page.hits) > 5
    if any(hit.form is not unspool.Form.WHOLE for hit in page.hits):
        assert page.notes


def test_a_page_sums_up_its_hits(zoo: unspool.Corpus) -> None:
    page = zoo.search("parse config walrus", limit=30)
    assert sum(source.hits for source in page.sources) == len(page.hits)
    assert {source.path for source in page.sources} == set(paths(page))
    assert page.insights.files == len(page.sources)
    assert sum(page.insights.languages.values()) <= len(page.hits)


def test_reasons_are_given_only_on_request_in_one_line(zoo: unspool.Corpus) -> None:
    assert {hit.reason for hit in zoo.search("parse config").hits} == {""}
    reasons = [hit.reason for hit in zoo.search("parse config", explain=True).hits]
    assert all(reason and "\n" not in reason for reason in reasons)


def test_marks_of_a_snippet_lie_on_the_words(zoo: unspool.Corpus) -> None:
    hit = zoo.search("penguin", alpha=0).hits[0]
    assert hit.snippet.marks
    assert {hit.snippet.text[a:b].lower() for a, b in hit.snippet.marks} == {"penguin"}
    assert hit.snippet.text in hit.chunk.text


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0},
        {"limit": -1},
        {"limit": 1001},
        {"alpha": 2},
        {"alpha": -1},
        {"alpha": float("nan")},
        {"max_tokens": -1},
        {"projects": []},
    ],
)
def test_options_out_of_range_are_refused(zoo: unspool.Corpus, options: dict) -> None:
    with pytest.raises(InputError):
        zoo.search("walrus", **options)


@pytest.mark.parametrize("query", ["", "   ", "x " * 50_000])
def test_a_query_that_is_empty_or_a_book_is_refused(zoo: unspool.Corpus, query: str) -> None:
    with pytest.raises(InputError, match="query"):
        zoo.search(query)


@pytest.mark.parametrize(
    "query",
    [
        "the of and",
        "???",
        "…",
        "\u200b",
        "-- ; DROP TABLE chunks",
        '"unbalanced',
        "body:(",
        "AND OR NOT",
        "a^2 ~3 *",
        "\\",
        "😀",
        "東京",
        "%_%",
        "\x00",
        "walrus " * 2000,
    ],
)
def test_any_other_query_is_answered(zoo: unspool.Corpus, query: str) -> None:
    assert len(zoo.search(query, limit=3).hits) == 3


def test_a_query_with_lone_surrogates_is_answered_or_refused_as_input(zoo: unspool.Corpus) -> None:
    """A terminal in another encoding hands them over."""
    with contextlib.suppress(InputError):
        assert zoo.search("walrus \udcff").hits


# Odd names and texts

ODD = [
    'it\'s "quoted".md',
    "'; DROP TABLE documents; --.md",
    "100%_done.md",
    "日本語/ファイル.md",
    "emoji 😀.md",
    "back\\slash.md",
    "new\nline.md",
    "e\u0301.md",
    "é.md",
    "UPPER.md",
    "upper.md",
    " spaces .md",
    "-rf.md",
    "x" * 3000,
]


def test_odd_paths_are_names_like_any_other(corpus: unspool.Corpus, database: Place) -> None:
    corpus.put(*(doc(path, f"walrus number {number}") for number, path in enumerate(ODD)))
    corpus.refresh()
    assert set(paths(corpus.search("walrus", limit=100))) == set(ODD)
    for number, path in enumerate(ODD):
        assert [
            hit.chunk.text for hit in corpus.search("walrus", where={"document": path}).hits
        ] == [f"walrus number {number}"]
        assert corpus.documents(path=path)[0].path == path
        assert corpus.forget(project="notes", path=path) == 1
    assert assert_no_orphans(database).chunks == {}


@pytest.mark.parametrize(
    "value",
    ["it's", '"', "'; DROP TABLE chunks; --", "%", "日本", "😀", "", "a\nb", "null", "true", "1"],
)
def test_odd_metadata_is_compared_exactly(corpus: unspool.Corpus, value: str) -> None:
    corpus.put(
        doc("a.txt", "walrus", metadata={"k'\"": value}),
        doc("b.txt", "walrus", metadata={"k'\"": value + "x", "other": value}),
    )
    assert paths(corpus.search("walrus", where={"metadata.k'\"": value})) == ["a.txt"]
    assert paths(corpus.search("walrus", where={"metadata.k'\"": {"not": value}})) == ["b.txt"]
    assert corpus.documents(path="a.txt")[0].metadata == {"k'\"": value}


@pytest.mark.parametrize(
    "text",
    [
        "nul \x00 walrus", "lone \ud800 walrus", "mark \ufeff walrus", "a" * 200_000 + " walrus", "walrus\r\n\rwalrus\u2028x", "walrus \U0010ffff",
        "\x00walrus\x00", "walrus \udfff\ud800", "walrus \ud83d", "👩‍👩‍👧‍👦 walrus 😀", "walrus \u202e\u0301 \x1b[31m", "walrus \\x00 \\ %s {} \\N",
    ],
)  # fmt: skip
def test_odd_texts_are_stored_and_found(corpus: unspool.Corpus, text: str) -> None:
    corpus.put(doc("a.txt", text))
    hits = corpus.search("walrus", alpha=0).hits
    assert any("walrus" in hit.chunk.text for hit in hits)


def test_characters_of_every_kind_come_back_as_they_were(corpus: unspool.Corpus) -> None:
    text = (
        "walrus 😀 👩‍👩‍👧‍👦 é e\u0301 \U0010ffff \ufffd \u202e \t 東京 \\N \\x41 %s %(a)s {} ' \" ; "
        "-- $$ \x7f \x01"
    )
    corpus.put(doc("a.txt", text, title=text, metadata={"m": text}))
    (hit,) = corpus.search("walrus").hits
    assert (hit.chunk.text, hit.chunk.title, hit.chunk.metadata["m"]) == (text, text, text)
    assert paths(corpus.search("walrus", where={"metadata.m": text})) == ["a.txt"]


def test_five_megabytes_are_one_document_that_is_found_from_end_to_end(
    corpus: unspool.Corpus, database: Place
) -> None:
    parts = [
        "\n".join(f"Line {at} of part {part} is about the same as every other." for at in range(20))
        for part in range(40)
    ]
    marked = {0: name(1), 2400: name(2), 4799: name(3)}
    text = "\n\n".join(f"{parts[at % 40]} {marked.get(at, '')}" for at in range(4800))
    assert len(text) > 5_000_000
    report = corpus.put(doc("long.txt", text))
    assert (report.added, report.failed) == (1, 0)
    for part, word in marked.items():
        hit = corpus.search(word, alpha=0, limit=1).hits[0]
        assert hit.chunk.lines.first <= part * 21 + 20 <= hit.chunk.lines.last
        assert text[hit.chunk.start : hit.chunk.end] == hit.chunk.text
    assert corpus.documents()[0].chunk_count == report.chunks == corpus.count()
    corpus.put(doc("long.txt", "A short walrus."))
    assert [hit.chunk.text for hit in corpus.search("walrus", limit=100).hits] == [
        "A short walrus."
    ]
    assert len(assert_no_orphans(database).chunks) == 1


@pytest.mark.parametrize("field", ["path", "title", "metadata value", "metadata key", "project"])
def test_lone_surrogates_in_names_are_stored_or_refused_as_input(
    corpus: unspool.Corpus, field: str
) -> None:
    odd = "x\ud800y"
    try:
        document = unspool.Document(
            project=odd if field == "project" else "notes",
            path=odd if field == "path" else "a.txt",
            text="walrus",
            title=odd if field == "title" else "",
            metadata={"metadata value": {"k": odd}, "metadata key": {odd: "v"}}.get(field, {}),
        )
        corpus.put(document)
    except InputError:
        return
    assert len(corpus.search("walrus").hits) == 1


def test_a_file_whose_name_is_not_utf8_is_indexed(corpus: unspool.Corpus, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    Path(os.fsdecode(os.fsencode(tree) + b"/caf\xe9.py")).write_text(
        "def walrus():\n    return 1\n"
    )
    assert corpus.index(tree).added == 1
    assert len(corpus.search("walrus").hits) == 1
    assert corpus.index(tree).unchanged == 1


# Projects


@pytest.fixture
def two(corpus: unspool.Corpus) -> unspool.Corpus:
    corpus.put(
        doc("a.md", "The secret walrus of project one.", "one"),
        doc("same.md", "Shared words about walruses.", "one"),
    )
    corpus.put(
        doc("b.md", "The secret walrus of project two.", "two"),
        doc("same.md", "Shared words about walruses.", "two"),
    )
    return corpus


@pytest.mark.parametrize("absorbed", [True, False])
def test_nothing_crosses_from_one_project_to_another(two: unspool.Corpus, absorbed: bool) -> None:
    if absorbed:
        two.refresh()
    for project in ("one", "two"):
        for alpha in (0, 1, None):
            page = two.search("secret walrus", projects=[project], alpha=alpha, limit=100)
            assert {hit.chunk.project for hit in page.hits} == {project}
            assert len(page.hits) == 2
        assert {
            hit.chunk.project for hit in two.nearest(two.embed("walrus"), projects=project, k=100)
        } == {project}
        assert {hit.chunk.project for hit in two.related("same.md", project=project).hits} == {
            project
        }
        assert {record.project for record in two.documents(project=project)} == {project}
        assert two.count(project=project) == 2


def test_a_filter_cannot_reach_into_another_project(two: unspool.Corpus) -> None:
    assert two.search("walrus", projects=["one"], where={"project": "two"}).hits == ()
    assert (
        two.search(
            "walrus", projects=["one"], where={"any": [{"project": "two"}, {"document": "b.md"}]}
        ).hits
        == ()
    )


def test_naming_several_projects_merges_them(two: unspool.Corpus) -> None:
    for names in (["one", "two"], ["two", "one", "two"], ["*"], "*"):
        page = two.search("secret walrus", projects=names, limit=100)
        assert {hit.chunk.project for hit in page.hits} == {"one", "two"}
        assert len({hit.chunk.id for hit in page.hits}) == len(page.hits) == 4
    assert {
        hit.chunk.project for hit in two.nearest(two.embed("walrus"), projects=["one", "two"], k=4)
    } == {"one", "two"}


def test_with_several_projects_one_must_be_named(two: unspool.Corpus) -> None:
    for call in (
        lambda: two.search("walrus"),
        lambda: two.nearest(two.embed("walrus")),
        lambda: two.related("same.md"),
    ):
        with pytest.raises(InputError, match="one, two"):
            call()
    with pytest.raises(NotFoundError, match="one, two"):
        two.search("walrus", projects=["three"])


def test_a_forgotten_document_is_gone_and_the_other_project_is_not_touched(
    two: unspool.Corpus, database: Place
) -> None:
    assert two.forget(project="one", path="same.md") == 1
    assert paths(two.search("shared words", projects=["one"])) == ["a.md"]
    assert "same.md" in paths(two.search("shared words", projects=["two"]))
    with pytest.raises(NotFoundError):
        two.forget(project="one", path="same.md")
    assert_no_orphans(database)


def test_a_forgotten_project_leaves_nothing_behind_not_even_its_embeddings(
    two: unspool.Corpus, database: Place
) -> None:
    two.refresh()
    assert two.forget(project="one") == 2
    assert two.projects() == ["two"]
    assert len(two.search("walrus").hits) == 2
    with pytest.raises(NotFoundError):
        two.search("walrus", projects=["one"])
    assert two.forget(project="two") == 2
    left = contents(database)
    assert (left.chunks, left.documents, left.embeddings) == ({}, {}, 0)
    assert not any(left.words.values()) and not any(left.vectors.values())
    assert (
        not isinstance(database, Path)
        or list(database.with_name("catalog.db.derived").glob("p*")) == []
    )
    two.put(doc("new.md", "A new walrus.", "one"))
    assert paths(two.search("walrus")) == ["new.md"]


# Related and nearest


def test_related_is_like_the_chunk_at_the_line_and_never_itself(zoo: unspool.Corpus) -> None:
    page = zoo.related("walrus.md", 3, limit=3)
    assert len(page.hits) == 3
    assert page.hits[0].chunk.path == "walrus.md"
    first = zoo.search("walrus", where={"document": "walrus.md"}, limit=50).hits
    at_line = min(
        (hit.chunk.index, hit.chunk.id)
        for hit in first
        if hit.chunk.lines.first <= 3 <= hit.chunk.lines.last
    )[1]
    assert at_line not in [hit.chunk.id for hit in zoo.related("walrus.md", 3, limit=100).hits]
    assert len(zoo.related("walrus.md", 3, limit=100).hits) == zoo.count() - 1
    assert zoo.related("walrus.md", 10**9).hits


def test_related_refuses_what_does_not_exist(zoo: unspool.Corpus) -> None:
    with pytest.raises(NotFoundError):
        zoo.related("nowhere.md")
    for options in ({"line": 0}, {"limit": 0}, {"limit": 5000}):
        with pytest.raises(InputError):
            zoo.related("walrus.md", **options)  # type: ignore[arg-type]


def test_the_nearest_to_a_chunks_own_text_is_that_chunk(zoo: unspool.Corpus) -> None:
    hits = zoo.nearest(zoo.embed("def parse_config(text):\n    return text.split()"), k=2)
    assert hits[0].chunk.path == "config.py"
    assert hits[0].score >= hits[1].score
    scaled, plain = (
        zoo.nearest([factor * number for number in zoo.embed("walrus")], k=5) for factor in (3, 1)
    )
    assert [hit.chunk for hit in scaled] == [hit.chunk for hit in plain]
    assert [hit.score for hit in scaled] == pytest.approx([hit.score for hit in plain], abs=1e-6)


@pytest.mark.parametrize("vector", [[], [1.0], [1.0] * 255, [1.0] * 257, [[1.0] * 256]])
def test_a_vector_of_the_wrong_length_is_refused_with_the_right_one(
    zoo: unspool.Corpus, vector: list
) -> None:
    with pytest.raises(DimensionError, match="256"):
        zoo.nearest(vector)


@pytest.mark.parametrize(
    "vector",
    [[0.0] * 256, [float("nan")] * 256, [float("inf")] * 256, [1.0] * 255 + [float("nan")]],
)
def test_a_vector_without_a_direction_is_refused(zoo: unspool.Corpus, vector: list) -> None:
    with pytest.raises(InputError):
        zoo.nearest(vector)


def test_a_vector_that_is_not_made_of_numbers_is_refused(zoo: unspool.Corpus) -> None:
    with pytest.raises(InputError):
        zoo.nearest(["one"] * 256)  # type: ignore[list-item]
    for k in (0, 10_001):
        with pytest.raises(InputError):
            zoo.nearest([1.0] * 256, k=k)


# At once


def test_another_corpus_object_sees_what_was_put_and_removed_at_once(
    corpus: unspool.Corpus, database: Place
) -> None:
    corpus.put(doc("a.md", "An old walrus."))
    corpus.refresh()
    with open_corpus(database) as other:
        assert paths(other.search("walrus")) == ["a.md"]
        corpus.put(doc("b.md", "A new penguin."))
        assert paths(other.search("penguin", alpha=0)) == ["b.md"]
        corpus.put(doc("b.md", "It became a zebra."))
        assert paths(other.search("penguin", alpha=0)) == []
        assert paths(other.search("zebra", alpha=0)) == ["b.md"]
        corpus.forget(project="notes", path="a.md")
        assert paths(other.search("walrus")) == ["b.md"]
        corpus.refresh()
        assert paths(other.search("walrus")) == ["b.md"]
        other.put(doc("c.md", "A walrus again."))
        assert "c.md" in paths(corpus.search("walrus"))


def test_another_process_sees_what_was_put_at_once(
    corpus: unspool.Corpus, database: Place, tmp_path: Path
) -> None:
    corpus.put(doc("a.md", "An old walrus."))
    corpus.refresh()
    corpus.put(doc("b.md", "A new penguin."))
    script = (
        "import sys, unspool; print([hit.chunk.path for hit in "
        "unspool.open(sys.argv[1]).search('penguin', alpha=0).hits])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, address_of(database)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout == "['b.md']\n"


def test_what_was_deleted_is_never_shown(corpus: unspool.Corpus) -> None:
    corpus.put(*(doc(f"{n}.md", f"walrus number {n}") for n in range(30)))
    corpus.refresh()
    for n in range(0, 30, 2):
        corpus.forget(project="notes", path=f"{n}.md")
    odd = {f"{n}.md" for n in range(1, 30, 2)}
    for alpha in (0, 1, None):
        for limit in (3, 15, 100):
            hits = corpus.search("walrus", alpha=alpha, limit=limit).hits
            assert {hit.chunk.path for hit in hits} <= odd
            assert len(hits) == min(limit, 15)
    assert {hit.chunk.path for hit in corpus.nearest(corpus.embed("walrus"), k=15)} == odd
    corpus.put(doc("0.md", "walrus number 0"))
    assert "0.md" in paths(corpus.search("walrus", limit=100))


def test_threads_may_put_and_search_at_once(corpus: unspool.Corpus, database: Place) -> None:
    corpus.put(doc("start.md", "The first walrus."))

    def work(n: int) -> int:
        corpus.put(doc(f"{n}.md", f"walrus {name(n)}"))
        assert paths(corpus.search(name(n), alpha=0)) == [f"{n}.md"]
        return len(corpus.search("walrus", limit=100).hits)

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(work, range(24)))
    assert max(counts) == 25
    assert len(assert_no_orphans(database).chunks) == 25


def test_every_error_on_purpose_is_one_of_ours(corpus: unspool.Corpus) -> None:
    for call in (
        lambda: corpus.search(""),
        lambda: corpus.index("/nowhere/at/all"),
        lambda: corpus.forget(project="none"),
        lambda: corpus.documents(status="odd"),
        lambda: corpus.embed(" "),
        lambda: corpus.related("x"),
    ):
        with pytest.raises(UnspoolError):
            call()
