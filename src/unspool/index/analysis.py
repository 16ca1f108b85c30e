"""Text to terms: what the word index holds and what a query asks it for. Pure.

Identifiers are split and also kept whole, words are stemmed, stop words dropped: `parseConfig`,
`parse_config` and 'parse config' meet. Each distinct word is analysed once per process and
remembered, so a text costs one regular expression and a few hundred look-ups.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, pairwise

from unspool.domain.documents import Kind

# A word is a run of letters, digits and underscores; runs of CJK characters carry no spaces and are
# cut into pairs below.
_WORD = re.compile(r"\w+")
_WORD_ASCII = re.compile(r"[A-Za-z0-9_]+")  # the same for such text, in two thirds of the time
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_MAX_WORD = 64  # longer runs are hashes, base64 and minified code: terms that nobody types
_MAX_COMPOUNDS = 32
_MAX_REMEMBERED = 400_000  # words; about 80 MB at worst

# English function words and question words. On scifact, cosqa and code-repos dropping them gains
# .006 to .015 nDCG@10.
STOP_WORDS = frozenset(
    """a about above after again against all am an and any are as at be because been before being
    below between both but by can could did do does doing down during each few for from
    further had has have having he her here hers him his how i if in into is it its itself
    me more most my no nor not of off on once only or other our ours out over own same she
    should so some such than that the their theirs them then there these they this those
    through to too under until up very was we were what when where which while who whom why
    will with would you your yours s t d m ll re ve don doesn didn isn aren wasn weren won
    wouldn couldn shouldn hasn haven hadn""".split()
)


class _Terms(dict[str, tuple[str, ...]]):
    """Word -> its terms, filled on demand."""

    def __init__(self) -> None:
        super().__init__()
        import Stemmer

        self._stem = Stemmer.Stemmer("english").stemWord
        # a stemmer keeps state between calls; mixed words look their parts up
        self._lock = threading.RLock()

    def __missing__(self, word: str) -> tuple[str, ...]:
        with self._lock:
            if len(self) >= _MAX_REMEMBERED:
                self.clear()
            terms = self[word] = self._analyse(word)
        return terms

    def _analyse(self, word: str) -> tuple[str, ...]:
        if len(word) > _MAX_WORD:
            return ()
        if not word.isascii() and _CJK.search(word):
            return tuple(term for run in _CJK.split(word) if run for term in self[run]) + tuple(
                pair for run in _CJK.findall(word) for pair in _pairs(run)
            )
        if word.isalpha() and (word.islower() or word[1:].islower()):
            lowered = word.lower()
            return () if lowered in STOP_WORDS else (self._stem(lowered),)
        parts = [part.lower() for part in _PART.findall(word)]
        kept = [self._stem(part) for part in parts if part not in STOP_WORDS]
        if len(parts) < 2:
            return tuple(kept)
        return (*kept, self._stem("".join(parts)))


def _pairs(run: str) -> Iterable[str]:
    return (run[i : i + 2] for i in range(len(run) - 1)) if len(run) > 1 else (run,)


_terms: _Terms | None = None


def _table() -> _Terms:
    global _terms
    if _terms is None:
        _terms = _Terms()
    return _terms


def terms(text: str) -> list[str]:
    """The terms of a text, in order, repeated as often as they occur."""
    pattern = _WORD_ASCII if text.isascii() else _WORD
    return list(chain.from_iterable(map(_table().__getitem__, pattern.findall(text))))


def compounds(query: str) -> list[str]:
    """Neighbouring words of a query written as one: 'a chunk's id' also asks for `chunk_id` and
    `chunkId`.
    """
    words = [word.lower() for word in _WORD.findall(query) if word.lower() not in STOP_WORDS]
    pairs = (one + two for one, two in pairwise(words))
    triples = (
        one + two + three for one, two, three in zip(words, words[1:], words[2:], strict=False)
    )
    whole = [
        term
        for term in chain(pairs, triples)
        if len(term) <= _MAX_WORD and term.isascii() and term.isalpha()
    ]
    return [term for name in whole[:_MAX_COMPOUNDS] for term in terms(name)]


class Matcher:
    """Finds the words of which a term is wanted.

    What it has learnt of a word it keeps: the texts of one search share most of theirs.
    """

    def __init__(self, wanted: frozenset[str]) -> None:
        self._wanted = wanted
        self._seen: set[str] = set()
        # the words that match, with the terms that are wanted of them
        self._terms: dict[str, frozenset[str]] = {}

    def find(self, text: str) -> list[tuple[int, int, frozenset[str]]]:
        """The character ranges of the words that match, in order, each with the terms it matches
        by.
        """
        pattern = _WORD_ASCII if text.isascii() else _WORD
        words = set(pattern.findall(text))
        new = words - self._seen
        if new:
            table = _table()
            self._terms.update(
                (word, self._wanted.intersection(table[word]))
                for word in new
                if not self._wanted.isdisjoint(table[word])
            )
            self._seen |= new
        return sorted(
            (start, end, self._terms[word])
            for word in words & self._terms.keys()
            for start, end in _occurrences(text, word)
        )


@lru_cache(maxsize=64)
def matcher(wanted: frozenset[str]) -> Matcher:
    """The matcher of a search; its later pages get the same one."""
    return Matcher(wanted)


def _occurrences(text: str, word: str) -> Iterator[tuple[int, int]]:
    """Where a word stands by itself in a text.

    Looking for the few that matched is ten times faster than trying every word again.
    """
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        if not (at and _is_inner(text[at - 1])) and not (end < len(text) and _is_inner(text[end])):
            yield at, end
        at = text.find(word, end)


def _is_inner(character: str) -> bool:
    return character == "_" or character.isalnum()


# A path is short and says much: three times weighs it like a sentence. Measured on code-repos: +.03
# nDCG@10 over once (bench/quality.py).
PATH_WEIGHT = 3


# A message of three words is not worth more than one of thirty for being short, as BM25 has it. So
# many terms that nobody asks for in every message do what lowering its b from .75 to about .3
# would: +.016 nDCG@10 on meetings.
PADDING = "\x01"
PADDING_TERMS = 30


def chunk_terms(
    *, kind: str, path: str, title: str, headings: str, symbol: str, text: str
) -> list[str]:
    """The terms under which a chunk is found: what it says, and where it stands.

    A message stands in its conversation's title, day and speaker.
    """
    own = [*terms(text), *(terms(headings) if headings else ()), *(terms(symbol) if symbol else ())]
    if kind == Kind.CHAT:
        return [*own, *terms(title), *_PADDING] if title else [*own, *_PADDING]
    return [*own, *_document_terms(path, title)]


_PADDING = (PADDING,) * PADDING_TERMS


@lru_cache(maxsize=1024)  # the chunks of a document come one after the other
def _document_terms(path: str, title: str) -> tuple[str, ...]:
    return (*(terms(path) * PATH_WEIGHT), *terms(title))
