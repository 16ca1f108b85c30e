"""Entry point of Alembic. `database.run_migrations` provides the connection and its transaction."""

from __future__ import annotations

from alembic import context

from unspool.catalog import schema

attributes = context.config.attributes
context.configure(
    connection=attributes["connection"],
    target_metadata=schema.metadata,
    transactional_ddl=True,
    # another program's table of that name may be visible in another schema
    version_table_schema=attributes["schema"],
)
context.run_migrations()
