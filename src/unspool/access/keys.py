"""Keys of a corpus: create, list, revoke, find."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from unspool.domain import keys
from unspool.domain.keys import Key, Role
from unspool.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from unspool.catalog import Catalog
    from unspool.session import Resources


class Keys:
    """Keys of the callers of a service, as `corpus.keys`.

    As soon as one key was created, every request needs one.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._were_used = False

    def create(
        self,
        *,
        projects: Sequence[str] | str,
        role: Role | str = Role.READ,
        name: str = "",
        expires_at: datetime | None = None,
    ) -> tuple[Key, str]:
        """Create a key. Returns it with its text, which cannot be shown again.

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
        id_, text = keys.create_key()
        given = [projects] if isinstance(projects, str) else projects
        key = Key(
            id=id_,
            name=name,
            role=Role(role),
            projects=tuple(dict.fromkeys(given)),
            created_at=now,
            expires_at=expires_at,
        )
        with self._resources.catalog.write() as connection:
            table.insert_key(connection, key, keys.hash_key(text))
        return key, text

    def list(self) -> list[Key]:
        """Return every key, oldest first, including expired and revoked ones."""
        from unspool.catalog import keys as table

        with self._key_catalog.read() as connection:
            return table.list_keys(connection)

    def revoke(self, id: str) -> Key:
        """Revoke a key. The next request with it is rejected. Repeating this is not an error."""
        from unspool.catalog import keys as table

        with self._resources.catalog.write() as connection:
            revoked = table.revoke_key(connection, id, datetime.now(UTC))
        if revoked is None:
            raise NotFoundError(f"no key has the id {id[:40]!r}; `unspool key list` shows them")
        return revoked

    def find(self, text: str) -> Key | None:
        """Return the key with this text; None if it is unknown, expired or revoked."""
        from unspool.catalog import keys as table

        id_ = keys.parse_id(text)
        if id_ is None:
            return None
        with self._key_catalog.read() as connection:
            found = table.find_key(connection, id_)
        if found is None or not keys.verify_key(text, found[1]):
            return None
        self._were_used = True
        return found[0] if found[0].is_valid(datetime.now(UTC)) else None

    def are_used(self) -> bool:
        """Return True if a key was ever created.

        Once True, it stays True for this object, whatever happens to the catalog.
        """
        from unspool.catalog import keys as table

        with self._key_catalog.read() as connection:
            self._were_used = table.has_keys(connection) or self._were_used
        return self._were_used

    @property
    def _key_catalog(self) -> Catalog:
        """Catalog with the keys: the primary if there is one.

        A replica may not know yet that a key was revoked.
        """
        settings = self._resources.settings
        return (
            self._resources.catalog
            if settings.database.read_address and settings.database.address
            else self._resources.search_catalog
        )
