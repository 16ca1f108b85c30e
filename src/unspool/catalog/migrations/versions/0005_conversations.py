"""Conversations with their messages, and streams of records."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from unspool.catalog import schema

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "conversations",
        sa.Column(
            "document_id",
            sa.BigInteger(),
            sa.ForeignKey("documents.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("scenario_title", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("created_at", schema.UtcTime(), nullable=False),
        sa.Column("message_count", sa.Integer(), nullable=False),
    )
    op.create_index(
        "ix_conversations_created", "conversations", ["project_id", "created_at", "document_id"]
    )
    op.create_table(
        "messages",
        sa.Column(
            "document_id",
            sa.BigInteger(),
            sa.ForeignKey("documents.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("name", schema.plain_text(250), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("speaker", schema.plain_text(200), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("at_ns", sa.BigInteger()),
        sa.Column("sha", sa.LargeBinary(length=32), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
    )
    op.create_index("ix_messages_name", "messages", ["document_id", "name"])
    op.create_index("ix_messages_speaker", "messages", ["speaker"])
    op.create_index("ix_messages_at", "messages", ["at_ns"])
    op.create_table(
        "streams",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column(
            "project_id",
            sa.BigInteger(),
            sa.ForeignKey("projects.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("name", schema.plain_text(), nullable=False),
        sa.Column("name_sha", sa.LargeBinary(length=32), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("kept", sa.BigInteger(), nullable=False),
        sa.UniqueConstraint("project_id", "name_sha", name="uq_streams_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "records",
        sa.Column(
            "stream_id",
            sa.BigInteger(),
            sa.ForeignKey("streams.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("number", sa.BigInteger(), primary_key=True),
        sa.Column("at", schema.UtcTime(), nullable=False),
        sa.Column("sha", sa.LargeBinary(length=32), nullable=False),
        sa.Column("length", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
    )
    op.create_index("ix_records_at", "records", ["stream_id", "at", "number"])


def downgrade() -> None:
    for table in ("records", "streams", "messages", "conversations"):
        op.drop_table(table)
    # what was said stays findable
    op.execute("UPDATE documents SET kind = 'docs' WHERE kind = 'chat'")
