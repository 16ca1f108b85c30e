"""Contract of a vector index, as tests that ship with unspool.

    class TestAcme(VectorContract):
        adapter = AcmeIndex  # at the top level of a module

        @pytest.fixture
        def address(self) -> str:
            return "acme://localhost:7000"

Every test opens a collection of its own, and drops it at the end.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import unspool
from unspool.domain import filters
from unspool.domain.queries import Stability
from unspool.errors import AddressError, UnsupportedError
from unspool.index.options import Metric, VectorOptions
from unspool.index.ports import NO_IDS, VectorIndex, Within
from unspool.testing.vector_setup import (
    BETWEEN,
    DIMENSION,
    EAST,
    FIELDS,
    FILTERS,
    LARGE_IDS,
    MATCHES,
    NO_POINTS,
    NORTH,
    REJECTIONS,
    SCORES,
    THREE,
    OpenCorpus,
    OpenIndex,
    VectorSetup,
    drop_vectors,
    fill_in,
    make_document,
    make_points,
    to_ids,
    to_vector,
)


class VectorContract(VectorSetup):
    """Base class of a test class, which sets `adapter` and the fixture `address`."""

    # Facts

    def test_it_has_the_methods_of_a_vector_index(self, index: VectorIndex) -> None:
        """Compare the class with `unspool.index.ports.VectorIndex`."""
        assert isinstance(index, VectorIndex)

    def test_its_capabilities_are_known_before_it_is_opened(self, index: VectorIndex) -> None:
        """Set `capabilities` on the class. They must not depend on the server."""
        facts = index.capabilities
        assert facts == self.facts
        assert facts.metrics
        assert facts.max_k >= 100
        assert facts.max_ids >= 0
        assert facts.filter_fields <= FIELDS.keys()

    def test_an_unknown_option_of_the_address_is_rejected(self, address: str) -> None:
        """Raise `AddressError` for an option that the adapter does not know, with the known."""
        wrong = f"{address}{'&' if '?' in address else '?'}no_such_option=1"
        options = VectorOptions(address=wrong, metric=self.get_metric())
        with pytest.raises(AddressError):
            self.adapter.open(  # type: ignore[attr-defined]
                wrong, collection="t_wrong", dimension=DIMENSION, options=options
            )

    def test_an_epoch_changes_only_if_points_are_lost(self, open_index: OpenIndex) -> None:
        """Store the epoch beside the points: a random name, written when storage is created."""
        index = open_index()
        epoch = index.read_epoch()
        index.apply(1, THREE, NO_IDS)
        index.drop(1)
        assert 0 < len(epoch) <= 100
        assert (index.read_epoch(), open_index().read_epoch()) == (epoch, epoch)
        assert open_index(collection="_other").read_epoch() != epoch
        index.drop()
        assert index.read_epoch() != epoch

    # Writing

    def test_an_empty_index_is_not_an_error(self, index: VectorIndex) -> None:
        """Return nothing for a project without points. Ignore deletes of absent points."""
        index.apply(1, NO_POINTS, to_ids(7, 8))
        assert (index.count(1), self.list_ids(index, 1)) == (0, [])
        assert self.search(index, EAST) == []
        index.drop(1)

    def test_repeating_a_write_changes_nothing(self, index: VectorIndex) -> None:
        """Store points under their ids, so that a second write replaces the first."""
        for _ in range(2):
            index.apply(1, THREE, to_ids(9))
        self.expect(lambda: index.count(1), 3)
        assert self.search(index, EAST) == [3, 2, 1]

    def test_a_point_replaces_the_one_with_its_id(self, index: VectorIndex) -> None:
        """Replace the vector and the fields. Points that are not named stay."""
        index.apply(1, THREE, NO_IDS)
        index.apply(1, make_points({1: EAST, 3: NORTH}), NO_IDS)
        self.expect(lambda: self.search(index, EAST), [1, 2, 3])
        assert index.count(1) == 3

    def test_points_are_deleted_before_points_are_stored(self, index: VectorIndex) -> None:
        """Delete first: a chunk that was deleted and added again is in both lists."""
        index.apply(1, THREE, NO_IDS)
        index.apply(1, make_points({2: EAST}), to_ids(1, 2))
        self.expect(lambda: self.search(index, EAST), [2, 3])
        assert self.list_ids(index, 1) == [2, 3]

    def test_the_caller_keeps_its_arrays(self, index: VectorIndex) -> None:
        """Copy the points. Their arrays may be reused, and may be read-only."""
        points = make_points({1: NORTH, 2: EAST})
        points.vectors.flags.writeable = False
        index.apply(1, points, NO_IDS)
        points.vectors.flags.writeable = True
        points.vectors[:] = 0.5
        self.expect(lambda: self.search(index, EAST), [2, 1])

    def test_a_large_write_is_divided_as_the_store_needs(self, index: VectorIndex) -> None:
        """Divide points and deletes into batches if requests have a limit."""
        ids = range(1, 10_001)
        index.apply(1, make_points(dict.fromkeys(ids, BETWEEN)), NO_IDS)
        self.expect(lambda: index.count(1), 10_000)
        index.apply(1, make_points({20_000: EAST}), to_ids(*ids[1:]))
        self.expect(lambda: self.list_ids(index, 1), [1, 20_000])

    def test_a_vector_of_another_dimension_is_rejected(self, index: VectorIndex) -> None:
        """Raise `DimensionError`, and change nothing."""
        index.apply(1, THREE, NO_IDS)
        with pytest.raises(REJECTIONS):
            index.apply(1, make_points({4: [1.0, 0]}), to_ids(1))
        with pytest.raises(REJECTIONS):
            self.search(index, [1.0, 0])
        self.expect(lambda: self.search(index, EAST), [3, 2, 1])

    def test_points_stay_when_the_index_is_opened_again(self, open_index: OpenIndex) -> None:
        """Find the storage by the address and the name of the collection."""
        index = open_index()
        index.apply(1, THREE, NO_IDS)
        self.expect(lambda: index.count(1), 3)
        index.close()
        self.expect(lambda: self.search(open_index(), EAST), [3, 2, 1])
        assert open_index(collection="_other").count(1) == 0

    # Projects

    def test_projects_are_separate(self, index: VectorIndex) -> None:
        """Address a point by project and chunk id. Both projects may have the same id."""
        index.apply(1, THREE, NO_IDS)
        index.apply(2, make_points({3: NORTH, 4: EAST}), NO_IDS)
        self.expect(lambda: self.search(index, EAST, project=2), [4, 3])
        self.expect(lambda: self.search(index, EAST), [3, 2, 1])
        index.apply(2, NO_POINTS, to_ids(1, 3))
        index.apply(-1, make_points({1: NORTH}), NO_IDS)  # a follower marks positions there
        self.expect(lambda: (index.count(1), index.count(2), index.count(-1)), (3, 1, 1))
        assert (self.list_ids(index, 1), self.list_ids(index, 2)) == ([1, 2, 3], [4])

    def test_a_project_is_dropped_alone(self, index: VectorIndex) -> None:
        """Keep the points of other projects. A dropped project can be filled again."""
        for project in (1, 2):
            index.apply(project, THREE, NO_IDS)
        index.drop(1)
        self.expect(lambda: (index.count(1), index.count(2)), (0, 3))
        index.apply(1, make_points({5: EAST}), NO_IDS)
        self.expect(lambda: self.search(index, EAST), [5])

    def test_everything_is_dropped_at_once(self, index: VectorIndex) -> None:
        """Delete the collection. `read_epoch` creates it again."""
        for project in (1, 2):
            index.apply(project, THREE, NO_IDS)
        index.drop()
        index.read_epoch()
        self.expect(lambda: (index.count(1), index.count(2)), (0, 0))
        index.apply(1, THREE, NO_IDS)
        self.expect(lambda: self.search(index, EAST), [3, 2, 1])

    def test_ids_are_listed_in_order_and_in_pages(self, index: VectorIndex) -> None:
        """Compare ids as 64-bit integers. Text and floating point sort or round differently."""
        index.apply(1, make_points(dict.fromkeys(reversed(LARGE_IDS), EAST)), NO_IDS)
        self.expect(lambda: self.list_ids(index, 1), LARGE_IDS)
        assert index.ids(1, after=-1, limit=4).tolist() == LARGE_IDS[:4]
        assert index.ids(1, after=LARGE_IDS[3], limit=4).tolist() == LARGE_IDS[4:]
        assert index.ids(1, after=LARGE_IDS[-1], limit=4).tolist() == []
        assert self.search(index, EAST) == LARGE_IDS

    # Searching

    def test_scores_are_those_of_the_metric(self, open_index: OpenIndex) -> None:
        """Convert distances to scores, see `Metric`. A higher score is better."""
        for metric in sorted(self.facts.metrics):
            index = open_index(metric=metric, collection=f"_{metric}")
            index.apply(1, THREE, NO_IDS)
            self.expect(partial(index.count, 1), 3)
            found = index.search(1, to_vector(EAST), k=10)
            assert found.ids.tolist() == [3, 2, 1]
            assert (found.ids.dtype.name, found.scores.dtype.name) == ("int64", "float32")
            np.testing.assert_allclose(found.scores, SCORES[metric][::-1], atol=self.tolerance)

    def test_a_metric_that_is_not_declared_is_never_asked_for(
        self, open_corpus: OpenCorpus
    ) -> None:
        """Declare in `metrics` what the store compares by, and nothing else."""
        for metric in Metric:
            with open_corpus(metric) as corpus:
                if metric in self.facts.metrics:
                    assert corpus.put(make_document(1)).added == 1
                    drop_vectors(corpus)
                else:
                    with pytest.raises(UnsupportedError, match=str(metric)):
                        corpus.put(make_document(1))

    def test_equal_vectors_are_ordered_by_id(self, index: VectorIndex) -> None:
        """Sort by score and id. An exact index returns the lowest ids of those that tie."""
        index.apply(1, make_points(dict.fromkeys(range(200, 0, -1), EAST)), NO_IDS)
        self.expect(lambda: index.count(1), 200)
        assert self.search(index, NORTH, k=100) == sorted(self.search(index, NORTH, k=100))
        found = self.search(index, EAST, k=50)
        assert found == sorted(set(found))
        if self.facts.stability is Stability.DETERMINISTIC:
            assert found == list(range(1, 51))

    def test_k_limits_the_result(self, index: VectorIndex) -> None:
        """Return fewer than k only if there are fewer."""
        index.apply(1, THREE, NO_IDS)
        self.expect(lambda: self.search(index, EAST, k=3), [3, 2, 1])
        assert self.search(index, EAST, k=1) == [3]
        assert self.search(index, EAST, k=self.facts.max_k) == [3, 2, 1]

    def test_more_than_max_k_is_unsupported(self, index: VectorIndex) -> None:
        """Call `Capabilities.check_search` first."""
        with pytest.raises(UnsupportedError):
            self.search(index, EAST, k=self.facts.max_k + 1)

    def test_a_minimum_leaves_out_only_what_scores_less(self, open_index: OpenIndex) -> None:
        """Compare `min_similarity` with the score, or ignore it."""
        index = open_index()
        index.apply(1, THREE, NO_IDS)
        self.expect(lambda: index.count(1), 3)
        low, middle, _ = SCORES[self.get_metric()]
        limit = (low + middle) / 2
        found = index.search(1, to_vector(EAST), k=10, min_similarity=limit)
        assert found.ids[found.scores >= limit].tolist() == [3, 2]

    # Filters

    @pytest.mark.parametrize("form", FILTERS)
    @pytest.mark.parametrize("field", FIELDS)
    def test_a_filter_on_a_declared_field_is_exact(
        self, index: VectorIndex, field: str, form: str
    ) -> None:
        """Translate `Compare`, `Not`, `AllOf` and `AnyOf`, also with no parts."""
        index.apply(1, THREE, NO_IDS)
        self.expect(lambda: index.count(1), 3)
        condition = filters.parse(fill_in(FILTERS[form], field))
        assert condition is not None
        within = Within(filter=condition, total=len(MATCHES[form]))
        if filters.list_fields(condition) <= self.facts.filter_fields:
            assert sorted(self.search(index, EAST, within=within)) == MATCHES[form]
        else:
            with pytest.raises(UnsupportedError):
                self.search(index, EAST, within=within)

    def test_a_filter_on_another_field_is_unsupported(self, index: VectorIndex) -> None:
        """Call `Capabilities.check_search` first."""
        condition = filters.parse({"path": "*.md"})
        with pytest.raises(UnsupportedError):
            self.search(index, EAST, within=Within(filter=condition, total=1))

    @pytest.mark.parametrize("kind", ["documents", "chunks"])
    def test_a_list_of_ids_is_exact_up_to_its_limit(self, index: VectorIndex, kind: str) -> None:
        """Accept only these documents or chunks. Ids that have no points are no error."""
        index.apply(1, THREE, NO_IDS)
        self.expect(lambda: index.count(1), 3)
        base = 1000 if kind == "documents" else 0
        few = Within(**{kind: base + to_ids(2, 3, 5)}, total=2)  # type: ignore[arg-type]
        if self.facts.max_ids >= 3:
            assert self.search(index, EAST, within=few) == [3, 2]
        else:
            with pytest.raises(UnsupportedError):
                self.search(index, EAST, within=few)

    @pytest.mark.parametrize("kind", ["documents", "chunks"])
    def test_a_list_at_its_limit_works_and_a_longer_one_is_unsupported(
        self, index: VectorIndex, kind: str
    ) -> None:
        """Declare in `max_ids` what the store really accepts."""
        limit = self.facts.max_ids
        if limit > 200_000:
            pytest.skip(f"a list of {limit} ids is too long for a test")
        index.apply(1, THREE, NO_IDS)
        self.expect(lambda: index.count(1), 3)
        base = 1000 if kind == "documents" else 0
        longest = base + np.arange(1, limit + 2, dtype=np.int64)
        if limit >= 3:
            within = Within(**{kind: longest[:-1]}, total=3)  # type: ignore[arg-type]
            assert self.search(index, EAST, within=within) == [3, 2, 1]
        with pytest.raises(UnsupportedError):
            self.search(index, EAST, within=Within(**{kind: longest}, total=3))  # type: ignore[arg-type]

    # Continuing

    def test_hints_continue_a_search_to_its_end(self, index: VectorIndex) -> None:
        """Return a hint while more exist, and None with the last. Without the capability: none.

        A continuation may repeat results.
        """
        angles = np.linspace(0, 1.5, 45)
        vectors = {at: [np.cos(angle), np.sin(angle), 0, 0] for at, angle in enumerate(angles, 1)}
        index.apply(1, make_points(vectors), NO_IDS)
        self.expect(lambda: index.count(1), 45)
        found = [index.search(1, to_vector(EAST), k=20)]
        if not self.facts.native_continuation:
            assert found[0].hint is None
            with pytest.raises(UnsupportedError):
                index.search(1, to_vector(EAST), k=20, hint="20")
            return
        while found[-1].hint is not None and len(found) < 10:
            found.append(index.search(1, to_vector(EAST), k=20, hint=found[-1].hint))
        assert found[-1].hint is None
        ids = [id_ for one in found for id_ in one.ids.tolist()]
        assert list(dict.fromkeys(ids)) == list(range(1, 46))

    # Threads, and a whole corpus

    def test_threads_write_and_search_at_once(self, index: VectorIndex) -> None:
        """Share no state between calls, or guard it. All threads also write to one project."""

        def work(number: int) -> list[int]:
            for at in range(5):
                index.apply(number, THREE, to_ids(at))
                index.apply(100, make_points({number * 10 + at: EAST}), NO_IDS)
                index.search(100, to_vector(EAST), k=10)
            self.expect(lambda: index.count(number), 3)
            return self.search(index, EAST, project=number)

        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(work, range(1, 9))) == [[3, 2, 1]] * 8
        self.expect(lambda: index.count(100), 40)

    def test_pages_over_equal_vectors_have_no_repeats_and_no_gaps(
        self, corpus: unspool.Corpus
    ) -> None:
        """Look at the order of ties, and at what `k` and the hints return."""
        corpus.put(*(make_document(number) for number in range(260)))
        corpus.refresh()
        page = corpus.search("anything", limit=20, alpha=1)
        paths = [hit.chunk.path for hit in page.hits]
        while page.continuation is not None:
            page = corpus.more(page.continuation)
            paths += [hit.chunk.path for hit in page.hits]
        assert sorted(paths) == sorted(f"{number}.md" for number in range(260))

    def test_a_corpus_finds_what_exists_and_nothing_else(self, corpus: unspool.Corpus) -> None:
        """Look at deletes, and at filters. The engine asks for more where a filter is applied."""
        corpus.put(*(make_document(number) for number in range(300)))
        corpus.refresh()
        corpus.forget(project="notes", path="7.md")
        corpus.put(make_document(300))
        page = corpus.search("anything", limit=400, alpha=1, where={"path": "*7.md"})
        expected = {f"{number}.md" for number in range(301) if number % 10 == 7 and number != 7}
        assert {hit.chunk.path for hit in page.hits} == expected
        page = corpus.search("anything", limit=400, alpha=1, where={"language": "Markdown"})
        assert len(page.hits) == 300 - 1 + 1
        assert corpus.search("anything", alpha=1, where={"language": "go"}).hits == ()
