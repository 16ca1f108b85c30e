"""Contract of an embedder, as tests that ship with unspool.

    class TestMine(EmbedderContract):
        @pytest.fixture
        def embedder(self) -> Embedder:
            return as_embedder(Mine())

What `as_embedder` made, and every provider but `static`, has to satisfy `ModelContract`, which asks
for more.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest

from unspool.embedders.base import Embedder
from unspool.embedders.options import OverLimit
from unspool.errors import InputError

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors

TEXTS = (
    "the walrus sleeps on the ice",
    "def add(left, right): return left + right",
    "bread is baked from flour, water, salt and yeast",
    "a fast car on an empty road",
    "interest rates were raised by half a point yesterday evening, the third time in this year",
    "tomatoes",
    "SELECT name FROM people WHERE age > 30 ORDER BY name",
    "how do I sort a list of words by their length?",
)
SCRIPTS = {
    "emoji": "smile 😀 and family 👩‍👩‍👧 and flag 🇳🇿",
    "japanese": "日本語の文章と漢字",
    "korean": "한국어 문장",
    "combining": "cafe\u0301 nai\u0308ve re\u0301sume\u0301",
    "hebrew": "שלום עולם",
    "arabic": "مرحبا بالعالم",
    "greek and cyrillic": "Ελληνικά και русский",
    "invisible": "zero\u200bwidth and \ufeffmark and \u202eturned\u202c",
    "control": "a\x00b\x07c",
}
BLANKS = {"nothing": "", "space": " ", "lines": "\n\t", "wide": "\u3000 \u2003"}


class EmbedderContract:
    """Inherit from this under a name that pytest collects, and supply the fixture `embedder`."""

    # cosine of two vectors of one text; weights of few bits differ more from batch to batch
    same: ClassVar[float] = 0.9999
    # False: it is told which texts are queries (`tells_queries`) and takes no notice
    hears_queries: ClassVar[bool] = True
    # each one token, in one tokenizer or another
    words: ClassVar[tuple[str, ...]] = ("the", "a", "of", "1")

    @pytest.fixture
    def embedder(self) -> Embedder:
        """Return the embedder under test."""
        raise NotImplementedError(
            f"{type(self).__name__} needs a fixture `embedder` of its own that gives the "
            f"embedder under test"
        )

    def test_it_has_all_that_an_embedder_has(self, embedder: Embedder) -> None:
        """Compare the object's attributes with `unspool.embedders.base.Embedder`."""
        assert isinstance(embedder, Embedder)

    def test_its_facts_agree_with_its_properties(self, embedder: Embedder) -> None:
        """`facts` and the properties must come from one place; `facts.dimension` may be 0 for
        not known yet.
        """
        facts = embedder.facts
        assert (embedder.name, embedder.revision, embedder.alpha) == (
            facts.name,
            facts.revision,
            facts.alpha,
        )
        assert facts.dimension in (0, embedder.dimension)
        assert 0 < embedder.max_tokens <= facts.max_tokens

    def test_its_name_begins_with_its_provider(self, embedder: Embedder) -> None:
        """The name is kept with the vectors: give it as provider:model, and a revision that
        changes with the weights.
        """
        provider, _, model = embedder.name.partition(":")
        assert provider
        assert model
        assert embedder.revision

    def test_its_share_of_meaning_is_a_share(self, embedder: Embedder) -> None:
        """`alpha` is a number from 0 to 1; measure it with `unspool eval`."""
        assert 0 <= embedder.alpha <= 1

    def test_a_text_has_the_same_vector_every_time(self, embedder: Embedder) -> None:
        """Look for randomness: dropout, a seed by time, `hash()` of a string."""
        self._assert_same(embedder.embed_passages(TEXTS), embedder.embed_passages(TEXTS))
        self._assert_same(embedder.embed_query(TEXTS[0]), embedder.embed_query(TEXTS[0]))

    def test_different_texts_have_different_vectors(self, embedder: Embedder) -> None:
        """Everything else here would hold for a constant; see whether the texts reach the model
        at all.
        """
        rows = embedder.embed_passages(TEXTS)
        alike = rows @ rows.T - np.eye(len(TEXTS), dtype=np.float32)
        assert alike.max() < self.same

    def test_a_batch_gives_the_same_vectors_as_single_texts(self, embedder: Embedder) -> None:
        """Look at padding: a text's vector must not depend on the longer texts beside it."""
        self._assert_same(embedder.embed_passages(TEXTS), _one_by_one(embedder, TEXTS))

    def test_rows_come_in_the_order_of_the_texts(self, embedder: Embedder) -> None:
        """Texts sorted by length for padding, or answers that came out of order, have to be put
        back.
        """
        many = [f"{text} {number}" for number in range(5) for text in TEXTS]
        rows = embedder.embed_passages(many)
        self._assert_same(rows, embedder.embed_passages(many[::-1])[::-1])
        self._assert_same(
            rows[[3, 20, 39]], _one_by_one(embedder, [many[place] for place in (3, 20, 39)])
        )

    def test_vectors_are_float32_of_length_1_and_of_the_declared_dimension(
        self, embedder: Embedder
    ) -> None:
        """Divide by the length before returning, and convert from half or double precision."""
        rows, row = embedder.embed_passages(TEXTS), embedder.embed_query(TEXTS[0])
        assert {rows.dtype, row.dtype} == {np.dtype(np.float32)}
        assert (rows.shape, row.shape) == ((len(TEXTS), embedder.dimension), (embedder.dimension,))
        np.testing.assert_allclose(np.linalg.norm([*rows, row], axis=1), 1, atol=1e-3)

    def test_the_caller_owns_the_vectors(self, embedder: Embedder) -> None:
        """Give out a copy of what is remembered: a caller may write into it."""
        before = embedder.embed_query(TEXTS[0]).copy()
        for given in (embedder.embed_query(TEXTS[0]), embedder.embed_passages(TEXTS[:1])):
            given[...] = 0
        self._assert_same(embedder.embed_query(TEXTS[0]), before)

    def test_no_texts_give_no_rows(self, embedder: Embedder) -> None:
        """An empty list is not an error, and its answer can be stacked with others."""
        dimension = embedder.dimension
        assert embedder.embed_passages([]).shape == (0, dimension)

    @pytest.mark.parametrize("blank", BLANKS.values(), ids=BLANKS)
    def test_a_blank_text_is_refused(self, embedder: Embedder, blank: str) -> None:
        """A blank text has no direction: raise `InputError`, and give no vector of zeros."""
        with pytest.raises(InputError):
            embedder.embed_passages([TEXTS[0], blank])
        with pytest.raises(InputError):
            embedder.embed_query(blank)

    @pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
    def test_every_script_has_a_vector_and_leaves_its_neighbours_alone(
        self, embedder: Embedder, text: str
    ) -> None:
        """Look at how text is encoded on its way to the model, and at unknown characters."""
        rows = embedder.embed_passages([TEXTS[0], text, TEXTS[1]])
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-3)
        self._assert_same(rows, _one_by_one(embedder, [TEXTS[0], text, TEXTS[1]]))

    def test_nothing_has_no_tokens_and_more_text_has_more(self, embedder: Embedder) -> None:
        """`count_tokens` counts the text alone, without the marks that a tokenizer puts around
        it.
        """
        text = " ".join(TEXTS)
        counts = [embedder.count_tokens(text[:end]) for end in range(0, len(text) + 1, 40)]
        assert counts[0] == 0
        assert all(one < more for one, more in pairwise(counts))

    def test_a_text_as_long_as_the_limit_is_read_to_its_end(self, embedder: Embedder) -> None:
        """`max_tokens` says more than the model reads: something behind it, such as its own
        tokenizer, cuts without saying so.
        """
        cat, dog = (self._of_length(embedder, embedder.max_tokens, last) for last in ("cat", "dog"))
        self._assert_other(embedder, cat, dog)

    def test_a_text_over_the_limit_is_treated_as_declared(self, embedder: Embedder) -> None:
        """`facts.over_limit` says what happens; whatever happens otherwise happens silently."""
        fitting = self._of_length(embedder, embedder.max_tokens, "cat")
        longer, otherwise = f"{fitting} dog and more", f"{fitting} walrus"
        match embedder.facts.over_limit:
            case OverLimit.WHOLE:
                self._assert_other(embedder, longer, otherwise)
            case OverLimit.CUT:
                self._assert_same(
                    embedder.embed_passages([longer, otherwise]),
                    embedder.embed_passages([fitting, fitting]),
                )
                self._assert_same(embedder.embed_query(longer), embedder.embed_query(fitting))
            case OverLimit.REFUSE:
                with pytest.raises(InputError):
                    embedder.embed_passages([fitting, longer])
                with pytest.raises(InputError):
                    embedder.embed_query(longer)

    def test_queries_and_passages_are_as_alike_as_declared(self, embedder: Embedder) -> None:
        """`facts.is_symmetric` follows from the prefixes and `tells_queries`; see whether the
        prefixes reach the model.
        """
        passages, queries = (
            embedder.embed_passages(TEXTS),
            np.stack([embedder.embed_query(text) for text in TEXTS]),
        )
        facts = embedder.facts
        if facts.is_symmetric or (
            not self.hears_queries and facts.query_prefix == facts.passage_prefix
        ):
            self._assert_same(passages, queries)
        else:
            assert _cosines(passages, queries).min() < self.same

    def test_threads_get_the_same_vectors_as_one(self, embedder: Embedder) -> None:
        """Look for what is shared between calls: a tokenizer's padding, a buffer, a connection."""
        several = [[f"{text} {thread}" for text in TEXTS[:3]] for thread in range(8)]
        expected = [embedder.embed_passages(texts) for texts in several]
        asked = [embedder.embed_query(texts[0]) for texts in several]
        with ThreadPoolExecutor(8) as threads:
            rows = threads.map(embedder.embed_passages, several)
            queries = threads.map(embedder.embed_query, [texts[0] for texts in several])
            for given, wanted in zip([*rows, *queries], [*expected, *asked], strict=True):
                self._assert_same(given, wanted)

    def _assert_same(self, given: Vectors, wanted: Vectors) -> None:
        assert given.shape == wanted.shape
        assert _cosines(given, wanted).min() > self.same

    def _assert_other(self, embedder: Embedder, one: str, other: str) -> None:
        """Assert that two texts have different vectors, each embedded alone."""
        rows = _one_by_one(embedder, [one, other, one])
        np.testing.assert_allclose(rows[0], rows[2], atol=1e-6)
        assert float(np.abs(rows[0] - rows[1]).max()) > 1e-4

    def _of_length(self, embedder: Embedder, tokens: int, last: str) -> str:
        """Return a text of exactly so many tokens that ends with a word."""
        for word in self.words:
            low, high = 0, tokens
            while low < high:  # the longest that fits
                middle = (low + high + 1) // 2
                fits = embedder.count_tokens(f"{word} " * middle + last) <= tokens
                low, high = (middle, high) if fits else (low, middle - 1)
            if embedder.count_tokens(text := f"{word} " * low + last) == tokens:
                return text
        pytest.fail(
            f"no text of exactly {tokens} tokens could be made of {self.words}; set `words` to "
            f"words of one token"
        )


class ModelContract(EmbedderContract):
    """Contract of `unspool.embedders.model.ModelEmbedder`, with any model."""

    def test_a_lone_surrogate_is_embedded_like_the_sign_that_replaces_it(
        self, embedder: Embedder
    ) -> None:
        """No tokenizer and no JSON takes half of a pair; replace it before the text goes on."""
        self._assert_same(
            embedder.embed_passages(["ice \ud83d water"]), embedder.embed_passages(["ice ? water"])
        )
        assert embedder.count_tokens("ice \udc00 water") == embedder.count_tokens("ice ? water")

    def test_a_refusal_does_not_repeat_the_text(self, embedder: Embedder) -> None:
        """Messages go to logs: they name a text by its place."""
        with pytest.raises(InputError, match="text 1 of 3") as refused:
            embedder.embed_passages(["a confidential sentence", "\n", "another one"])
        assert "confidential" not in str(refused.value)


def _one_by_one(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    return np.concatenate([embedder.embed_passages([text]) for text in texts])


def _cosines(left: Vectors, right: Vectors) -> Vectors:
    """Of rows that have length 1."""
    found: Vectors = np.sum(left * right, axis=-1)
    return found
