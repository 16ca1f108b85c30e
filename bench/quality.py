"""Search quality on test sets in BEIR layout: nDCG@10, recall@10 and @100, MRR.

With --ablate each ranking constant and choice is set to neutral in turn, to see what it is worth.
The catalog is filled once per set; only choices that change the word index make it anew.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from common import HERE, Figure, address, machine_line, parser, show, table, tell
from unspool import evaluation
from unspool.corpus import Corpus
from unspool.evaluation import beir
from unspool.index import analysis
from unspool.search import fusion, plan, ranking
from unspool.settings import Settings

BOUNDS = {"code-repos": 0.84, "cosqa": 0.42, "meetings": 0.36, "scifact": 0.70}
NEUTRAL = {
    "NAME_BOOST": 0.0,
    "FOLDER_BOOST": 0.0,
    "DEFINES_BOOST": 0.0,
    "DEFINES_WORDS_BOOST": 0.0,
    "POOL_SECOND": 0.0,
    "POOL_THIRD": 0.0,
    "CHUNK_DECAY": 1.0,
    "TEST_FACTOR": 1.0,
    "ASIDE_FACTOR": 1.0,
}
Change = Callable[[], ExitStack]
ALPHAS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 1.0)
# set, choice, nDCG@10, recall@10, recall@100, MRR
Row = tuple[str, str, float, float, float, float]


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "sets",
        type=Path,
        nargs="*",
        metavar="DIR",
        help="folders in BEIR layout; by default those in ../shared/eval",
    )
    options.add_argument(
        "--ablate", action="store_true", help="also set each ranking constant to neutral in turn"
    )
    given = options.parse_args()
    folders = given.sets or sorted(
        folder for folder in (HERE.parent.parent / "shared" / "eval").glob("*") if folder.is_dir()
    )
    if not folders:
        options.error(
            "no test set; name a folder that holds corpus.jsonl, queries.jsonl and qrels/test.tsv"
        )
    if given.ablate:
        _print([row for folder in folders for row in ablations(folder)], as_json=given.json)
        return
    figures: list[Figure] = []
    for folder in folders:
        tell(f"evaluating {folder.name}")
        figures += _figures(evaluation.evaluate(folder, settings=Settings()))
    show("quality", figures, as_json=given.json)


def _figures(found: evaluation.Evaluation) -> Iterator[Figure]:
    note = f"{found.queries} queries, {found.documents} documents, {found.chunks} chunks"
    yield Figure(
        name=f"{found.name}: nDCG@10",
        value=found.ndcg_10,
        bound=BOUNDS.get(found.name),
        at_least=True,
        note=note,
    )
    yield Figure(name=f"{found.name}: recall@10", value=found.recall_10)
    yield Figure(name=f"{found.name}: recall@100", value=found.recall_100)
    yield Figure(
        name=f"{found.name}: MRR",
        value=found.mrr,
        note=f"search {found.search_ms:.1f} ms, filling {found.index_seconds:.0f} s",
    )


def ablations(folder: Path) -> Iterator[Row]:
    """The set as it is, then with one choice after the other taken away."""
    asked = beir.read_questions(folder)
    with ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="unspool-bench-"))
        corpus = stack.enter_context(
            Corpus(Settings.of(database=address(Path(temporary) / "quality.db")))
        )
        tell(f"filling {folder.name}")
        names = evaluation._fill(corpus, folder, lambda progress: None)
        corpus.refresh()
        for choice, alpha, change in choices():
            tell(f"  {folder.name}: {choice}")
            with change():
                yield _asked(folder.name, choice, corpus, asked, names, alpha)
        for choice, change in index_choices():
            tell(f"  {folder.name}: {choice}")
            with change():
                _rebuild(corpus)
                yield _asked(folder.name, choice, corpus, asked, names, None)


def _asked(
    name: str,
    choice: str,
    corpus: Corpus,
    asked: Sequence[beir.Question],
    names: dict[tuple[str, str], str],
    alpha: float | None,
) -> Row:
    rows = [
        evaluation._score(evaluation._rank(corpus, question, names, alpha), question)
        for question in asked
    ]
    ndcg, recall_10, recall_100, mrr = (fmean(column) for column in zip(*rows, strict=True))
    return name, choice, ndcg, recall_10, recall_100, mrr


def choices() -> Iterator[tuple[str, float | None, Change]]:
    """What can be changed without touching the index: name, alpha, and the change as a context."""
    yield "as it is", None, ExitStack
    for name, value in NEUTRAL.items():
        yield (
            f"{name} {value:g}",
            None,
            lambda name=name, value=value: changed(ranking, {name: value}),
        )
    yield "no code ranking at all", None, neutral_ranking
    yield "SYMBOL_SHARE 1", None, lambda: changed(plan, {"SYMBOL_SHARE": 1.0})
    yield "language names count as words", None, lambda: changed(plan, {"_LANGUAGES": {}})
    yield (
        "words about talk count in conversations",
        None,
        lambda: changed(plan, {"_TALK": frozenset()}),
    )
    yield "no neighbours in conversations", None, lambda: changed(ranking, {"NEIGHBOUR_PARTS": ()})
    yield (
        "only the next neighbours, .4 of them",
        None,
        lambda: changed(ranking, {"NEIGHBOUR_PARTS": (0.4,)}),
    )
    yield "fusion by spread, not by deviation", None, lambda: changed(fusion, {"_moments": _spread})
    for alpha in ALPHAS:
        yield f"alpha {alpha:g}", alpha, ExitStack


def index_choices() -> Iterator[tuple[str, Change]]:
    """What changes the word index."""
    for weight in (0, 1):
        yield (
            f"PATH_WEIGHT {weight}",
            lambda weight=weight: changed(analysis, {"PATH_WEIGHT": weight}),
        )
    yield "messages are not padded", lambda: changed(analysis, {"_PADDING": ()})
    yield "stop words kept", lambda: changed(analysis, {"STOP_WORDS": frozenset(), "_terms": None})


def neutral_ranking() -> ExitStack:
    """Ranking by the fused score alone."""
    return changed(ranking, NEUTRAL)


def changed(module: object, values: dict[str, object]) -> ExitStack:
    """The module with other values, until the context ends."""
    stack = ExitStack()
    for name, value in values.items():
        stack.enter_context(patch.object(module, name, value))
    return stack


def _rebuild(corpus: Corpus) -> None:
    """Make the index again under the present rules."""
    for cached in (analysis._extract_document_terms, ranking._analyse_path, ranking._analyse_names):
        cached.cache_clear()
    for project in corpus._access.resolve("*"):
        corpus._resources.session.indexes.drop(project.id)
    corpus.refresh()


def _spread(scores: npt.NDArray[np.float32] | None) -> tuple[float, float]:
    """In place of mean and deviation: the lowest, and how far the highest is from it."""
    return (
        (0.0, 0.0)
        if scores is None or not len(scores)
        else (float(np.nanmin(scores)), float(np.nanmax(scores) - np.nanmin(scores)))
    )


def _print(rows: Sequence[Row], *, as_json: bool) -> None:
    if as_json:
        keys = ("set", "choice", "ndcg_10", "recall_10", "recall_100", "mrr")
        print(
            json.dumps(
                {
                    "bench": "quality",
                    "ablations": [dict(zip(keys, row, strict=True)) for row in rows],
                }
            )
        )
        return
    base = {row[0]: row[2] for row in rows if row[1] == "as it is"}
    lines = [
        [
            row[0],
            row[1],
            f"{row[2]:.4f}",
            f"{row[2] - base[row[0]]:+.4f}",
            *(f"{value:.4f}" for value in row[3:]),
            "",
        ]
        for row in rows
    ]
    table(["set", "choice", "nDCG@10", "change", "recall@10", "recall@100", "MRR", ""], lines)
    print(machine_line())


if __name__ == "__main__":
    main()
