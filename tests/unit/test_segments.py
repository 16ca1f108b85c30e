"""The word index on disk: any sequence of commits scores exactly like a fresh index of what is
left, and damage is never answered from.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unspool.catalog.feed import Position
from unspool.index.analysis import PADDING
from unspool.index.bm25 import AVERAGE_LENGTH, K1, B, compute_idf
from unspool.index.embedded import checksums, postings, segments
from unspool.index.embedded.checksums import DamagedError
from unspool.index.embedded.postings import ChunkTerms, LiveSegment

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TERMS = ["walrus", "penguin", "zebra", "ape", "\ud800", PADDING]
chunks = st.dictionaries(
    st.integers(0, 30), st.lists(st.sampled_from(TERMS), max_size=12), max_size=12
)
queries = st.dictionaries(
    st.sampled_from([*TERMS[:-1], "absent"]), st.floats(0.1, 3), min_size=1, max_size=4
)


class Index:
    """The index under test and, beside it, a dictionary of what should be in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.view = segments.WordView(segments.WordState(source="c"))
        self.expected: dict[int, list[str]] = {}

    def append(self, added: dict[int, list[str]], removed: list[int] | None = None) -> None:
        entries = [ChunkTerms(id_, id_ // 10, terms) for id_, terms in added.items()]
        state = segments.append(
            self.folder, self.view, entries, removed=removed or [], position=Position(1, 7)
        )
        self.view = segments.open_view(self.folder, state, self.view)
        for id_ in removed or []:
            self.expected.pop(id_, None)
        self.expected.update(added)

    def reopen(self) -> segments.WordView:
        state = segments.read_state(self.folder)
        assert state == self.view.state
        return segments.open_view(self.folder, state)

    def fresh(self) -> tuple[LiveSegment, ...]:
        return (
            LiveSegment(
                postings.build_segment(
                    [ChunkTerms(id_, id_ // 10, terms) for id_, terms in self.expected.items()]
                ),
                None,
            ),
        )


def bm25(terms: list[str], weights: dict[str, float], among: dict[int, list[str]]) -> float:
    total = 0.0
    for term, weight in weights.items():
        frequency = terms.count(term)
        if frequency:
            idf = compute_idf(sum(term in own for own in among.values()), len(among))
            total += (
                weight
                * idf
                * frequency
                * (K1 + 1)
                / (frequency + K1 * (1 - B + B * len(terms) / AVERAGE_LENGTH))
            )
    return total


@quick
@given(
    st.lists(st.tuples(chunks, st.lists(st.integers(0, 30), max_size=8)), max_size=6),
    queries,
    st.integers(1, 20),
    st.integers(1, 3),
)
def test_any_sequence_of_commits_scores_like_a_fresh_index(
    commits: list[tuple[dict[int, list[str]], list[int]]],
    weights: dict[str, float],
    k: int,
    most: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "MAX_SEGMENTS", most)
        patch.setattr(segments, "SEGMENT_CHUNKS", 4)
        patch.setattr(postings, "_MERGED_POSTINGS", 5)
        index = Index(Path(folder) / "words")
        for added, removed in commits:
            index.append(added, removed)
        for parts in (
            (index.view.segments, index.fresh())
            if not commits
            else (index.reopen().segments, index.view.segments, index.fresh())
        ):
            found = postings.search(parts, weights, k, None)
            expected = {
                id_: bm25(terms, weights, index.expected) for id_, terms in index.expected.items()
            }
            assert all(
                abs(score - expected[id_]) < 1e-5
                for id_, score in zip(found.ids.tolist(), found.scores.tolist(), strict=True)
            )
            assert len(found.ids) == min(k, sum(score > 0 for score in expected.values()))
            assert postings.count_chunks(parts) == len(index.expected)
        fresh = postings.search(index.fresh(), weights, k, None)
        mine = postings.search(index.view.segments, weights, k, None)
        assert mine.ids.tolist() == fresh.ids.tolist()
        assert mine.scores.tolist() == fresh.scores.tolist()  # to the last bit
        ids = np.arange(31, dtype=np.int64)
        assert (
            postings.score(index.view.segments, weights, ids).tolist()
            == postings.score(index.fresh(), weights, ids).tolist()
        )
        assert postings.count_frequencies(
            index.view.segments, TERMS[:3]
        ) == postings.count_frequencies(index.fresh(), TERMS[:3])


@quick
@given(st.lists(st.integers(1, 10_000), min_size=2, max_size=12))
def test_a_merge_takes_the_newest_and_never_one_alone(sizes: list[int]) -> None:
    first = segments.choose_merge(sizes, [False] * len(sizes))
    assert 0 <= first <= len(sizes) - 2
    assert first == 0 or sizes[first - 1] > 2 * sum(sizes[first:])


def test_a_chosen_row_is_the_only_one_found(tmp_path: Path) -> None:
    index = Index(tmp_path / "words")
    index.append({1: ["ape"], 2: ["ape"], 3: ["ape"]})
    chosen = [part.segment.ids.all() == 2 for part in index.view.segments]
    assert postings.search(index.view.segments, {"ape": 1.0}, 10, chosen).ids.tolist() == [2]


def test_files_of_merged_segments_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "MAX_SEGMENTS", 2)
    index = Index(tmp_path / "words")
    for number in range(12):
        index.append({number: ["ape", TERMS[number % 3]]}, [number - 3])
        assert {file.name for file in index.folder.iterdir()} == {
            "state.json",
            *index.view.state.list_files(),
        }
    index.append({}, list(range(12)))
    assert [file.name for file in index.folder.iterdir()] == ["state.json"]


def test_what_a_killed_writer_left_is_overwritten(tmp_path: Path) -> None:
    index = Index(tmp_path / "words")
    index.append({1: ["ape"]})
    for name in ("1-keys.u64", "1-rows.u32", "0-dead-1.u8", "state.json.new"):
        (index.folder / name).write_bytes(b"remains" * 10)
    index.append({2: ["ape"]}, [1])
    assert postings.search(index.reopen().segments, {"ape": 1.0}, 10, None).ids.tolist() == [2]


@pytest.mark.parametrize("damage", ["flipped", "truncated", "zeroed", "missing"])
@pytest.mark.parametrize("column", [*segments._COLUMNS, "dead", "state"])
def test_damage_is_found_on_opening_and_by_the_check(
    tmp_path: Path, column: str, damage: str
) -> None:
    index = Index(tmp_path / "words")
    index.append({id_: ["ape", "walrus", f"w{id_}"] for id_ in range(5, 40)})
    index.append({}, [7, 8])
    state = index.view.state.segments[0]
    file = index.folder / ("state.json" if column == "state" else state.name_file(column))
    content = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    elif damage == "truncated":
        file.write_bytes(content[:-3])
    else:
        middle = next(at for at, octet in enumerate(content) if octet)
        content[middle] = 0 if damage == "zeroed" else content[middle] ^ 16
        file.write_bytes(content)
    if (column, damage) == ("state", "missing"):
        assert segments.read_state(index.folder) is None
        return
    assert checksums.find_damage(index.folder, segments.read_state)
    with pytest.raises(DamagedError):
        index.reopen()


def test_swapped_files_are_damage(tmp_path: Path) -> None:
    one, two = Index(tmp_path / "one"), Index(tmp_path / "two")
    one.append({1: ["ape"], 2: ["walrus"]})
    two.append({3: ["ape"], 4: ["zebra"]})
    for name in ("0-ids.i64", "0-keys.u64"):
        shutil.copy(two.folder / name, one.folder / name)
    with pytest.raises(DamagedError):
        one.reopen()


def test_damage_that_came_after_opening_is_not_merged_into_a_new_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "MAX_SEGMENTS", 1)
    index = Index(tmp_path / "words")
    index.append({1: ["ape"], 2: ["walrus"]})
    file = index.folder / "0-weights.f32"
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(DamagedError):
        index.append({3: ["ape"]})
