"""What a query asks for: its terms, the identifiers in it, and how much meaning weighs against
words. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from unspool.domain.documents import Kind
from unspool.domain.queries import MAX_QUERY_CHARACTERS
from unspool.errors import InputError
from unspool.index import analysis

# A query's first words carry it; beyond this many different terms the word search only gets slower.
MAX_TERMS = 64

# What people write as code: snake_case, camelCase, dotted or scoped names, a call, anything in
# back-ticks.
_IDENTIFIER = re.compile(
    r"`[^`]+`|\b\w*[a-z0-9][A-Z]\w*\b|\b\w+_\w*\b|\b_\w+\b|\b\w+(?:(?:\.|::|->|#)\w+)+\b|\b\w+(?=\(\))"
)
_LANGUAGES = {
    term: language
    for language, names in {
        "python": "python py",
        "javascript": "javascript js",
        "typescript": "typescript ts",
        "java": "java",
        "go": "golang go",
        "rust": "rust",
        "ruby": "ruby",
        "php": "php",
        "csharp": "csharp",
        "cpp": "cpp",
        "kotlin": "kotlin",
        "swift": "swift",
        "scala": "scala",
        "lua": "lua",
        "bash": "bash",
        "sql": "sql",
    }.items()
    for term in analysis.extract_terms(names)
}
# What is said of talk itself: in a question about a conversation it names nothing that was said
# there.
_TALK = frozenset(
    analysis.extract_terms(
        "say said tell told talk talked speak spoke mention discuss discussion ask asked think "
        "thought opinion summarize summary meeting conversation"
    )
)
_BARE = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a query is going to be answered."""

    query: str
    terms: tuple[str, ...]  # with repeats
    # what the word index is asked for: the terms, and neighbouring words as one
    weights: Mapping[str, float]
    # terms that say nothing among candidates of one sort, with that sort: a language, or talk
    idle: tuple[tuple[str, str], ...]
    # bare names, in lower case without underscores, that the query spells as code
    identifiers: frozenset[str]
    alpha: float
    # candidates from each retriever; where only one is asked, from that as many as from both
    pool: int

    @property
    def uses_words(self) -> bool:
        return self.alpha < 1 and bool(self.terms)

    @property
    def uses_vectors(self) -> bool:
        return self.alpha > 0


def make(query: str, *, alpha: float | None, best_alpha: float, limit: int, pool: int) -> Plan:
    """Check a query and decide how to answer it. `best_alpha` is the embedder's own."""
    query = checked(query)
    if alpha is not None and not (isinstance(alpha, int | float) and 0 <= alpha <= 1):
        raise InputError(f"alpha is {alpha}; give a number from 0 (words only) to 1 (meaning only)")
    terms = _terms(query)
    identifiers = _identifiers(query)
    if alpha is None:
        alpha = _alpha(query, terms, identifiers, best_alpha)
    return Plan(
        query=query,
        terms=terms,
        weights=_weights(query, terms),
        idle=_idle(terms),
        identifiers=identifiers,
        alpha=alpha,
        pool=max(pool if 0 < alpha < 1 and terms else 2 * pool, limit),
    )


def checked(query: str) -> str:
    """A query that can be asked; lone surrogates, which are in no index, are replaced."""
    if not isinstance(query, str):
        raise InputError(f"the query is a {type(query).__name__}; give text")
    query = query.encode("utf-8", "replace").decode()
    if not query.strip():
        raise InputError("the query is empty; ask for something")
    if len(query) > MAX_QUERY_CHARACTERS:
        raise InputError(
            f"the query has {len(query)} characters; give at most {MAX_QUERY_CHARACTERS}, the "
            f"question rather than the document"
        )
    return query


def _terms(query: str) -> tuple[str, ...]:
    kept: list[str] = []
    distinct: set[str] = set()
    for term in analysis.extract_terms(query):
        if term in distinct or len(distinct) < MAX_TERMS:
            distinct.add(term)
            kept.append(term)
    return tuple(kept)


def _weights(query: str, terms: tuple[str, ...]) -> dict[str, float]:
    """How much each term weighs: as often as it is said, and a third for neighbouring words read
    as one name.
    """
    weights: dict[str, float] = dict(Counter(terms))
    for term in analysis.extract_compounds(query):
        weights.setdefault(term, COMPOUND_WEIGHT)
    return weights


def _idle(terms: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    distinct = dict.fromkeys(terms)
    return (
        *((term, _LANGUAGES[term]) for term in distinct if term in _LANGUAGES),
        *((term, Kind.CHAT.value) for term in distinct if term in _TALK),
    )


def without_idle(plan: Plan, majority: str, weights: Mapping[str, float]) -> Mapping[str, float]:
    """The terms to score by where most candidates are of one sort.

    'python sort list' asked of Python code means the list, not the few chunks that say 'python':
    +.008 nDCG@10 on cosqa. 'what did they say about the budget' asked of a conversation means the
    budget: +.010 on meetings.
    """
    named = {term for term, sort in plan.idle if sort == majority}
    if named >= set(plan.terms):
        return weights
    return {term: weight for term, weight in weights.items() if term not in named}


def _identifiers(query: str) -> frozenset[str]:
    spelled = [word for match in _IDENTIFIER.findall(query) for word in _BARE.findall(match)]
    words = query.split()
    if len(words) == 1:  # a query of one word is as likely a name as a word
        spelled += _BARE.findall(query)
    return frozenset(name.replace("_", "").lower() for name in spelled if len(name) > 1)


def _alpha(query: str, terms: tuple[str, ...], identifiers: frozenset[str], best: float) -> float:
    if not terms:
        return 1.0  # nothing but stop words or signs: only meaning can answer
    words = query.split()
    if len(words) == 1 or (identifiers and len(words) == len(_IDENTIFIER.findall(query))):
        return best * SYMBOL_SHARE
    return best


# 'chunk id' is more often `chunk_id` than not: a third of a word's weight gains .008 nDCG@10 on
# code-repos and .002 on scifact and loses .01 on cosqa; the whole weight loses .02 there.
COMPOUND_WEIGHT = 0.35

# A query that is nothing but a name is looked up, not interpreted.
SYMBOL_SHARE = 0.5
