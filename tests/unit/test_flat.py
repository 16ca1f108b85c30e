"""Flat vector files: whatever is appended, removed and replaced, a search answers like brute
force over what should be there.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unspool.catalog.feed import Position
from unspool.index.embedded import checksums, flat
from unspool.index.embedded.checksums import DamagedError
from unspool.index.embedded.flat import VectorRows, VectorState, VectorView

DIMENSION = 64
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def unit(seed: int, dimension: int = DIMENSION) -> np.ndarray:
    vector = np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def points(ids: list[int], version: int = 0, dimension: int = DIMENSION) -> VectorRows:
    """Each id has its own vector and belongs to document id // 10; another version has another
    vector.
    """
    vectors = np.array(
        [unit(id_ * 1000 + version, dimension) for id_ in ids], dtype=np.float32
    ).reshape(len(ids), dimension)
    return VectorRows(
        ids=np.array(ids, dtype=np.int64),
        documents=np.array([id_ // 10 for id_ in ids], dtype=np.int64),
        vectors=vectors,
    )


class Files:
    """The files under test and, beside them, a dictionary of what should be in them."""

    def __init__(self, folder: Path, dimension: int = DIMENSION) -> None:
        self.folder = folder
        self.state = VectorState(source="c", dimension=dimension)
        self.view = flat.open_view(folder, self.state)
        self.expected: dict[int, np.ndarray] = {}

    def append(self, added: VectorRows, removed: list[int] | None = None) -> None:
        gone = np.array(removed or [], dtype=np.int64)
        self.state = flat.append(
            self.folder,
            self.view,
            added,
            removed=gone,
            position=Position(self.state.position.seq + 1, 7),
        )
        self.view = flat.open_view(self.folder, self.state, self.view)
        for id_ in gone.tolist():
            self.expected.pop(id_, None)
        self.expected.update(zip(added.ids.tolist(), added.vectors, strict=True))

    def reopened(self) -> VectorView:
        state = flat.read_state(self.folder)
        assert state == self.state
        return flat.open_view(self.folder, state)

    def brute_force(self, query: np.ndarray, k: int) -> list[int]:
        scores = {
            id_: round(float(np.dot(vector.astype(np.float64), query.astype(np.float64))), 6)
            for id_, vector in self.expected.items()
        }
        return sorted(scores, key=lambda id_: (-scores[id_], id_))[:k]

    def check(self, view: VectorView, query: np.ndarray, k: int) -> None:
        found = flat.search(view, query, k, None)
        assert found.ids.tolist() == self.brute_force(query, k)
        assert (np.diff(found.scores) <= 0).all()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "vectors")


steps = st.lists(
    st.tuples(
        st.lists(st.integers(0, 30), max_size=6, unique=True),
        st.lists(st.integers(0, 30), max_size=6, unique=True),
    ),
    max_size=12,
)


@quick
@given(steps, st.integers(0, 5), st.integers(1, 40))
def test_appending_replacing_and_removing_in_any_order_equals_a_dictionary(
    changes: list[tuple[list[int], list[int]]], seed: int, k: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = Files(Path(folder) / "vectors")
        for version, (added, removed) in enumerate(changes):
            files.append(points(added, version), removed)
        for view in (files.view, files.reopened() if changes else files.view):
            files.check(view, unit(seed), k)
            asked = np.arange(31, dtype=np.int64)
            scores = flat.score(view, unit(seed), asked)
            assert [id_ for id_ in range(31) if not np.isnan(scores[id_])] == sorted(files.expected)
            rows = flat.find_rows(view, asked)
            assert [int(view.chunk_ids[row]) for row in rows if row >= 0] == sorted(files.expected)


def test_a_filter_lets_only_the_chosen_rows_through(files: Files) -> None:
    files.append(points(list(range(50))))
    files.append(points([3, 4], version=1), removed=[7])
    found = flat.search(files.view, unit(1), 50, files.view.document_ids == 0)
    assert sorted(found.ids.tolist()) == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert (
        flat.search(
            files.view, unit(1), 50, np.zeros(files.state.rows, dtype=np.bool_)
        ).ids.tolist()
        == []
    )


def test_nothing_is_found_in_nothing(files: Files) -> None:
    assert flat.search(files.view, unit(1), 5, None).ids.tolist() == []
    files.append(points([1, 2]))
    assert flat.search(files.view, unit(1), 0, None).ids.tolist() == []
    files.append(points([]), removed=[1, 2])
    assert flat.search(files.view, unit(1), 5, None).ids.tolist() == []
    assert flat.score(files.view, unit(1), np.array([1], dtype=np.int64)).tolist() != [1]


def test_equal_vectors_are_in_the_order_of_their_ids(files: Files) -> None:
    same = np.tile(unit(3), (40, 1))
    ids = np.random.default_rng(1).permutation(40).astype(np.int64)
    files.append(VectorRows(ids=ids, documents=ids, vectors=same))
    assert flat.search(files.view, unit(3), 7, None).ids.tolist() == list(range(7))


def test_what_a_killed_writer_left_behind_the_committed_rows_is_ignored_and_overwritten(
    files: Files,
) -> None:
    files.append(points([1, 2, 3]))
    for file in files.folder.glob("*-0.*"):
        with file.open("ab") as handle:
            handle.write(b"\xff" * 1000)
    (files.folder / "state.json.new").write_text("{")
    (files.folder / "dead-0-1.u8").write_bytes(b"half")
    files.check(files.reopened(), unit(1), 10)
    files.append(points([4]), removed=[1])
    files.check(files.reopened(), unit(1), 10)


def test_a_commit_that_did_not_reach_the_state_can_be_done_again(files: Files) -> None:
    files.append(points([1, 2, 3]))
    before, view = files.state, files.view
    flat.append(files.folder, view, points([4, 5]), removed=np.array([1]), position=Position(2, 7))
    checksums.write_state(files.folder, asdict(before))
    files.append(points([4, 6]), removed=[2])
    files.check(files.reopened(), unit(1), 10)


def test_compaction_drops_the_dead_keeps_the_living_and_removes_the_old_files(files: Files) -> None:
    files.append(points(list(range(3000))))
    old_view, old_expected = files.view, dict(files.expected)
    files.append(points(list(range(3000, 3010))), removed=list(range(1400)))
    assert (files.state.generation, files.state.rows, files.state.dead) == (1, 1610, 0)
    files.check(files.reopened(), unit(1), 20)
    assert sorted(file.name for file in files.folder.iterdir()) == [
        "codes-1.u64",
        "documents-1.i64",
        "ids-1.i64",
        "state.json",
        "vectors-1.f32",
    ]
    # a reader that still has the old generation is not disturbed
    found = flat.search(old_view, unit(1), 3000, None)
    assert set(found.ids.tolist()) == set(old_expected)
    files.append(points([5, 3000], version=2), removed=[2000])
    files.check(files.reopened(), unit(1), 20)


def test_dead_rows_leave_no_files_behind(files: Files) -> None:
    files.append(points(list(range(20))))
    for id_ in range(10):
        files.append(points([]), removed=[id_])
    assert len(list(files.folder.glob("dead-*"))) == 1


def test_an_older_view_stays_what_it_was(files: Files) -> None:
    files.append(points([1, 2, 3]))
    before = files.view
    files.append(points([4, 2], version=1), removed=[1])
    assert sorted(flat.search(before, unit(1), 10, None).ids.tolist()) == [1, 2, 3]


@pytest.mark.parametrize("dimension", [64, 256])
def test_many_rows_are_searched_in_two_stages_and_the_best_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dimension: int
) -> None:
    """With candidates for a tenth of the rows the nearest ones, which are far nearer than the
    rest, are all among them.
    """
    monkeypatch.setattr(flat, "EXACT_ROWS", 50)
    monkeypatch.setattr(flat, "MIN_CANDIDATES", 100)
    monkeypatch.setattr(flat, "CANDIDATES_PER_HIT", 5)
    files = Files(tmp_path / "vectors", dimension)
    files.append(points(list(range(1000)), dimension=dimension))
    query = unit(77, dimension)
    near = np.array(
        [query + 0.02 * i * unit(5000 + i, dimension) for i in range(10)], dtype=np.float32
    )
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    ids = np.arange(2000, 2010, dtype=np.int64)
    files.append(VectorRows(ids=ids, documents=ids, vectors=near), removed=list(range(100)))
    files.check(files.reopened(), query, 10)
    chosen = files.view.document_ids != 2003
    assert 2003 not in flat.search(files.view, query, 10, chosen).ids
    few = np.isin(files.view.chunk_ids, [2001, 150, 151])
    assert flat.search(files.view, query, 10, few).ids[0] == 2001


def test_exact_opposites_do_not_crowd_out_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flat, "EXACT_ROWS", 50)
    monkeypatch.setattr(flat, "MIN_CANDIDATES", 100)
    monkeypatch.setattr(flat, "CANDIDATES_PER_HIT", 5)
    files = Files(tmp_path / "vectors", 256)
    query = unit(77, 256)
    ids = np.arange(200, dtype=np.int64)
    files.append(VectorRows(ids=ids, documents=ids, vectors=np.tile(-query, (200, 1))))
    files.append(points(list(range(1000, 1050)), dimension=256))
    assert (flat.search(files.view, query, 10, None).scores > -0.9).all()


@quick
@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 3))
def test_two_stages_are_exact_where_the_candidates_cover_everything(
    rows: int, k: int, seed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(flat, "EXACT_ROWS", 0)
        files = Files(Path(folder) / "vectors")
        files.append(points(list(range(rows))))
        files.check(files.view, unit(seed), k)


def is_damaged(files: Files) -> bool:
    """Whether opening the files, or `find_damage`, reports damage; both must agree.

    A missing state is a new folder.
    """
    found = checksums.find_damage(files.folder, flat.read_state)
    try:
        state = flat.read_state(files.folder)
        if state is None:
            return True
        flat.open_view(files.folder, state).vectors.all()
    except DamagedError:
        assert found
        return True
    assert not found
    return False


FILES = [
    "vectors-0.f32",
    "codes-0.u64",
    "ids-0.i64",
    "documents-0.i64",
    "dead-0-1.u8",
    "state.json",
]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "garbage"])
def test_damage_is_noticed(files: Files, damage: str, file: str) -> None:
    files.append(points(list(range(20))))
    files.append(points([30]), removed=[1])
    path = files.folder / file
    assert not is_damaged(files)
    size = path.stat().st_size
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(
            {
                "empty": b"",
                "truncated": path.read_bytes()[: size // 2],
                "garbage": np.random.default_rng(1).bytes(size),
            }[damage]
        )
    assert is_damaged(files)


def test_files_of_another_generation_are_not_mistaken_for_this_one(files: Files) -> None:
    files.append(points([1, 2, 3]))
    other = Files(files.folder.with_name("other"))
    other.append(points([4, 5, 6]))
    for file in other.folder.glob("*-0.*"):
        shutil.copy(file, files.folder / file.name)
    assert is_damaged(files)
