"""Prefixes and pooling of well-known models, as their makers publish them.

The files in a model's folder take precedence.
"""

from __future__ import annotations

from typing import NamedTuple


class Family(NamedTuple):
    """Prefixes and pooling of a family of models.

    The first family whose `part` occurs in a model's name, in lower case, counts.
    """

    part: str
    query: str = ""
    passage: str = ""
    pooling: str = "mean"


_SEARCHED = "Represent this sentence for searching relevant passages: "

FAMILIES = (
    Family("e5-mistral"),  # needs an instruction by the user
    Family("-instruct"),
    Family("e5-", query="query: ", passage="passage: "),
    Family("bge-m3", pooling="cls"),
    Family("bge-", query=_SEARCHED, pooling="cls"),
    Family("nomic-embed", query="search_query: ", passage="search_document: "),
    Family("mxbai-embed", query=_SEARCHED, pooling="cls"),
    Family("arctic-embed-l-v2", query="query: ", pooling="cls"),
    Family("arctic-embed-m-v2", query="query: ", pooling="cls"),
    Family("arctic-embed2", query="query: ", pooling="cls"),
    Family("arctic-embed", query=_SEARCHED, pooling="cls"),
    Family("embeddinggemma", query="task: search result | query: ", passage="title: none | text: "),
    Family("gte-", pooling="cls"),
)
_OTHERS = Family("")


def find_family(model: str) -> Family:
    """Return the family of a model by its name."""
    return next((family for family in FAMILIES if family.part in model.lower()), _OTHERS)
