"""Extraction of terms from texts, for the word index and for queries. Pure.

Identifiers are split and also kept whole, words are stemmed, stop words are dropped. So
`parseConfig`, `parse_config` and 'parse config' share terms. Each distinct word is analysed once
per process and cached: a text costs one regular expression and a few hundred look-ups.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import chain, pairwise

from unspool.domain.documents import Kind

# A word is a run of letters, digits and underscores. CJK texts contain no spaces, so runs of CJK
# characters are split into pairs below.
_WORD = re.compile(r"\w+")
_WORD_ASCII = re.compile(r"[A-Za-z0-9_]+")  # for ASCII text, in two thirds of the time
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_MAX_WORD = 64  # longer runs are hashes, base64 and minified code, which nobody searches for
_MAX_COMPOUNDS = 32
_MAX_CACHED = 400_000  # words; about 80 MB at worst

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


class _TermTable(dict[str, tuple[str, ...]]):
    """Terms of each word, filled on demand."""

    def __init__(self) -> None:
        super().__init__()
        import Stemmer

        self._stem = Stemmer.Stemmer("english").stemWord
        # a stemmer keeps state between calls; reentrant, because mixed words look up their parts
        self._lock = threading.RLock()

    def __missing__(self, word: str) -> tuple[str, ...]:
        with self._lock:
            if len(self) >= _MAX_CACHED:
                self.clear()
            terms = self[word] = self._analyse(word)
        return terms

    def _analyse(self, word: str) -> tuple[str, ...]:
        if len(word) > _MAX_WORD:
            return ()
        if not word.isascii() and _CJK.search(word):
            return tuple(term for run in _CJK.split(word) if run for term in self[run]) + tuple(
                pair for run in _CJK.findall(word) for pair in _split_pairs(run)
            )
        if word.isalpha() and (word.islower() or word[1:].islower()):
            lowered = word.lower()
            return () if lowered in STOP_WORDS else (self._stem(lowered),)
        parts = [part.lower() for part in _PART.findall(word)]
        kept = [self._stem(part) for part in parts if part not in STOP_WORDS]
        if len(parts) < 2:
            return tuple(kept)
        return (*kept, self._stem("".join(parts)))


def _split_pairs(run: str) -> Iterable[str]:
    return (run[i : i + 2] for i in range(len(run) - 1)) if len(run) > 1 else (run,)


@cache
def _get_table() -> _TermTable:
    """Return the table of this process; the stemmer is imported when it is first needed."""
    return _TermTable()


def extract_terms(text: str) -> list[str]:
    """Return the terms of a text, in order and with repetitions."""
    return list(chain.from_iterable(map(_get_table().__getitem__, _find_words(text))))


def _find_words(text: str) -> list[str]:
    return (_WORD_ASCII if text.isascii() else _WORD).findall(text)


def extract_compounds(query: str) -> list[str]:
    """Return the terms of neighbouring words written as one word.

    So 'a chunk's id' also finds `chunk_id` and `chunkId`.
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
    return [term for name in whole[:_MAX_COMPOUNDS] for term in extract_terms(name)]


class Matcher:
    """Matcher of the words that have a wanted term.

    Words are cached, because the texts of one search share most of them.
    """

    def __init__(self, wanted: frozenset[str]) -> None:
        self._wanted = wanted
        self._seen: set[str] = set()
        # the wanted terms of each word that matches
        self._terms: dict[str, frozenset[str]] = {}

    def find(self, text: str) -> list[tuple[int, int, frozenset[str]]]:
        """Return the character range of each matching word, in order, with the wanted terms."""
        words = set(_find_words(text))
        table = _get_table()
        for word in words - self._seen:
            if wanted := self._wanted.intersection(table[word]):
                self._terms[word] = wanted
        self._seen |= words
        return sorted(
            (start, end, self._terms[word])
            for word in words & self._terms.keys()
            for start, end in _find_occurrences(text, word)
        )


@lru_cache(maxsize=64)
def get_matcher(wanted: frozenset[str]) -> Matcher:
    """Return the matcher of a search; later pages of the search share it."""
    return Matcher(wanted)


def _find_occurrences(text: str, word: str) -> Iterator[tuple[int, int]]:
    """Yield the character ranges of a whole word in a text.

    Searching for the few words that matched is ten times faster than testing every word again.
    """
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        if not (at and _is_inner(text[at - 1])) and not (end < len(text) and _is_inner(text[end])):
            yield at, end
        at = text.find(word, end)


def _is_inner(character: str) -> bool:
    return character == "_" or character.isalnum()


# A path is short but informative: repeated three times it weighs as much as a sentence. Measured on
# code-repos: +.03 nDCG@10 over once (bench/quality.py).
PATH_WEIGHT = 3


# BM25 prefers a message of three words to one of thirty, although short messages are not better.
# This many padding terms in every message act like lowering b from .75 to about .3: +.016 nDCG@10
# on meetings.
PADDING = "\x01"
PADDING_TERMS = 30


def extract_chunk_terms(
    *, kind: str, path: str, title: str, headings: str, symbol: str, text: str
) -> list[str]:
    """Return the terms that find a chunk: those of its text, headings, symbol, path and title.

    The title of a message is its conversation's title, day and speaker.
    """
    own = [*extract_terms(text), *extract_terms(headings), *extract_terms(symbol)]
    if kind == Kind.CHAT:
        return [*own, *extract_terms(title), *_PADDING]
    return [*own, *_extract_document_terms(path, title)]


_PADDING = (PADDING,) * PADDING_TERMS


@lru_cache(maxsize=1024)  # the chunks of a document come one after the other
def _extract_document_terms(path: str, title: str) -> tuple[str, ...]:
    return (*(extract_terms(path) * PATH_WEIGHT), *extract_terms(title))
