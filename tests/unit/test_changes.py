"""What an indexing run has to do: every file and every known document ends in exactly one case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspool.catalog.documents import DocumentState
from unspool.domain.documents import DocumentOrigin, Status
from unspool.domain.prepared import SkippedFile
from unspool.domain.reports import Skip
from unspool.indexing.changes import RunPlan, plan_run
from unspool.sources.folders import Found

RECIPE = "1/450/512"
LIVE = frozenset({7})


def found(path: str = "a.py", *, size: int = 10, modified: int = 100) -> Found:
    return Found(path=path, file=f"/x/{path}", size_bytes=size, modified_ns=modified)


def state(
    path: str = "a.py",
    *,
    size: int = 10,
    modified: int | None = 100,
    status: Status = Status.INDEXED,
    recipe: str = RECIPE,
    run: int | None = None,
    origin: DocumentOrigin = DocumentOrigin.FILE,
) -> DocumentState:
    return DocumentState(
        id=abs(hash(path)),
        path=path,
        sha256="s",
        size_bytes=size,
        modified_ns=modified,
        status=status,
        recipe=recipe,
        origin=origin,
        run_id=run,
    )


def case(changes: RunPlan) -> str:
    cases = {
        "new": len(changes.new),
        "look": len(changes.suspect),
        "same": changes.unchanged,
        "busy": changes.busy,
        "gone": len(changes.removed),
        "skip": len(changes.skips),
    }
    assert sum(cases.values()) <= 1
    return next((name for name, size in cases.items() if size), "kept")


@pytest.mark.parametrize(
    ("file", "known", "expected"),
    [
        (found(), None, "new"),
        (found(), state(), "same"),
        (found(size=11), state(), "look"),
        (found(modified=101), state(), "look"),
        (found(modified=99), state(), "look"),
        (found(), state(recipe="0/450/512"), "look"),
        (found(), state(modified=None), "look"),
        (found(), state(status=Status.PENDING), "look"),
        (found(), state(status=Status.STALE), "look"),
        (found(), state(status=Status.FAILED), "look"),
        (found(), state(status=Status.INDEXING, run=7), "busy"),
        (found(size=11), state(status=Status.INDEXING, run=7), "busy"),
        (found(), state(status=Status.INDEXING, run=6), "look"),
        (found(), state(status=Status.INDEXING, run=None), "look"),
        (found(), state(status=Status.INDEXED, run=7), "same"),
        (None, state(), "gone"),
        (None, state(status=Status.FAILED), "gone"),
        (None, state(status=Status.INDEXING, run=6), "gone"),
        (None, state(status=Status.INDEXING, run=7), "kept"),
        (None, state(origin=DocumentOrigin.TEXT), "kept"),
        (found(), state(origin=DocumentOrigin.TEXT), "same"),
        (found(size=11), state(origin=DocumentOrigin.TEXT), "look"),
    ],
)
def test_the_decision_tree(file: Found | None, known: DocumentState | None, expected: str) -> None:
    changes = plan_run(
        [file] if file else [], [known] if known else [], recipe=RECIPE, live_runs=LIVE
    )
    assert case(changes) == expected


@pytest.mark.parametrize(
    ("known", "trusted"),
    [
        (state(modified=1), "s"),
        (state(modified=1, status=Status.STALE), "s"),
        (state(modified=1, status=Status.FAILED), "s"),
        (state(modified=1, status=Status.INDEXING, run=6), "s"),
        (state(modified=1, status=Status.PENDING), ""),
        (state(modified=1, recipe="other"), ""),
        (state(recipe="other"), ""),
    ],
)
def test_a_fingerprint_is_trusted_only_if_the_document_was_once_finished_and_cut_the_same_way(
    known: DocumentState, trusted: str
) -> None:
    changes = plan_run([found()], [known], recipe=RECIPE, live_runs=LIVE)
    assert [work.known_sha for work in changes.suspect] == [trusted]


@pytest.mark.parametrize(
    ("size", "modified", "expected"), [(10, 100, "skip"), (11, 100, "new"), (10, 101, "new")]
)
def test_a_file_that_was_looked_into_and_left_out_is_not_read_again_until_it_changes(
    size: int, modified: int, expected: str
) -> None:
    skip = Skip(path="a.py", reason="binary")
    changes = plan_run(
        [found(size=size, modified=modified)],
        [],
        recipe=RECIPE,
        live_runs=LIVE,
        known_skips=[SkippedFile(skip=skip, size_bytes=10, modified_ns=100)],
    )
    assert case(changes) == expected
    assert changes.skips == ([skip] if expected == "skip" else [])


@pytest.mark.parametrize(
    ("unread", "kept"),
    [
        ([], []),
        (["src"], ["src/a.py", "src/deep/b.py"]),
        (["src/"], ["src/a.py", "src/deep/b.py"]),
        (["src/deep"], ["src/deep/b.py"]),
        (["sr"], []),
        ([""], ["src/a.py", "src/deep/b.py", "srcs.py"]),
    ],
)
def test_what_lies_in_a_folder_that_could_not_be_listed_is_kept(
    unread: list[str], kept: list[str]
) -> None:
    known = {path: state(path) for path in ("src/a.py", "src/deep/b.py", "srcs.py")}
    changes = plan_run([], known.values(), recipe=RECIPE, live_runs=LIVE, unread=unread)
    assert sorted(set(known) - {one.path for one in changes.removed}) == kept


paths = st.sampled_from(
    [f"{folder}{name}.py" for folder in ("", "src/", "src/deep/") for name in "abcd"]
)
files = st.dictionaries(paths, st.tuples(st.integers(0, 2), st.integers(0, 2)))
documents = st.dictionaries(
    paths,
    st.tuples(
        st.integers(0, 2),
        st.one_of(st.none(), st.integers(0, 2)),
        st.sampled_from(Status),
        st.sampled_from([RECIPE, "old"]),
        st.sampled_from([None, 6, 7]),
    ),
)
skips = st.dictionaries(paths, st.tuples(st.integers(0, 2), st.integers(0, 2)))


@given(files, documents, skips, st.lists(st.sampled_from(["", "src", "src/deep"]), max_size=1))
def test_every_file_and_every_document_ends_in_exactly_one_case(
    on_disk: dict, in_catalog: dict, left_out: dict, unread: list[str]
) -> None:
    here = [found(path, size=size, modified=modified) for path, (size, modified) in on_disk.items()]
    known = {
        path: state(path, size=row[0], modified=row[1], status=row[2], recipe=row[3], run=row[4])
        for path, row in in_catalog.items()
    }
    known_skips = [
        SkippedFile(skip=Skip(path=path, reason="binary"), size_bytes=size, modified_ns=modified)
        for path, (size, modified) in left_out.items()
    ]
    changes = plan_run(
        here, known.values(), recipe=RECIPE, live_runs=LIVE, unread=unread, known_skips=known_skips
    )
    named = [
        *(work.found.path for work in changes.new),
        *(work.found.path for work in changes.suspect),
        *(skip.path for skip in changes.skips),
    ]
    removed = {one.path for one in changes.removed}
    assert len(named) == len(set(named))
    assert set(named) <= set(on_disk)
    assert len(named) + changes.unchanged + changes.busy == len(on_disk)
    assert removed <= set(known) - set(on_disk)
    assert all(work.found.path not in known for work in changes.new)
    assert {work.found.path: known[work.found.path] for work in changes.suspect} == changes.known
    assert set(changes.outdated) & set(on_disk) <= set(known)
    if not unread:
        assert removed == {
            path
            for path, row in in_catalog.items()
            if path not in on_disk and not (row[2] is Status.INDEXING and row[4] == 7)
        }
