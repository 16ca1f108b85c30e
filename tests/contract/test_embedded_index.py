"""The folder that SQLite's retrievers derive from a catalog: it may be behind, damaged or gone,
and no answer changes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import unspool
from support import assert_no_orphans, contents, doc, name, open_corpus, paths
from unspool.catalog import feed
from unspool.index import follower
from unspool.index.embedded import checksums


@pytest.fixture
def database(catalog_file: Path) -> Path:
    return catalog_file


# Reopening, and what happens to the derived folder


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus with absorbed, replaced and removed chunks; tests work on copies of it."""
    folder = tmp_path_factory.mktemp("template")
    with open_corpus(folder / "catalog.db") as opened:
        opened.put(
            *(
                doc(f"{n}.md", f"The walrus {name(n)} lives here.", metadata={"n": n})
                for n in range(40)
            )
        )
        opened.refresh()
        opened.put(doc("3.md", "Replaced by a penguin."))
        opened.forget(project="notes", path="4.md")
        opened.refresh()
    return folder


@pytest.fixture
def filled(template: Path, database: Path) -> Path:
    shutil.copytree(template, database.parent, dirs_exist_ok=True)
    return database.with_name("catalog.db.derived")


def check(database: Path) -> None:
    """Every search on a copy of the template is right, and nothing is left over."""
    with open_corpus(database) as again:
        assert len(again.search("walrus", alpha=0, limit=100).hits) == 38
        assert len(again.search("walrus", alpha=1, limit=100).hits) == 39
        assert paths(again.search(name(39), alpha=0)) == ["39.md"]
        assert paths(again.search(f"walrus {name(17)}", where={"metadata.n": 17})) == ["17.md"]
        assert again.nearest(again.embed("Replaced by a penguin."), k=1)[0].chunk.path == "3.md"
        assert paths(again.search(name(4), alpha=0)) == []
        again.refresh()
    assert_no_orphans(database)


@pytest.mark.usefixtures("filled")
def test_what_was_stored_is_found_after_reopening(database: Path) -> None:
    check(database)


def test_a_deleted_derived_folder_is_made_again(filled: Path, database: Path) -> None:
    shutil.rmtree(filled)
    check(database)
    for half in ("words", "vectors-1"):
        shutil.rmtree(next(filled.glob("p*")) / half)
        check(database)


FILES = [
    "CACHEDIR.TAG", "p1/words/state.json", "p1/words/0-keys.u64", "p1/words/0-starts.i64", "p1/words/0-rows.u32", "p1/words/0-weights.f32",
    "p1/words/0-ids.i64", "p1/words/0-documents.i64", "p1/words/0-dead-1.u8", "p1/vectors-1/state.json", "p1/vectors-1/vectors-0.f32",
    "p1/vectors-1/codes-0.u64", "p1/vectors-1/ids-0.i64", "p1/vectors-1/documents-0.i64", "p1/vectors-1/dead-0-1.u8",
]  # fmt: skip


def test_the_files_of_the_derived_folder_are_those_that_the_tests_damage(filled: Path) -> None:
    found = {file.relative_to(filled).as_posix() for file in filled.rglob("*") if file.is_file()}
    assert set(FILES) <= found
    assert found - set(FILES) <= {
        "p1/words.lock",
        "p1/vectors-1.lock",
        *(name.replace("/0-", "/1-") for name in FILES),
    }


