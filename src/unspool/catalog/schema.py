"""Tables of the catalog, written once for SQLite, PostgreSQL and SQL Server.

- Documents are unique by the SHA-256 of the path. A path may exceed the length of an index key on
  SQL Server, where collations may also ignore case.
- A chunk's id depends on its content (`domain.documents.chunk_id`), so writing the same chunk again
  changes nothing for derived indexes. `seq` is the project's sequence number of the chunk's last
  change: derived indexes catch up by it.
- Vectors belong to texts, not to chunks: the key of `embeddings` is the vector space and the
  SHA-256 of the embedded text.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

KNOWN_REVISIONS = ("0001",)  # oldest first; a test compares them with the migration scripts
HEAD = KNOWN_REVISIONS[-1]
WORD_TABLES = ("words", "word_counts", "word_formats")  # of PostgreSQL, made by the migration
APPLICATION_ID = 0x756E7370  # "unsp", in the header of our SQLite files

metadata = sa.MetaData()

# SQLite generates ids only for a column of type INTEGER.
_Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_Sha = sa.LargeBinary(32)


def _create_text_type(length: int | None = None) -> sa.types.TypeEngine[str]:
    """Create a text type that compares by code point, whatever the server's locale is."""
    kind = sa.Text if length is None else sa.String
    return kind(length).with_variant(kind(length, collation="C"), "postgresql")


def _create_reference(name: str, target: str, *, primary_key: bool = False) -> sa.Column[int]:
    """Create a column that refers to a row of another table and is deleted with it."""
    return sa.Column(
        name,
        sa.BigInteger,
        sa.ForeignKey(target, ondelete="CASCADE"),
        primary_key=primary_key,
        nullable=False,
    )


