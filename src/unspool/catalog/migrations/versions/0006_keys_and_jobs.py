"""Keys of a service, and the jobs it does."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from unspool.catalog import schema

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "keys",
        sa.Column("id", sa.String(length=16), primary_key=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha", sa.LargeBinary(length=32), nullable=False),
        sa.Column("role", sa.String(length=10), nullable=False),
        sa.Column("projects", sa.JSON(), nullable=False),
        sa.Column("created_at", schema.UtcTime(), nullable=False),
        sa.Column("expires_at", schema.UtcTime()),
        sa.Column("revoked_at", schema.UtcTime()),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=32), primary_key=True),
        sa.Column("project", schema.plain_text(200), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("worker", sa.String(length=64), nullable=False),
        sa.Column("cancel", sa.Boolean(), nullable=False),
        sa.Column("created_at", schema.UtcTime(), nullable=False),
        sa.Column("started_at", schema.UtcTime()),
        sa.Column("heartbeat_at", schema.UtcTime(), nullable=False),
        sa.Column("finished_at", schema.UtcTime()),
        sa.Column("progress", sa.JSON(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("error_code", sa.String(length=40), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
    )
    op.create_index("ix_jobs_created", "jobs", ["created_at"])
    op.create_index("ix_jobs_state", "jobs", ["state"])


def downgrade() -> None:
    for table in ("jobs", "keys"):
        op.drop_table(table)
