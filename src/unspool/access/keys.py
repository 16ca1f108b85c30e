"""The keys of a corpus: made, listed, revoked, recognised."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from unspool.domain import keys
from unspool.domain.keys import Key, Role
from unspool.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from unspool.catalog import Catalog
    from unspool.parts import Parts


class Keys:
    """`corpus.keys`: who may ask through a service.

    As soon as there has been one, nobody is let in without.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._were_used = False

    def create(
        self,
        *,
        projects: Sequence[str] | str,
        role: Role | str = Role.READ,
        name: str = "",
        expires_at: datetime | None = None,
    ) -> tuple[Key, str]:
        """A new key and its text, which nobody can be shown again.

        `projects` are names, which need not exist yet, or '*' for all.
        """
        from unspool.catalog import keys as table

        if role not in list(Role):
            raise InputError(f"role {role!r} does not exist; it is one of {', '.join(Role)}")
        now = datetime.now(UTC)
        if expires_at is not None and (expires_at.tzinfo is None or expires_at <= now):
            raise InputError(
                "the key would have expired already; give an aware datetime in the future"
            )
        id_, text = keys.new_key()
        given = [projects] if isinstance(projects, str) else projects
        key = Key(
            id=id_,
            name=name,
            role=Role(role),
            projects=tuple(dict.fromkeys(given)),
            created_at=now,
            expires_at=expires_at,
        )
        with self._parts.catalog.write() as connection:
            table.insert_key(connection, key, keys.proof(text))
        return key, text

    def list(self) -> list[Key]:
        """Every key, oldest first, those that cannot be used any more included."""
        from unspool.catalog import keys as table

        with self._known.read() as connection:
            return table.list_keys(connection)

    def revoke(self, id: str) -> Key:
        """End a key: the next request with it is refused. Doing so twice is no error."""
        from unspool.catalog import keys as table

        with self._parts.catalog.write() as connection:
            revoked = table.revoke_key(connection, id, datetime.now(UTC))
        if revoked is None:
            raise NotFoundError(f"no key has the id {id[:40]!r}; `unspool key list` shows them")
        return revoked

    def find(self, text: str) -> Key | None:
        """The key that a text is; None where it is none, or none that can be used."""
        from unspool.catalog import keys as table

        id_ = keys.id_of(text)
        if id_ is None:
            return None
        with self._known.read() as connection:
            found = table.find_key(connection, id_)
        if found is None or not keys.proves(text, found[1]):
            return None
        self._were_used = True
        return found[0] if found[0].is_valid(datetime.now(UTC)) else None

    def are_used(self) -> bool:
        """Whether there has ever been one.

        Once there has, it stays so for this object, whatever becomes of the catalog under it.
        """
        from unspool.catalog import keys as table

        with self._known.read() as connection:
            self._were_used = table.has_keys(connection) or self._were_used
        return self._were_used

    @property
    def _known(self) -> Catalog:
        """Where keys are looked up: the primary, since a replica may not have heard yet of a
        revoked one; the replica where there is no other.
        """
        settings = self._parts.settings
        return (
            self._parts.catalog
            if settings.database_read and settings.database
            else self._parts.searched
        )
