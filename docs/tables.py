"""Tables as the pages have them."""

from __future__ import annotations


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("\n", " ") for cell in row) + " |" for row in lines]


def cell(text: str) -> str:
    """A text whose strokes do not end its cell."""
    return text.replace("|", "\\|")
