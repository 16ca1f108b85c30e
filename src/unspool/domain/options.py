"""Options of components: each is declared once, with its default, range and meaning."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Any


def option(
    default: Any,
    about: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    secret: bool = False,
    from_folder: bool = False,
    variable: str | None = None,
) -> Any:
    """Declare a field of an option class, which is also a setting.

    `from_folder` marks a harmless one: no value of it can send, reveal or delete anything or use up
    the machine. `variable` is the environment variable where the name of the field does not say it.
    """
    if isinstance(default, bool):
        choices = ("on", "off")
    elif isinstance(default, StrEnum):
        choices = choices or tuple(map(str, type(default)))
    facts = {
        "about": about,
        "low": low,
        "high": high,
        "choices": choices,
        "is_secret": secret,
        "from_folder": from_folder,
        "variable": variable,
    }
    # free text may contain a password
    is_shown = bool(choices) or not isinstance(default, str)
    return field(default=default, repr=is_shown, metadata=facts)
