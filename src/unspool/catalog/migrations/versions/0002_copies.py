"""Chunks know the key of their text, by which copies are told."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from unspool.domain.documents import copy_key

revision = "0002"
down_revision = "0001"

_BATCH = 2_000
_chunks = sa.table(
    "chunks",
    sa.column("id", sa.BigInteger),
    sa.column("text", sa.Text),
    sa.column("copy_key", sa.BigInteger),
)


def upgrade() -> None:
    op.add_column(
        "chunks", sa.Column("copy_key", sa.BigInteger(), server_default="0", nullable=False)
    )
    connection = op.get_bind()
    update = (
        sa.update(_chunks)
        .where(_chunks.c.id == sa.bindparam("b_id"))
        .values(copy_key=sa.bindparam("b_key"))
    )
    after = -1
    while True:
        query = (
            sa.select(_chunks.c.id, _chunks.c.text)
            .where(_chunks.c.id > after)
            .order_by(_chunks.c.id)
            .limit(_BATCH)
        )
        rows = connection.execute(query).all()
        if not rows:
            return
        connection.execute(update, [{"b_id": id_, "b_key": copy_key(text)} for id_, text in rows])
        after = rows[-1][0]


def downgrade() -> None:
    op.drop_column("chunks", "copy_key")
