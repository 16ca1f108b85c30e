"""Alembic's entry: the connection comes from `database.migrate`, which also owns the transaction."""

from __future__ import annotations

from alembic import context

from unspool.catalog import schema

attributes = context.config.attributes
context.configure(
    connection=attributes["connection"],
    target_metadata=schema.metadata,
    transactional_ddl=True,
    version_table_schema=attributes["schema"],  # another program's table of that name may be in sight
)
context.run_migrations()
