"""Single values as JSON has them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from unspool.domain.documents import Scalar


def line(value: Mapping[str, Any]) -> str:
    """One object as one line."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))


def moment(value: datetime | None) -> str | None:
    """A time as text."""
    return None if value is None else value.isoformat()


def finite(value: float) -> float | None:
    """A number, or null for what JSON has no word for."""
    return value if math.isfinite(value) else None


def metadata(metadata: Mapping[str, Scalar]) -> dict[str, Scalar | None]:
    """A document's own metadata."""
    return {
        key: finite(value) if isinstance(value, float) else value for key, value in metadata.items()
    }
