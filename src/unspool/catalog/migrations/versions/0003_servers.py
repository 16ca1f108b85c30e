"""What a server keeps among its tables and SQLite in files beside it: windows, and the words of
chunks.
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"

_TABLES = (
    """CREATE TABLE windows (name bytea PRIMARY KEY, caller varchar(64) NOT NULL, question text NOT NULL,
       created_at bigint NOT NULL, expires_at bigint NOT NULL)""",  # noqa: E501
    "CREATE INDEX ix_windows_created ON windows (created_at)",
    "CREATE INDEX ix_windows_expires ON windows (expires_at)",
    """CREATE TABLE segments ("window" bytea REFERENCES windows (name) ON DELETE CASCADE, number integer, start integer NOT NULL,
       stop integer NOT NULL, entries bytea NOT NULL, ids bytea NOT NULL, state text NOT NULL, PRIMARY KEY ("window", number))""",  # noqa: E501
    """CREATE TABLE substitutes ("window" bytea REFERENCES windows (name) ON DELETE CASCADE, position integer, chunk_id bigint NOT NULL,
       PRIMARY KEY ("window", position))""",  # noqa: E501
    (
        "CREATE TABLE query_vectors (key bytea PRIMARY KEY, vector bytea NOT NULL, expires_at "
        "bigint "
        "NOT NULL)"
    ),
    "CREATE INDEX ix_query_vectors_expires ON query_vectors (expires_at)",
    # In the row and never compressed: a search reads thousands of them.
    """CREATE TABLE words (project_id bigint, chunk_id bigint, document_id bigint NOT NULL, keys integer[] NOT NULL,
       body sparsevec(268435456) NOT NULL, PRIMARY KEY (project_id, chunk_id)) WITH (toast_tuple_target = 8160)""",  # noqa: E501
    (
        "ALTER TABLE words ALTER COLUMN keys SET STORAGE EXTERNAL, ALTER COLUMN body SET STORAGE "
        "EXTERNAL"
    ),
    "CREATE INDEX ix_words_keys ON words USING gin (keys) WITH (gin_pending_list_limit = 1024)",
    "CREATE INDEX ix_words_document ON words (document_id)",
    (
        "CREATE TABLE word_counts (project_id bigint, key integer, chunks integer NOT NULL, "
        "PRIMARY "
        "KEY (project_id, key)) WITH (fillfactor = 70)"
    ),
    (
        "CREATE TABLE word_totals (project_id bigint PRIMARY KEY, chunks bigint NOT NULL, format "
        "integer NOT NULL)"
    ),
)


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        for statement in _TABLES:
            op.execute(statement)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        for table in (
            "word_totals",
            "word_counts",
            "words",
            "query_vectors",
            "substitutes",
            "segments",
            "windows",
        ):
            op.execute(f"DROP TABLE {table}")
        op.execute(
            """DO $$ DECLARE space bigint; BEGIN
                 FOR space IN SELECT id FROM spaces LOOP
                   EXECUTE format('DROP TABLE IF EXISTS %I.%I', current_schema(), 'vectors_' || space);
                 END LOOP;
               END $$"""  # noqa: E501
        )
