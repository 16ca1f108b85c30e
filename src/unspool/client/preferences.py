"""Settings of the caller that go with a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

from unspool.settings import Settings

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """Settings of the caller that go with a request.

    The service decides those that are None.
    """

    project: str = ""
    limit: int | None = None
    max_tokens: int | None = None
    max_total_tokens: int | None = None
    alpha: float | None = None

    @classmethod
    def of(cls, settings: Settings) -> Preferences:
        """The ones that somebody has set."""
        usual = Settings()
        values = {one.name: settings.get(one.name) for one in fields(cls)}
        given = {name for name in values if settings.origins.get(name, "default") != "default"}
        return cls(
            **{
                name: value
                for name, value in values.items()
                if name in given or value != usual.get(name)
            }
        )

    def several(self, projects: Sequence[str] | str | None) -> list[str] | None:
        """The projects that are meant; None where the service is to find out."""
        names = (self.project or None) if projects is None else projects
        return [names] if isinstance(names, str) else None if names is None else list(names)


def first(*values: _T | None) -> _T | None:
    """The first that was given."""
    return next((value for value in values if value is not None), None)
