"""The pages of the documentation, for the tests beside this file."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))  # for `import generate`

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
PAGES = [page for page in PAGES if "sample" not in page.relative_to(ROOT).parts]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    """How a page is called in a test's name."""
    return page.relative_to(ROOT).as_posix()
