"""Alembic's entry: the connection comes from `database.migrate`, which also owns the transaction."""

from __future__ import annotations

from alembic import context

from unspool.catalog import schema

context.configure(connection=context.config.attributes["connection"], target_metadata=schema.metadata, transactional_ddl=True)
context.run_migrations()
