"""A vector space knows what its embedder was opened by, so that it can be opened again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column(
        "spaces",
        sa.Column("setting", sa.String(1000), server_default=sa.text("''"), nullable=False),
    )
    # the only one there was
    op.execute("UPDATE spaces SET setting = 'static' WHERE embedder = 'static:wordllama-256'")


def downgrade() -> None:
    op.drop_column("spaces", "setting")
