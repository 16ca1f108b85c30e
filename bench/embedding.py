"""The default embedder's recipe against plainer ones, by meaning alone: nDCG@10 without words and
without code ranking.

A recipe is how often a token counts that occurs n times (plain: n, sqrt: its root, log1p: log(1 +
n)), and whether runs of white space are folded into one space first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from common import Figure, parser, show, tell
from quality import neutral_ranking
from unspool import embedders, evaluation
from unspool.embedders import static
from unspool.settings import Settings

SCALES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "plain": lambda counts: counts,
    "sqrt": np.sqrt,
    "log1p": np.log1p,
}
SPACES = ("folded", "kept")


class RecipeEmbedder(static.StaticEmbedder):
    """The static embedder with another recipe, named `scale+spaces`."""

    def __init__(self, model: str, options: object = None) -> None:
        super().__init__()
        scale, _, self._spaces = model.partition("+")
        self._scale = SCALES[scale]
        self.name = f"recipe:{model}"  # type: ignore[misc]  # a vector space of its own

    def embed_passages(self, texts: Sequence[str]) -> np.ndarray:
        rows = np.empty((len(texts), self.dimension), dtype=np.float32)
        weights = self._weights
        for index, text in enumerate(texts):
            given = " ".join(text.split()) if self._spaces == "folded" else text
            counts = Counter(
                chain.from_iterable(
                    self._segments[segment] for segment in static._split(" " + given)
                )
            )
            scales = self._scale(np.fromiter(counts.values(), dtype=np.float32, count=len(counts)))
            rows[index] = (
                scales @ weights[np.fromiter(counts.keys(), dtype=np.intp, count=len(counts))]
            )
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows


def main() -> None:
    options = parser(__doc__)
    options.add_argument("sets", type=Path, nargs="+", metavar="DIR", help="folders in BEIR layout")
    given = options.parse_args()
    embedders.PROVIDERS["recipe"] = embedders.Provider(
        "embedding:RecipeEmbedder", "", "", "another recipe"
    )
    figures: list[Figure] = []
    for folder in given.sets:
        found: dict[str, float] = {}
        for recipe in [
            "static",
            *(f"recipe:{scale}+{spaces}" for scale in SCALES for spaces in SPACES),
        ]:
            tell(f"{folder.name}: {recipe}")
            with neutral_ranking():
                found[recipe] = evaluation.evaluate(
                    folder, settings=Settings.of(embedder=recipe), alpha=1.0
                ).ndcg_10
        best = found["static"]
        figures += [
            Figure(
                name=f"{folder.name}: {recipe.removeprefix('recipe:')}",
                value=value,
                note="the product's" if recipe == "static" else f"{value - best:+.4f}",
            )
            for recipe, value in found.items()
        ]
    show("embedding, nDCG@10 by meaning alone", figures, as_json=given.json)


if __name__ == "__main__":
    main()
