"""The whole catalog: the tables of `schema.py` and, on PostgreSQL, those of the word index.

Nothing is released, so a change of the schema changes this revision. The first release freezes it.
"""

from __future__ import annotations

from alembic import op

from unspool.catalog import schema

revision = "0001"
down_revision = None

# Types and storage that SQLAlchemy has no names for.
_WORD_TABLES = (
    """CREATE TABLE words (
         project_id bigint, chunk_id bigint, document_id bigint NOT NULL,
         keys integer[] NOT NULL, body sparsevec(268435456) NOT NULL,
         PRIMARY KEY (project_id, chunk_id)
       ) WITH (toast_tuple_target = 8160)""",
    # In the row and never compressed: a search reads thousands of them.
    """ALTER TABLE words ALTER COLUMN keys SET STORAGE EXTERNAL,
         ALTER COLUMN body SET STORAGE EXTERNAL""",
    "CREATE INDEX ix_words_keys ON words USING gin (keys) WITH (gin_pending_list_limit = 1024)",
    "CREATE INDEX ix_words_document ON words (document_id)",
    # Rows are only added: the number of chunks of a key is the sum over its rows.
    "CREATE TABLE word_counts (project_id bigint, key integer, chunks integer NOT NULL)",
    "CREATE INDEX ix_word_counts_key ON word_counts (project_id, key) INCLUDE (chunks)",
    "CREATE TABLE word_formats (project_id bigint PRIMARY KEY, format integer NOT NULL)",
)
_DROP_VECTOR_TABLES = """DO $$ DECLARE space bigint; BEGIN
    FOR space IN SELECT id FROM spaces LOOP
      EXECUTE format('DROP TABLE IF EXISTS %I.%I', current_schema(), 'vectors_' || space);
    END LOOP;
  END $$"""


def upgrade() -> None:
    connection = op.get_bind()
    # Tables of these names may be visible in another schema.
    schema.metadata.create_all(connection, checkfirst=False)
    if connection.dialect.name == "postgresql":
        schema.short_lived.create_all(connection, checkfirst=False)
        for statement in _WORD_TABLES:
            op.execute(statement)


def downgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        op.execute(_DROP_VECTOR_TABLES)
        for table in schema.WORD_TABLES:
            op.execute(f"DROP TABLE {table}")
        schema.short_lived.drop_all(connection, checkfirst=False)
    schema.metadata.drop_all(connection, checkfirst=False)
