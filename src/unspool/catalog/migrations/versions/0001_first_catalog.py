"""The first catalog: projects, runs, documents, chunks, embeddings, skips."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from unspool.catalog import schema

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "meta",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("value", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "projects",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("name", schema.plain_text(200), nullable=False),
        sa.Column("name_sha", sa.LargeBinary(length=32), nullable=False),
        sa.Column("root", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("floor", sa.BigInteger(), nullable=False),
        sa.Column("created_at", schema.UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name_sha", name="uq_projects_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "spaces",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("embedder", sa.String(length=200), nullable=False),
        sa.Column("revision", sa.String(length=100), nullable=False),
        sa.Column("dimension", sa.Integer(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("created_at", schema.UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("embedder", "revision", "dimension", name="uq_spaces_embedder"),
    )
    op.create_table(
        "documents",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("path", schema.plain_text(), nullable=False),
        sa.Column("path_sha", sa.LargeBinary(length=32), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("modified_ns", sa.BigInteger(), nullable=True),
        sa.Column("indexed_at", schema.UtcTime(), nullable=True),
        sa.Column("chunk_count", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("language", sa.String(length=40), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("origin", sa.String(length=10), nullable=False),
        sa.Column("recipe", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("project_id", "path_sha", name="uq_documents_path"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_documents_status", "documents", ["project_id", "status"], unique=False)
    op.create_table(
        "embeddings",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("space_id", sa.BigInteger(), nullable=False),
        sa.Column("text_sha", sa.LargeBinary(length=32), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["space_id"], ["spaces.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("space_id", "text_sha", name="uq_embeddings_text"),
    )
    op.create_table(
        "removals",
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("chunk_id", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("project_id", "seq", "chunk_id"),
    )
    op.create_table(
        "runs",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("process", sa.String(length=32), nullable=False),
        sa.Column("started_at", schema.UtcTime(), nullable=False),
        sa.Column("heartbeat_at", schema.UtcTime(), nullable=False),
        sa.Column("finished_at", schema.UtcTime(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_runs_project", "runs", ["project_id"], unique=False)
    op.create_table(
        "sequences",
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("stamp", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("project_id", "seq"),
    )
    op.create_table(
        "skipped",
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("path_sha", sa.LargeBinary(length=32), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("modified_ns", sa.BigInteger(), nullable=False),
        sa.Column("recipe", sa.String(length=64), nullable=False),
        sa.Column("reason", sa.String(length=40), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("project_id", "path_sha"),
    )
    op.create_table(
        "chunks",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("document_id", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("start_offset", sa.Integer(), nullable=False),
        sa.Column("end_offset", sa.Integer(), nullable=False),
        sa.Column("first_line", sa.Integer(), nullable=False),
        sa.Column("last_line", sa.Integer(), nullable=False),
        sa.Column("headings", sa.Text(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("symbol", sa.Text(), nullable=False),
        sa.Column("defines", sa.Text(), nullable=False),
        sa.Column("token_count", sa.Integer(), nullable=False),
        sa.Column("text_sha", sa.LargeBinary(length=32), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["document_id"], ["documents.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("document_id", "position", name="uq_chunks_position"),
    )
    op.create_index("ix_chunks_seq", "chunks", ["project_id", "seq"], unique=False)
    op.create_table(
        "document_fields",
        sa.Column("document_id", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("text", schema.plain_text(400), nullable=True),
        sa.Column("number", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["document_id"], ["documents.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("document_id", "key"),
    )
    op.create_index("ix_document_fields_number", "document_fields", ["key", "number"], unique=False)
    op.create_index("ix_document_fields_text", "document_fields", ["key", "text"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_document_fields_text", table_name="document_fields")
    op.drop_index("ix_document_fields_number", table_name="document_fields")
    op.drop_table("document_fields")
    op.drop_index("ix_chunks_seq", table_name="chunks")
    op.drop_table("chunks")
    op.drop_table("skipped")
    op.drop_table("sequences")
    op.drop_index("ix_runs_project", table_name="runs")
    op.drop_table("runs")
    op.drop_table("removals")
    op.drop_table("embeddings")
    op.drop_index("ix_documents_status", table_name="documents")
    op.drop_table("documents")
    op.drop_table("spaces")
    op.drop_table("projects")
    op.drop_table("meta")
