"""Query plans: the terms and identifiers of a query, and the weight of meaning against words.

Pure.
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

# Candidates from each retriever. 64 to 100 differ by less than .005 nDCG@10 on code-repos, cosqa
# and scifact (bench/quality.py).
POOL = 100

# Code in a query: snake_case, camelCase, dotted or scoped names, a call, anything in back-ticks.
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
# Words about talking: in a question about a conversation they name nothing that was said in it.
_TALK = frozenset(
    analysis.extract_terms(
        "say said tell told talk talked speak spoke mention discuss discussion ask asked think "
        "thought opinion summarize summary meeting conversation"
    )
)
_BARE = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan:
    """Execution plan of a query."""

    query: str
    terms: tuple[str, ...]  # with repeats
    # terms for the word index: those of the query, and neighbouring words as one name
    weights: Mapping[str, float]
    # terms that do not distinguish candidates of one kind, with that kind: a language, or chat
    idle: tuple[tuple[str, str], ...]
    # names that the query spells as code, in lower case and without underscores
    identifiers: frozenset[str]
    alpha: float
    # candidates to rank from each retriever; twice as many from a single one
    pool: int

    @property
    def uses_words(self) -> bool:
        """True if the word index is searched."""
        return self.alpha < 1 and bool(self.terms)

    @property
    def uses_vectors(self) -> bool:
        """True if the vector index is searched."""
        return self.alpha > 0


def make_plan(
    query: str, *, alpha: float | None, best_alpha: float = 0.0, limit: int, depth: int
) -> QueryPlan:
    """Validate a query and plan its execution.

    `best_alpha` is used if `alpha` is None. A window of `depth` candidates is filled by both
    retrievers, half by each.
    """
    query = check_query(query)
    if alpha is not None and not (isinstance(alpha, int | float) and 0 <= alpha <= 1):
        raise InputError(f"alpha is {alpha}; give a number from 0 (words only) to 1 (meaning only)")
    terms = _list_terms(query)
    identifiers = _list_identifiers(query)
    if alpha is None:
        alpha = _choose_alpha(query, terms, identifiers, best_alpha)
    pool = max(POOL, depth // 2)
    return QueryPlan(
        query=query,
        terms=terms,
        weights=_weigh_terms(query, terms),
        idle=_list_idle_terms(terms),
        identifiers=identifiers,
        alpha=alpha,
        pool=max(pool if 0 < alpha < 1 and terms else 2 * pool, limit),
    )


def check_query(query: str) -> str:
    """Return a valid query. Lone surrogates, which no index contains, are replaced."""
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


def _list_terms(query: str) -> tuple[str, ...]:
    terms: list[str] = []
    distinct: set[str] = set()
    for term in analysis.extract_terms(query):
        if term in distinct or len(distinct) < MAX_TERMS:
            distinct.add(term)
            terms.append(term)
    return tuple(terms)


def _weigh_terms(query: str, terms: tuple[str, ...]) -> dict[str, float]:
    """Weigh each term by its frequency, and neighbouring words read as one name by a third."""
    weights: dict[str, float] = dict(Counter(terms))
    for term in analysis.extract_compounds(query):
        weights.setdefault(term, COMPOUND_WEIGHT)
    return weights


def _list_idle_terms(terms: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    distinct = dict.fromkeys(terms)
    return (
        *((term, _LANGUAGES[term]) for term in distinct if term in _LANGUAGES),
        *((term, Kind.CHAT.value) for term in distinct if term in _TALK),
    )


def drop_idle_terms(
    plan: QueryPlan, majority: str, weights: Mapping[str, float]
) -> Mapping[str, float]:
    """Return the weights without the terms that are idle among the majority of candidates.

    'python sort list' asked of Python code means the list, not the few chunks that say 'python':
    +.008 nDCG@10 on cosqa. 'what did they say about the budget' asked of a conversation means the
    budget: +.010 on meetings.
    """
    idle = {term for term, kind in plan.idle if kind == majority}
    if not majority or idle >= set(plan.terms):
        return weights
    return {term: weight for term, weight in weights.items() if term not in idle}


def _list_identifiers(query: str) -> frozenset[str]:
    names = [word for match in _IDENTIFIER.findall(query) for word in _BARE.findall(match)]
    words = query.split()
    if len(words) == 1:  # a query of one word is as likely a name as a word
        names += _BARE.findall(query)
    return frozenset(name.replace("_", "").lower() for name in names if len(name) > 1)


def _choose_alpha(
    query: str, terms: tuple[str, ...], identifiers: frozenset[str], best: float
) -> float:
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
