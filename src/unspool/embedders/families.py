"""What the makers of well-known models say about how to use them.

A model's own folder, where there is one, knows better.
"""

from __future__ import annotations

from typing import NamedTuple


class Family(NamedTuple):
    """How a family of models wants to be asked.

    `part` is looked for in a model's name, in lower case; the first that fits counts.
    """

    part: str
    query: str = ""
    passage: str = ""
    pooling: str = "mean"


_SEARCHED = "Represent this sentence for searching relevant passages: "

FAMILIES = (
    Family("e5-mistral"),  # wants an instruction of the user's own
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


def family_of(model: str) -> Family:
    """The family that a model belongs to, by its name."""
    return next((family for family in FAMILIES if family.part in model.lower()), _OTHERS)
