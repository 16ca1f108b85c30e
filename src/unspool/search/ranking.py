"""Code-aware ranking: what a file is called, what a chunk defines, how many chunks of one file are
enough. Pure.

Every constant was set on code-repos, cosqa and scifact together with `bench/quality.py`, which
prints what each is worth.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from unspool.catalog.chunks import REACH, Candidate
from unspool.domain.documents import Kind
from unspool.index import analysis

NAME_BOOST = 0.35  # for a file name all of whose terms are asked for; in proportion for fewer
FOLDER_BOOST = 0.10  # the same for the folders above it
DEFINES_BOOST = 0.30  # the chunk defines a name that the query spells as code
DEFINES_WORDS_BOOST = 0.15  # the chunk defines a name all of whose words are in the query
DEFINES_WORD_BOOST = 0.10  # the same for a name of one word, which says less
POOL_SECOND, POOL_THIRD = 0.25, 0.10  # a file's best chunk gains these parts of its next two
CHUNK_DECAY = 0.80  # each further chunk of a file counts for this much of the one before
# what a message gains of the one before it and the one after, and how that falls with each step
NEIGHBOUR_PART, NEIGHBOUR_DECAY = 0.5, 0.8
NEIGHBOUR_PARTS = tuple(NEIGHBOUR_PART * NEIGHBOUR_DECAY**step for step in range(REACH))
PART_DECAY = 0.50  # each further part of a long message counts for this much of the one before
TEST_FACTOR = 0.70  # tests, unless the query asks for tests
ASIDE_FACTOR = 0.85  # examples, benchmarks, vendored and legacy code

_TEST = re.compile(
    r"(^|/)(tests?|testing|specs?|__tests__|__mocks__|fixtures?|testdata)/|(^|/)(test_[^/]*|conftest)\.|[_.-](test|tests|spec)\.|[a-z]Tests?\."
)
_ASIDE = re.compile(
    r"(^|/)(examples?|samples?|demos?|docs_src|benchmarks?|bench|third_party|vendor|legacy|compat|deprecated)(/|[_.]|$)"
)
_ASKS_FOR_TESTS = frozenset(analysis.extract_terms("test tests testing spec fixture mock"))


class Ranked(NamedTuple):
    """A candidate with its final score and the reasons for it, strongest first."""

    candidate: Candidate
    score: float
    fused: float
    reasons: tuple[str, ...] = ()


def share_scores(messages: Iterable[Candidate], fused: Mapping[int, float]) -> dict[int, float]:
    """Return the scores of messages with a part of their neighbours' scores.

    An answer is seldom in the words of the question: it is beside the message that contains them.
    Without this meetings has nDCG@10 .352; with .4 of the next ones alone .390; with these .435,
    and the first hit is right nearly as often (bench/quality.py --ablate).
    """
    own: dict[int, dict[int, float]] = defaultdict(dict)
    ids: dict[int, tuple[int, int]] = {}
    for one in messages:
        own[one.document_id][one.position] = fused[one.id]
        ids[one.id] = one.document_id, one.position
    out = {}
    for id_, (document, at) in ids.items():
        scores = own[document]
        near = sum(
            part * (scores.get(at - step, 0.0) + scores.get(at + step, 0.0))
            for step, part in enumerate(NEIGHBOUR_PARTS, 1)
        )
        out[id_] = scores[at] + near
    return out


def rank_candidates(
    candidates: Sequence[Candidate],
    fused: Mapping[int, float],
    *,
    terms: Sequence[str],
    identifiers: frozenset[str],
) -> list[Ranked]:
    """Return the candidates best first. Ties are ordered by path and line."""
    wanted = frozenset(terms)
    tests_wanted = not wanted.isdisjoint(_ASKS_FOR_TESTS)
    files: dict[int, list[Ranked]] = defaultdict(list)
    said: dict[tuple[int, int], list[Ranked]] = defaultdict(list)
    for candidate in candidates:
        score = fused[candidate.id]
        if candidate.kind == Kind.CHAT:  # each message stands for itself
            said[candidate.document_id, candidate.first_line].append(
                Ranked(candidate, score, score)
            )
        else:
            files[candidate.document_id].append(
                _boost(candidate, score, wanted, identifiers, tests_wanted)
            )
    return sorted(
        chain(
            *(_decay_parts(parts) for parts in said.values()),
            *(_pool_chunks(chunks) for chunks in files.values()),
        ),
        key=_sort_key,
    )


def group_copies(
    order: Sequence[Ranked], known: frozenset[int]
) -> tuple[list[tuple[Ranked, bool]], list[Ranked]]:
    """Return the order with each copy behind the best of its text, and the copies of known texts.

    A copy is marked with True.
    """
    groups: dict[int, list[Ranked]] = {}
    for one in order:
        groups.setdefault(one.candidate.text_key, []).append(one)
    repeats = [one for key in known & groups.keys() for one in groups.pop(key)]
    return [(one, rank > 0) for group in groups.values() for rank, one in enumerate(group)], repeats


def _boost(
    candidate: Candidate,
    fused: float,
    wanted: frozenset[str],
    identifiers: frozenset[str],
    tests_wanted: bool,
) -> Ranked:
    name, folder, is_test, is_aside = _analyse_path(candidate.path)
    reasons: list[str] = []
    score = fused
    if not wanted.isdisjoint(name):
        score += NAME_BOOST * len(name & wanted) / len(name)
        reasons.append("file name")
    if not wanted.isdisjoint(folder):
        score += FOLDER_BOOST * len(folder & wanted) / len(folder)
        reasons.append("folder")
    if candidate.defines:
        gain, defined = _score_definition(candidate.defines, wanted, identifiers)
        if gain:
            score += gain
            reasons.append(f"defines {defined}")
    if is_test and not tests_wanted:
        score *= TEST_FACTOR
        reasons.append("a test, ranked lower")
    elif is_aside:
        score *= ASIDE_FACTOR
        reasons.append("an example or copy, ranked lower")
    return Ranked(candidate, score, fused, tuple(reasons))


@lru_cache(maxsize=100_000)
def _analyse_path(path: str) -> tuple[frozenset[str], frozenset[str], bool, bool]:
    """Return the terms of the file name and of the folders, and whether the path is a test or an
    example.
    """
    folder, _, name = path.rpartition("/")
    stem = name.partition(".")[0] or name
    return (
        frozenset(analysis.extract_terms(stem)),
        frozenset(analysis.extract_terms(folder)),
        bool(_TEST.search(path)),
        bool(_ASIDE.search(path)),
    )


@lru_cache(maxsize=100_000)
def _analyse_names(defines: str) -> tuple[tuple[str, str, frozenset[str]], ...]:
    """Return each defined name as written, as compared, and as its words."""
    out = []
    for name in defines.split("\n"):
        bare = name.replace("_", "").replace(" ", "").lower()
        out.append(
            (
                name,
                bare,
                frozenset(analysis.extract_terms(name)) - {bare}
                or frozenset(analysis.extract_terms(name)),
            )
        )
    return tuple(out)


def _score_definition(
    defines: str, wanted: frozenset[str], identifiers: frozenset[str]
) -> tuple[float, str]:
    names = _analyse_names(defines)
    for name, bare, _ in names:
        if bare in identifiers:
            return DEFINES_BOOST, name
    best = (0.0, "")
    for name, _, words in names:
        if words <= wanted and words:
            gain = DEFINES_WORDS_BOOST if len(words) > 1 else DEFINES_WORD_BOOST
            if gain > best[0]:
                best = gain, name
    return best


def _decay_parts(parts: list[Ranked]) -> list[Ranked]:
    """Lower the scores of further parts of a long message, so that it does not fill the page."""
    parts.sort(key=_sort_key)
    return [one._replace(score=one.score * PART_DECAY**rank) for rank, one in enumerate(parts)]


def _pool_chunks(chunks: list[Ranked]) -> list[Ranked]:
    """Add a part of the next two scores to the best chunk of a file, and lower the further ones.

    So one file does not fill the page.
    """
    if len(chunks) == 1:
        return chunks
    chunks.sort(key=_sort_key)
    first = chunks[0].score
    # a paper that was cut in two says no more than one that was not: pooling loses .026 on scifact
    if chunks[0].candidate.kind == Kind.CODE:
        first += POOL_SECOND * chunks[1].score + (
            POOL_THIRD * chunks[2].score if len(chunks) > 2 else 0.0
        )
    scores = [first, *(one.score * CHUNK_DECAY**rank for rank, one in enumerate(chunks[1:], 1))]
    return [one._replace(score=score) for one, score in zip(chunks, scores, strict=True)]


def _sort_key(one: Ranked) -> tuple[float, str, int, int]:
    return (-one.score, one.candidate.path, one.candidate.first_line, one.candidate.id)
