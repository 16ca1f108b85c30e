"""Keys: who may do what in which projects.

A key is shown once, when it is made; what is stored proves it and cannot be turned back into it.
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
PREFIX = "unspool"  # so that scanners for leaked secrets, ours among them, can tell what it is
MAX_PROJECTS = 100
_SECRET_LENGTH = 43  # 256 bits; letters and digits only, so that a double click takes all of it
_LETTERS = string.ascii_letters + string.digits
_TEXT = re.compile(rf"{PREFIX}_([0-9a-f]{{12}})_[A-Za-z0-9]{{{_SECRET_LENGTH}}}")


class Role(StrEnum):
    """What a key allows, each role all that the one before it does."""

    READ = "read"  # search and read
    WRITE = "write"  # store and remove documents, conversations, records
    ADMIN = "admin"  # index what lies on the server, remove projects, read metrics

    def allows(self, other: Role) -> bool:
        """Whether what needs the other role can be done with this one."""
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What is known of a key; nothing of it is secret."""

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
        """The projects that exist for it; None where all do."""
        return None if EVERY_PROJECT in self.projects else frozenset(self.projects)

    def is_valid(self, now: datetime) -> bool:
        """Whether it can be used at that time."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def new_key() -> tuple[str, str]:
    """A new id, and the text of a key with it."""
    id_ = secrets.token_hex(6)
    return id_, f"{PREFIX}_{id_}_{''.join(secrets.choice(_LETTERS) for _ in range(_SECRET_LENGTH))}"


def id_of(text: str) -> str | None:
    """The id in the text of a key; None where that is no key's text."""
    found = _TEXT.fullmatch(text)
    return found[1] if found else None


def proof(text: str) -> bytes:
    """What is stored to know a key by."""
    return hashlib.sha256(text.encode()).digest()


def proves(text: str, kept: bytes) -> bool:
    """Whether a text is the key that a proof was stored of; it takes as long for a wrong one."""
    return hmac.compare_digest(proof(text), kept)
