"""How many requests may be under way: all together, and of one key, so that nobody takes the
places of all the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from unspool.errors import ThrottledError

SHARE = 4  # a key gets one part in so many


class Room:
    """So many places, of which one key takes a part.

    Whoever has no key is not told apart from others, and bound by all places alone.
    """

    def __init__(self, most: int, what: str, *, each: int | None = None) -> None:
        self._most = most
        self._each = max(1, most // SHARE) if each is None else each
        self._what = what
        self._of: Counter[str] = Counter()

    @contextmanager
    def place(self, key: str = "") -> Iterator[None]:
        """A place until the block ends; an error where there is none."""
        if self._of.total() >= self._most:
            raise ThrottledError(
                f"{self._most} {self._what} are under way already; try again in a second",
                retry_after=1,
            )
        if key and self._of[key] >= self._each:
            raise ThrottledError(
                f"{self._each} {self._what} are under way already with this key; wait for one of "
                f"them to end",
                retry_after=1,
            )
        self._of[key] += 1
        try:
            yield
        finally:
            self._of[key] -= 1
            if not self._of[key]:
                del self._of[key]