class UtcTime(sa.TypeDecorator[datetime]):
    """Aware datetime in UTC on every engine."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        moment = value.astimezone(UTC)
        return moment if dialect.name == "postgresql" else moment.replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        moment: datetime = value
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


_FIELD_LENGTH = 400  # fits into an index key of SQL Server beside the name


def shorten_field(value: str) -> str:
    """Return a metadata string as filters compare it.

    A long one becomes its beginning and a fingerprint, so that two with the same beginning differ.
    """
    if len(value) <= _FIELD_LENGTH:
        return value
    return value[: _FIELD_LENGTH - 64] + hashlib.sha256(value.encode()).hexdigest()


meta = sa.Table(
    "meta",
    metadata,
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("value", sa.String(255), nullable=False),
)

spaces = sa.Table(
    "spaces",
    metadata,
    sa.Column("id", _Id, primary_key=True, autoincrement=True),
    sa.Column("embedder", sa.String(200), nullable=False),
    sa.Column("revision", sa.String(100), nullable=False),
    sa.Column("dimension", sa.Integer, nullable=False),
    sa.Column("active", sa.Boolean, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    # the setting that names its embedder
    sa.Column("setting", sa.String(1000), nullable=False, server_default=sa.text("''")),
    sa.UniqueConstraint("embedder", "revision", "dimension", name="uq_spaces_embedder"),
)

projects = sa.Table(
    "projects",
    metadata,
    sa.Column("id", _Id, primary_key=True, autoincrement=True),
    sa.Column("name", _create_text_type(200), nullable=False),
    sa.Column("name_sha", _Sha, nullable=False),
    # the indexed folder; empty if documents are given as text
    sa.Column("root", sa.Text, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),  # number of the last change
    # the change feed begins behind this number; an index that is behind has to be filled anew
    sa.Column("floor", sa.BigInteger, nullable=False),
    sa.Column("chunk_count", sa.BigInteger, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.UniqueConstraint("name_sha", name="uq_projects_name"),
    # ids are never reused: a derived folder of a deleted project must not match a new one
    sqlite_autoincrement=True,
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", _Id, primary_key=True, autoincrement=True),
    _create_reference("project_id", "projects.id"),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    # distinguishes a process from an earlier one with the same pid
    sa.Column("process", sa.String(32), nullable=False),
    sa.Column("started_at", UtcTime, nullable=False),
    sa.Column("heartbeat_at", UtcTime, nullable=False),
    sa.Column("finished_at", UtcTime),
    sa.Index("ix_runs_project", "project_id"),
    sqlite_autoincrement=True,
)

documents = sa.Table(
    "documents",
    metadata,
    sa.Column("id", _Id, primary_key=True, autoincrement=True),
    _create_reference("project_id", "projects.id"),
    sa.Column("path", _create_text_type(), nullable=False),
    sa.Column("path_sha", _Sha, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("modified_ns", sa.BigInteger),  # nanoseconds since 1970, as file systems count
    sa.Column("indexed_at", UtcTime),
    sa.Column("chunk_count", sa.Integer, nullable=False),
    sa.Column("status", sa.String(10), nullable=False),
    sa.Column("error", sa.Text, nullable=False),
    sa.Column("language", sa.String(40), nullable=False),
    sa.Column("kind", sa.String(10), nullable=False),
    sa.Column("metadata", sa.JSON, nullable=False),
    # a file of the project's folder, or a given text
    sa.Column("origin", sa.String(10), nullable=False),
    # how it was chunked; another recipe makes it stale
    sa.Column("recipe", sa.String(64), nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("run_id", sa.BigInteger),  # the run that indexes it
    sa.UniqueConstraint("project_id", "path_sha", name="uq_documents_path"),
    sa.Index("ix_documents_status", "project_id", "status"),
    sqlite_autoincrement=True,
)

document_fields = sa.Table(
    # the metadata once more, one row per key, so that filters can use an index on every engine
    "document_fields",
    metadata,
    _create_reference("document_id", "documents.id", primary_key=True),
    sa.Column("key", sa.String(200), primary_key=True),
    sa.Column("text", _create_text_type(_FIELD_LENGTH)),
    sa.Column("number", sa.Double),
    sa.Index("ix_document_fields_text", "key", "text"),
    sa.Index("ix_document_fields_number", "key", "number"),
)

chunks = sa.Table(
    "chunks",
    metadata,
    # The key contains the project: ids of 63 bits would collide in a catalog of ten billion chunks.
    # Partitions of PostgreSQL need that, too. BIGINT also on SQLite, where INTEGER would be the
    # rowid: ids are random, and rows of a kilobyte are written fastest one after the other.
    sa.Column("project_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    _create_reference("document_id", "documents.id"),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("start_offset", sa.Integer, nullable=False),
    sa.Column("end_offset", sa.Integer, nullable=False),
    sa.Column("first_line", sa.Integer, nullable=False),
    sa.Column("last_line", sa.Integer, nullable=False),
    sa.Column("headings", sa.Text, nullable=False),  # outermost first, one per line
    sa.Column("level", sa.Integer, nullable=False),
    sa.Column("symbol", sa.Text, nullable=False),
    # bare names or headings that begin in the chunk, one per line
    sa.Column("defines", sa.Text, nullable=False),
    sa.Column("token_count", sa.Integer, nullable=False),
    # of the embedded text, which includes title and headings
    sa.Column("text_sha", _Sha, nullable=False),
    # of the transaction that stored it, see `sequences`
    sa.Column("stamp", sa.BigInteger, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    # equal for duplicate texts
    sa.Column("copy_key", sa.BigInteger, nullable=False, server_default="0"),
    sa.UniqueConstraint("document_id", "position", "project_id", name="uq_chunks_position"),
    sa.Index("ix_chunks_stamp", "project_id", "stamp"),
)

# The change feed. A transaction writes its rows with a random stamp, and gets the project's next
# sequence number at its end. So writers do not wait for each other while they write. A catalog
# that is restored from a backup reuses numbers, but not stamps.
sequences = sa.Table(
    "sequences",
    metadata,
    _create_reference("project_id", "projects.id", primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("stamp", sa.BigInteger, nullable=False),
)

removals = sa.Table(
    "removals",  # ids of deleted chunks
    metadata,
    _create_reference("project_id", "projects.id", primary_key=True),
    sa.Column("stamp", sa.BigInteger, primary_key=True),
    sa.Column("chunk_id", sa.BigInteger, primary_key=True),
)

index_positions = sa.Table(
    # how far an index outside the catalog's database has read the feed of a project
    "index_positions",
    metadata,
    sa.Column("index", sa.String(100), primary_key=True),
    # no reference: the index still has to drop a deleted project
    sa.Column("project_id", sa.BigInteger, primary_key=True),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("stamp", sa.BigInteger, nullable=False),
    sa.Column("filled_to", sa.BigInteger),  # last chunk id while the index is filled
    sa.Column("epoch", sa.String(100), nullable=False),
)

embeddings = sa.Table(
    "embeddings",
    metadata,
    sa.Column("id", _Id, primary_key=True, autoincrement=True),
    _create_reference("space_id", "spaces.id"),
    sa.Column("text_sha", _Sha, nullable=False),
    sa.Column("vector", sa.LargeBinary, nullable=False),  # float32, little-endian
    sa.UniqueConstraint("space_id", "text_sha", name="uq_embeddings_text"),
)

skipped = sa.Table(
    "skipped",  # files rejected by their content, so that the next run need not read them
    metadata,
    _create_reference("project_id", "projects.id", primary_key=True),
    sa.Column("path_sha", _Sha, primary_key=True),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("modified_ns", sa.BigInteger, nullable=False),
    sa.Column("recipe", sa.String(64), nullable=False),
    sa.Column("reason", sa.String(40), nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
)

conversations = sa.Table(
    "conversations",  # further columns of documents that are conversations
    metadata,
    _create_reference("document_id", "documents.id", primary_key=True),
    sa.Column("project_id", sa.BigInteger, nullable=False),
    sa.Column("scenario_title", sa.Text, nullable=False),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("message_count", sa.Integer, nullable=False),
    sa.Index("ix_conversations_created", "project_id", "created_at", "document_id"),
)

messages = sa.Table(
    "messages",  # the line of a chunk is the number of its message
    metadata,
    _create_reference("document_id", "documents.id", primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),  # from 1
    # the message's id in its source; may be empty
    sa.Column("name", _create_text_type(250), nullable=False),
    sa.Column("author", sa.Text, nullable=False),
    # the author, or else the kind, in lower case for comparison
    sa.Column("speaker", _create_text_type(200), nullable=False),
    sa.Column("kind", sa.String(10), nullable=False),
    sa.Column("at_ns", sa.BigInteger),  # nanoseconds since 1970
    sa.Column("sha", _Sha, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Index("ix_messages_name", "document_id", "name"),
    sa.Index("ix_messages_speaker", "speaker"),
    sa.Index("ix_messages_at", "at_ns"),
)

streams = sa.Table(
    "streams",
    metadata,
    sa.Column("id", _Id, primary_key=True, autoincrement=True),
    _create_reference("project_id", "projects.id"),
    sa.Column("name", _create_text_type(), nullable=False),
    sa.Column("name_sha", _Sha, nullable=False),
    sa.Column("last", sa.BigInteger, nullable=False),  # the number of the newest record
    # the number of records, so that nobody has to count them
    sa.Column("kept", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("project_id", "name_sha", name="uq_streams_name"),
    sqlite_autoincrement=True,
)

records = sa.Table(
    "records",
    metadata,
    _create_reference("stream_id", "streams.id", primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),  # in order of arrival
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("sha", _Sha, nullable=False),
    sa.Column("length", sa.Integer, nullable=False),  # characters of the body
    sa.Column("body", sa.Text, nullable=False),
    sa.Index("ix_records_at", "stream_id", "at", "number"),
)

keys = sa.Table(
    "keys",  # access to a service; the secrets themselves are not stored
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    # SHA-256 of the whole key, which is random enough to need no salt
    sa.Column("sha", _Sha, nullable=False),
    sa.Column("role", sa.String(10), nullable=False),
    sa.Column("projects", sa.JSON, nullable=False),  # names; "*" is all of them
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime),
    sa.Column("revoked_at", UtcTime),
)

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("project", _create_text_type(200), nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("state", sa.String(12), nullable=False),
    sa.Column("worker", sa.String(64), nullable=False),  # the process that runs it
    sa.Column("cancel", sa.Boolean, nullable=False),  # asked to stop
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("started_at", UtcTime),
    sa.Column("heartbeat_at", UtcTime, nullable=False),
    sa.Column("finished_at", UtcTime),
    sa.Column("progress", sa.JSON, nullable=False),
    sa.Column("report", sa.JSON, nullable=False),
    sa.Column("error_code", sa.String(40), nullable=False),
    sa.Column("error", sa.Text, nullable=False),
    sa.Index("ix_jobs_created", "created_at"),
    sa.Index("ix_jobs_state", "state"),
)


# Tables whose rows live for hours. With SQLite they are in a file of their own, so that storing a
# search's window never waits for an indexing run that locks the catalog. Deleting that file loses
# only continuations. PostgreSQL has them in the catalog's schema.
short_lived = sa.MetaData()

windows = sa.Table(
    "windows",
    short_lived,
    sa.Column("name", sa.LargeBinary(10), primary_key=True),
    sa.Column("caller", sa.String(64), nullable=False),
    sa.Column("request", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),  # seconds since 1970
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Index("ix_windows_created", "created_at"),
    sa.Index("ix_windows_expires", "expires_at"),
)

segments = sa.Table(
    # deleted before their window: a query is kept for longer than its results
    "segments",
    short_lived,
    sa.Column(
        "window",
        sa.LargeBinary(10),
        sa.ForeignKey("windows.name", ondelete="CASCADE"),
        primary_key=True,
    ),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("start", sa.Integer, nullable=False),
    sa.Column("stop", sa.Integer, nullable=False),
    sa.Column("entries", sa.LargeBinary, nullable=False),
    sa.Column("ids", sa.LargeBinary, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
)

substitutes = sa.Table(
    # the chunk shown in place of one that was rewritten after the window was frozen
    "substitutes",
    short_lived,
    sa.Column(
        "window",
        sa.LargeBinary(10),
        sa.ForeignKey("windows.name", ondelete="CASCADE"),
        primary_key=True,
    ),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("chunk_id", sa.BigInteger, nullable=False),
)

query_vectors = sa.Table(
    # by fingerprint of the query, so that another process need not embed it again
    "query_vectors",
    short_lived,
    sa.Column("key", _Sha, primary_key=True),
    sa.Column("vector", sa.LargeBinary, nullable=False),  # float32, little-endian
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Index("ix_query_vectors_expires", "expires_at"),
)
