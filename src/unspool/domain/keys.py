"""Keys: roles of callers in projects.

The text of a key is shown once, when it is created. Only its hash is stored.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from unspool.domain.documents import check_project, storable
from unspool.errors import InputError

EVERY_PROJECT = "*"
PREFIX = "unspool"  # lets scanners for leaked secrets, ours among them, recognise a key
MAX_PROJECTS = 100
_SECRET_LENGTH = 43  # 256 bits; letters and digits only, so that a double click selects all
_LETTERS = string.ascii_letters + string.digits
_TEXT = re.compile(rf"{PREFIX}_([0-9a-f]{{12}})_[A-Za-z0-9]{{{_SECRET_LENGTH}}}")


class Role(StrEnum):
    """Role of a key. Each role includes those before it."""

    READ = "read"  # search and read
    WRITE = "write"  # store and remove documents, conversations, records
    ADMIN = "admin"  # index folders of the server, remove projects, read metrics

    def allows(self, other: Role) -> bool:
        """Return True if this role includes the other."""
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Key without its secret."""

    id: str
    name: str
    role: Role
    projects: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def __post_init__(self) -> None:
        if not self.projects or len(self.projects) > MAX_PROJECTS:
            raise InputError(
                f"the key is for {len(self.projects)} projects; name 1 to {MAX_PROJECTS}, or '*' "
                f"for all"
            )
        for name in self.projects:
            if name != EVERY_PROJECT:
                check_project(name)
        if len(self.name) > 200 or not storable(self.name) or any(c < " " for c in self.name):
            raise InputError(
                "the key's name cannot be stored; give up to 200 characters on one line"
            )

    @property
    def visible(self) -> frozenset[str] | None:
        """Projects that the key can see; None for all."""
        return None if EVERY_PROJECT in self.projects else frozenset(self.projects)

    def is_valid(self, now: datetime) -> bool:
        """Return True if the key can be used at that time."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def create_key() -> tuple[str, str]:
    """Return a new id, and the text of a key with this id."""
    id_ = secrets.token_hex(6)
    return id_, f"{PREFIX}_{id_}_{''.join(secrets.choice(_LETTERS) for _ in range(_SECRET_LENGTH))}"


def parse_id(text: str) -> str | None:
    """Return the id in the text of a key; None for any other text."""
    found = _TEXT.fullmatch(text)
    return found[1] if found else None


def hash_key(text: str) -> bytes:
    """Return the hash of a key, which is stored."""
    return hashlib.sha256(text.encode()).digest()


def verify_key(text: str, expected: bytes) -> bool:
    """Return True if a text is the key with this hash, in constant time."""
    return hmac.compare_digest(hash_key(text), expected)