def hurt(file: Path, damage: str) -> None:
    """Damage a file in one of the ways that disks, copies and people do."""
    content = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    elif damage == "folder":
        file.unlink()
        file.mkdir()
    elif damage == "flipped":
        content[len(content) // 2] ^= 4
        file.write_bytes(content)
    else:
        changed = {
            "empty": b"",
            "truncated": content[: len(content) // 2],
            "garbage": bytes((octet * 7 + 13) % 256 for octet in content),
        }
        file.write_bytes(changed[damage])


@pytest.mark.parametrize(
    "damage", ["missing", "empty", "truncated", "garbage", "flipped", "folder"]
)
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_of_the_derived_folder_changes_no_result(
    filled: Path, database: Path, file: str, damage: str
) -> None:
    """The folder is derived: whatever happens to it while nobody has it open, the next search is
    right.
    """
    hurt(filled / file, damage)
    check(database)


@pytest.mark.parametrize(
    "file", ["p1/words/0-rows.u32", "p1/vectors-1/codes-0.u64", "p1/vectors-1/state.json"]
)
def test_a_search_that_finds_damage_says_so_once_and_rebuilds(
    filled: Path, database: Path, file: str
) -> None:
    hurt(filled / file, "flipped")
    with open_corpus(database) as corpus:
        page = corpus.search("walrus", limit=100)
        assert len(page.hits) == 39
        assert any("was damaged" in warning for warning in page.warnings)
        assert not corpus.search("walrus").warnings
    with open_corpus(database) as corpus:
        assert not corpus.search("walrus").warnings
        assert corpus.refresh() == []


@pytest.mark.parametrize("half", ["words", "vectors-1"])
def test_damage_in_a_large_file_is_found_when_it_is_first_read(
    filled: Path, database: Path, monkeypatch: pytest.MonkeyPatch, half: str
) -> None:
    monkeypatch.setattr(checksums, "EAGER_BYTES", 0)  # as if every file were larger
    with open_corpus(database) as corpus:
        expected = [(hit.chunk.path, hit.score) for hit in corpus.search("walrus", limit=100).hits]
    hurt(
        filled / "p1" / half / ("0-weights.f32" if half == "words" else "vectors-0.f32"), "flipped"
    )
    with open_corpus(database) as corpus:
        page = corpus.search("walrus", limit=100)
        assert [(hit.chunk.path, hit.score) for hit in page.hits] == expected
        assert any("was damaged" in warning for warning in page.warnings)


def test_repair_reads_every_file_and_says_what_was_damaged(
    filled: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checksums, "EAGER_BYTES", 0)
    hurt(filled / "p1/words/0-weights.f32", "flipped")
    with open_corpus(database) as corpus:
        (repaired,) = corpus.refresh()
        assert "0-weights.f32" in repaired
        assert corpus.refresh() == []
    check(database)


def test_files_of_another_project_are_not_believed(database: Path) -> None:
    with open_corpus(database) as corpus:
        for project in ("one", "two"):
            corpus.put(
                *(doc(f"{n}.md", f"{project} walrus {name(n)}", project=project) for n in range(5))
            )
        corpus.refresh()
    derived = database.with_name("catalog.db.derived")
    for half in ("words", "vectors-1"):
        shutil.rmtree(derived / "p1" / half)
        shutil.copytree(derived / "p2" / half, derived / "p1" / half)
    with open_corpus(database) as corpus:
        for alpha in (0, 1):
            assert all(
                "one" in hit.chunk.text
                for hit in corpus.search("walrus", projects="one", alpha=alpha).hits
            )
            assert len(corpus.search("walrus", projects="one", alpha=alpha).hits) == 5


@pytest.mark.usefixtures("filled")
def test_a_catalog_copied_elsewhere_answers_the_same(database: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / "copy.db"
    target.parent.mkdir()
    shutil.copy(database, target)
    with open_corpus(database) as here, open_corpus(target) as there:
        assert there.nearest(there.embed("penguin"), k=50) == here.nearest(
            here.embed("penguin"), k=50
        )
        there.refresh()
        assert (
            there.search(f"walrus {name(17)}", limit=3).hits[0].chunk
            == here.search(f"walrus {name(17)}", limit=3).hits[0].chunk
        )
        assert set(paths(there.search("walrus", limit=100))) == set(
            paths(here.search("walrus", limit=100))
        )
    assert_no_orphans(target)


def test_a_derived_folder_of_another_catalog_is_not_believed(
    filled: Path, database: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    with open_corpus(other) as opened:
        opened.put(*(doc(f"o{n}.md", f"Another beast {name(n)}.") for n in range(60)))
        opened.refresh()
    shutil.rmtree(filled)
    shutil.copytree(other.with_name("other.db.derived"), filled)
    check(database)


def backed_up(database: Path) -> None:
    """A corpus whose catalog is restored from a backup while the derived folder stays ahead of
    it.
    """
    with open_corpus(database) as opened:
        opened.put(doc("old.md", "The old walrus."))
        opened.refresh()
    shutil.copy(database, database.with_name("backup.db"))
    with open_corpus(database) as opened:
        for n in range(4):
            opened.put(doc(f"lost{n}.md", f"A lost walrus {name(n)}."))
        opened.put(doc("old.md", "The old walrus was rewritten."))
        opened.refresh()
    for file in database.parent.glob("catalog.db-*"):
        file.unlink()
    shutil.copy(database.with_name("backup.db"), database)


def test_a_catalog_restored_from_a_backup_answers_from_the_backup(database: Path) -> None:
    backed_up(database)
    with open_corpus(database) as opened:
        assert [hit.chunk.text for hit in opened.search("walrus", limit=100).hits] == [
            "The old walrus."
        ]
        opened.refresh()
    assert_no_orphans(database)


@pytest.mark.parametrize("writes", [1, 5, 8])
def test_what_is_written_after_a_backup_was_restored_is_found(database: Path, writes: int) -> None:
    """The sequence numbers of the restored catalog overtake those that the folder has absorbed
    from the lost future.
    """
    backed_up(database)
    with open_corpus(database) as opened:
        for n in range(writes):
            opened.put(doc(f"new{n}.md", f"A new walrus {name(n)}."))
        expected = {"old.md", *(f"new{n}.md" for n in range(writes))}
        assert set(paths(opened.search("walrus", limit=100))) == expected
        opened.refresh()
        assert set(paths(opened.search("walrus", limit=100))) == expected
    assert_no_orphans(database)


# The tail


def absorbed_chunks(database: Path) -> int:
    found = contents(database)
    return sum(map(len, found.vectors.values()))


def test_what_is_put_is_findable_at_once_without_being_absorbed(
    corpus: unspool.Corpus, database: Path
) -> None:
    corpus.put(doc("a.md", "An old walrus."))
    corpus.refresh()
    corpus.put(doc("b.md", "A new penguin."))
    for alpha in (0, 1, None):
        assert paths(corpus.search("penguin", alpha=alpha))[0] == "b.md"
    assert absorbed_chunks(database) == 1
    assert corpus.status()[0].waiting == 1
    corpus.refresh()
    assert absorbed_chunks(database) == 2
    assert corpus.status()[0].waiting == 0


def test_the_order_does_not_depend_on_what_is_absorbed(corpus: unspool.Corpus) -> None:
    """The tail is scored by the same formula as the index, with the statistics of both together."""
    filler = "some other words that make it longer"
    corpus.put(
        doc("none.md", filler),
        doc("one.md", f"penguin {filler}"),
        doc("two.md", f"penguin zebra {filler}"),
    )
    corpus.refresh()
    corpus.put(
        doc("three.md", f"penguin zebra giraffe {filler}"), doc("long.md", f"giraffe {filler * 9}")
    )
    words = [hit.chunk.path for hit in corpus.search("penguin zebra giraffe", alpha=0).hits]
    meaning = [(hit.chunk.path, hit.score) for hit in corpus.nearest(corpus.embed("penguin"), k=10)]
    assert words[:2] == ["three.md", "two.md"]
    corpus.refresh()
    assert [hit.chunk.path for hit in corpus.search("penguin zebra giraffe", alpha=0).hits] == words
    assert [
        (hit.chunk.path, hit.score) for hit in corpus.nearest(corpus.embed("penguin"), k=10)
    ] == meaning


@pytest.mark.parametrize("limit", [0, 3, 256])
def test_any_size_of_tail_gives_the_same_documents(
    database: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(follower, "TAIL_LIMIT", limit)
    with open_corpus(database) as opened:
        for n in range(10):
            opened.put(doc(f"{n % 7}.md", f"walrus {name(n)}", metadata={"n": n}))
            if n % 4 == 3:
                opened.forget(project="notes", path=f"{n % 7}.md")
            opened.search("walrus")
        assert set(paths(opened.search("walrus", limit=50))) == {
            "1.md",
            "2.md",
            "4.md",
            "5.md",
            "6.md",
        }
        assert set(paths(opened.search("walrus", where={"metadata.n": {"ge": 8}}, limit=50))) == {
            "1.md",
            "2.md",
        }
        opened.refresh()
    assert_no_orphans(database)


def test_a_slower_thread_keeps_the_tail_that_contains_newer_documents(tmp_path: Path) -> None:
    with open_corpus(tmp_path / "catalog.db") as corpus:
        corpus.put(doc("a.md", "walrus"))
        catalog, words = corpus._resources.catalog, corpus._resources.session.indexes.words
        project = corpus._access.resolve_one("notes", "search").id
        with catalog.read() as connection:
            assert feed.read_state(connection, project).head.seq == 1  # a slower thread begins
            corpus.put(doc("b.md", "another walrus"))
            assert len(corpus.search("walrus", alpha=0).hits) == 2
            words.follower._attach_tail(connection, project, None, follower.TAIL_LIMIT)
        tail = words.follower._tails.get(project)
        assert {row.path for row in tail.rows} == {"a.md", "b.md"}
