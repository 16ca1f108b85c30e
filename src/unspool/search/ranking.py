"""Code-aware ranking: what a file is called, what a chunk defines, how many chunks of one file are enough. Pure.

Every constant was set on code-repos, cosqa and scifact together with `bench/quality.py`, which prints what each is worth.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unspool.catalog.reading import Candidate
from unspool.words import analysis

NAME_BOOST = 0.45  # for a file name all of whose terms are asked for; in proportion for fewer
FOLDER_BOOST = 0.10  # the same for the folders above it
DEFINES_BOOST = 0.30  # the chunk defines a name that the query spells as code
DEFINES_WORDS_BOOST = 0.15  # the chunk defines a name all of whose words are in the query
POOL_SECOND, POOL_THIRD = 0.25, 0.10  # a file's best chunk gains these parts of its next two
CHUNK_DECAY = 0.80  # each further chunk of a file counts for this much of the one before
TEST_FACTOR = 0.70  # tests, unless the query asks for tests
ASIDE_FACTOR = 0.85  # examples, benchmarks, vendored and legacy code

_TEST = re.compile(r"(^|/)(tests?|testing|specs?|__tests__|__mocks__|fixtures?|testdata)/|(^|/)(test_[^/]*|conftest)\.|[_.-](test|tests|spec)\.|[a-z]Tests?\.")
_ASIDE = re.compile(r"(^|/)(examples?|samples?|demos?|docs_src|benchmarks?|bench|third_party|vendor|legacy|compat|deprecated)(/|[_.]|$)")
_ASKS_FOR_TESTS = frozenset(analysis.terms("test tests testing spec fixture mock"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A candidate with its final score and the reasons for it, strongest first."""

    candidate: Candidate
    score: float
    fused: float
    reasons: tuple[str, ...] = ()


def rank(candidates: Sequence[Candidate], fused: Mapping[int, float], *, terms: Sequence[str], identifiers: frozenset[str]) -> list[Ranked]:
    """Candidates best first; ties by path and line, so that the order is the same every time."""
    wanted = frozenset(terms)
    boosted = [_boosted(candidate, fused[candidate.id], wanted, identifiers) for candidate in candidates]
    pooled = _pool_files(boosted)
    return _spread_files(pooled)


def _boosted(candidate: Candidate, fused: float, wanted: frozenset[str], identifiers: frozenset[str]) -> Ranked:
    folder, _, name = candidate.path.rpartition("/")
    reasons: list[str] = []
    score = fused
    share = _share(analysis.terms(name.partition(".")[0] or name), wanted)
    if share:
        score += NAME_BOOST * share
        reasons.append("file name")
    share = _share(analysis.terms(folder), wanted)
    if share:
        score += FOLDER_BOOST * share
        reasons.append("folder")
    if candidate.defines:
        gain, why = _definition(candidate.defines, wanted, identifiers)
        score += gain
        reasons += why
    factor, why = _aside(candidate.path, wanted)
    return Ranked(candidate=candidate, score=score * factor, fused=fused, reasons=(*reasons, *why))


def _share(terms: Sequence[str], wanted: frozenset[str]) -> float:
    distinct = set(terms)
    return len(distinct & wanted) / len(distinct) if distinct else 0.0


def _definition(defines: str, wanted: frozenset[str], identifiers: frozenset[str]) -> tuple[float, list[str]]:
    names = defines.split()
    if identifiers:
        for name in names:
            if name.replace("_", "").lower() in identifiers:
                return DEFINES_BOOST, [f"defines {name}"]
    for name in names:
        parts = set(analysis.terms(name))
        if parts and parts - {name.replace("_", "").lower()} <= wanted and parts & wanted:
            return DEFINES_WORDS_BOOST, [f"defines {name}"]
    return 0.0, []


def _aside(path: str, wanted: frozenset[str]) -> tuple[float, list[str]]:
    if _TEST.search(path) and not wanted & _ASKS_FOR_TESTS:
        return TEST_FACTOR, ["a test, ranked lower"]
    if _ASIDE.search(path):
        return ASIDE_FACTOR, ["an example or copy, ranked lower"]
    return 1.0, []


def _pool_files(ranked: Sequence[Ranked]) -> list[Ranked]:
    """A file's best chunk takes in a part of its next two: three good chunks say more than one."""
    files: dict[int, list[Ranked]] = defaultdict(list)
    for one in ranked:
        files[one.candidate.document_id].append(one)
    out: list[Ranked] = []
    for chunks in files.values():
        chunks.sort(key=_order)
        best, rest = chunks[0], chunks[1:]
        extra = sum(part * one.score for part, one in zip((POOL_SECOND, POOL_THIRD), rest, strict=False))
        out.append(Ranked(candidate=best.candidate, score=best.score + extra, fused=best.fused, reasons=best.reasons))
        out += rest
    return out


def _spread_files(ranked: Sequence[Ranked]) -> list[Ranked]:
    """Each further chunk of a file counts for less, so that one file does not fill the page."""
    seen: dict[int, int] = defaultdict(int)
    out: list[Ranked] = []
    for one in sorted(ranked, key=_order):
        count = seen[one.candidate.document_id]
        seen[one.candidate.document_id] += 1
        out.append(Ranked(candidate=one.candidate, score=one.score * CHUNK_DECAY**count, fused=one.fused, reasons=one.reasons))
    return sorted(out, key=_order)


def _order(one: Ranked) -> tuple[float, str, int, int]:
    return (-one.score, one.candidate.path, one.candidate.first_line, one.candidate.id)
