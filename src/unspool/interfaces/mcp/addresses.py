"""The addresses of resources: `unspool://PROJECT/documents/PATH` and
`unspool://PROJECT/conversations/ID`, percent-encoded. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

SCHEME = "unspool"
DOCUMENTS, CONVERSATIONS = "documents", "conversations"
_ADDRESS = re.compile(
    rf"{SCHEME}://(?P<project>[^/]+)/(?P<kind>{DOCUMENTS}|{CONVERSATIONS})/(?P<path>.+)",
    re.DOTALL | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """What an address names."""

    project: str
    path: str
    is_conversation: bool = False

    def __str__(self) -> str:
        kind = CONVERSATIONS if self.is_conversation else DOCUMENTS
        return f"{SCHEME}://{quote(self.project, safe='')}/{kind}/{quote(self.path, safe='/')}"


def parse(text: str) -> Address | None:
    """The address that a text is; None where it is none."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None:
        return None
    return Address(
        project=unquote(found["project"]),
        path=unquote(found["path"]),
        is_conversation=found["kind"].lower() == CONVERSATIONS,
    )
