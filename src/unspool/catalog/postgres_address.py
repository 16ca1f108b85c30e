"""Addresses of PostgreSQL catalogs."""

from __future__ import annotations

import re
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url

from unspool.errors import AddressError

DEFAULT_SCHEMA = "unspool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Server, database and schema of a catalog."""

    url: URL
    schema: str

    @property
    def place(self) -> str:
        """Server, database and schema, without user and password."""
        host = self.url.host or self.url.query.get("host", "localhost")
        port = f":{self.url.port}" if self.url.port else ""
        option = "" if self.schema == DEFAULT_SCHEMA else f"?schema={self.schema}"
        return f"postgresql://{host}{port}/{self.url.database or ''}{option}"


def parse_address(address: str) -> Target:
    """Parse a `postgresql://` address. `schema` is our option, all others are libpq's."""
    try:
        url = make_url(address)
    except (sa.exc.ArgumentError, ValueError):
        raise AddressError(
            "the address of the catalog cannot be read; give "
            "postgresql://user:password@host:port/database"
        ) from None
    schema = url.query.get("schema", DEFAULT_SCHEMA)
    if not isinstance(schema, str) or not re.fullmatch(r"(?!pg_)[a-z_][a-z0-9_]{0,62}", schema):
        raise AddressError(
            "schema in the address is not a plain name; give lower-case letters, digits and "
            "underscores, beginning with a letter"
        )
    url = url.set(drivername="postgresql+psycopg").difference_update_query(["schema"])
    return Target(url=url, schema=schema)


def replace_schema(address: str, schema: str) -> str:
    """Return the address of another schema in the same database."""
    url = make_url(address).update_query_dict({"schema": schema})
    return url.render_as_string(hide_password=False)
