"""The tables, once, for SQLite, PostgreSQL and SQL Server.

What shapes them:
- A path may be longer than an index key may be on SQL Server, and its collations may ignore case,
  so documents are unique by the SHA-256
  of the path, not by the path.
- Chunk ids are a function of their content (`domain.documents.chunk_id`), so a chunk row can be
  written again without anything
  derived from it noticing. `seq` is the project's sequence number at which the chunk last changed;
  what is derived catches up by it.
- Vectors are kept by content, not by chunk: `embeddings` is keyed by vector space and SHA-256 of
  the embedded text.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

KNOWN_REVISIONS = ("0001",)  # oldest first; a test compares them with the migration scripts
HEAD = KNOWN_REVISIONS[-1]
WORD_TABLES = ("words", "word_counts", "word_totals")  # of PostgreSQL, made by the migration
APPLICATION_ID = 0x756E7370  # "unsp", in the header of an SQLite file that is ours

metadata = sa.MetaData()

# SQLite only counts up by itself on a column of type INTEGER.
_Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_Sha = sa.LargeBinary(32)


def plain_text(length: int | None = None) -> sa.types.TypeEngine[str]:
    """Text that is compared by its characters' numbers on every engine, whatever language a
    server was set up for.
    """
    kind = sa.Text if length is None else sa.String
    return kind(length).with_variant(kind(length, collation="C"), "postgresql")


class UtcTime(sa.TypeDecorator[datetime]):
    """An aware datetime in UTC, whatever the database makes of time zones."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        moment = value.astimezone(UTC)
        return moment if dialect.name == "postgresql" else moment.replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        moment: datetime = value
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


_FIELD_LENGTH = 400  # what an index key of SQL Server holds beside the name


def field_text(value: str) -> str:
    """A metadata string as it is compared: whole, or its beginning and a fingerprint, so that
    long ones are told apart to their end.
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
    # what its embedder was opened by
    sa.Column("setting", sa.String(1000), nullable=False, server_default=sa.text("''")),
    sa.UniqueConstraint("embedder", "revision", "dimension", name="uq_spaces_embedder"),
)

projects = sa.Table(
    "projects",
    metadata,
    sa.Column("id", _Id, primary_key=True, autoincrement=True),
    sa.Column("name", plain_text(200), nullable=False),
    sa.Column("name_sha", _Sha, nullable=False),
    # where it was indexed from; empty for documents given as text
    sa.Column("root", sa.Text, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),  # the last change of a chunk
    # removals up to here are forgotten; who is behind starts anew
    sa.Column("floor", sa.BigInteger, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.UniqueConstraint("name_sha", name="uq_projects_name"),
    # an id is never used twice, so a folder derived from a forgotten project can't be mistaken
    sqlite_autoincrement=True,
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", _Id, primary_key=True, autoincrement=True),
    sa.Column(
        "project_id",
        sa.BigInteger,
        sa.ForeignKey("projects.id", ondelete="CASCADE"),
        nullable=False,
    ),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    # tells a process from an earlier one of the same number
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
    sa.Column(
        "project_id",
        sa.BigInteger,
        sa.ForeignKey("projects.id", ondelete="CASCADE"),
        nullable=False,
    ),
    sa.Column("path", plain_text(), nullable=False),
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
    # a file of the project's folder, or text that was given
    sa.Column("origin", sa.String(10), nullable=False),
    # how it was cut; another recipe makes it stale
    sa.Column("recipe", sa.String(64), nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("run_id", sa.BigInteger),  # who is indexing it
    sa.UniqueConstraint("project_id", "path_sha", name="uq_documents_path"),
    sa.Index("ix_documents_status", "project_id", "status"),
    sqlite_autoincrement=True,
)

document_fields = sa.Table(
    # the metadata again, one row per key, so that filters can use an index on every engine
    "document_fields",
    metadata,
    sa.Column(
        "document_id",
        sa.BigInteger,
        sa.ForeignKey("documents.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    sa.Column("key", sa.String(200), primary_key=True),
    sa.Column("text", plain_text(_FIELD_LENGTH)),
    sa.Column("number", sa.Double),
    sa.Index("ix_document_fields_text", "key", "text"),
    sa.Index("ix_document_fields_number", "key", "number"),
)

chunks = sa.Table(
    "chunks",
    metadata,
    # BIGINT also on SQLite, so that it is not the row's place there: ids are random, and rows of a
    # kilobyte are best written one after the other.
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("project_id", sa.BigInteger, nullable=False),
    sa.Column(
        "document_id",
        sa.BigInteger,
        sa.ForeignKey("documents.id", ondelete="CASCADE"),
        nullable=False,
    ),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("start_offset", sa.Integer, nullable=False),
    sa.Column("end_offset", sa.Integer, nullable=False),
    sa.Column("first_line", sa.Integer, nullable=False),
    sa.Column("last_line", sa.Integer, nullable=False),
    sa.Column("headings", sa.Text, nullable=False),  # outermost first, one per line
    sa.Column("level", sa.Integer, nullable=False),
    sa.Column("symbol", sa.Text, nullable=False),
    # bare names, or headings, that begin in it; one per line
    sa.Column("defines", sa.Text, nullable=False),
    sa.Column("token_count", sa.Integer, nullable=False),
    # of what was embedded, which is more than the text: title and headings too
    sa.Column("text_sha", _Sha, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    # the same for the same text, wherever it stands
    sa.Column("copy_key", sa.BigInteger, nullable=False, server_default="0"),
    sa.UniqueConstraint("document_id", "position", name="uq_chunks_position"),
    sa.Index("ix_chunks_seq", "project_id", "seq"),
)

sequences = sa.Table(
    # a random stamp per sequence number: a catalog restored from a back-up counts on, but never
    # with the same stamps
    "sequences",
    metadata,
    sa.Column(
        "project_id",
        sa.BigInteger,
        sa.ForeignKey("projects.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("stamp", sa.BigInteger, nullable=False),
)

removals = sa.Table(
    "removals",
    metadata,
    sa.Column(
        "project_id",
        sa.BigInteger,
        sa.ForeignKey("projects.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("chunk_id", sa.BigInteger, primary_key=True),
)

embeddings = sa.Table(
    "embeddings",
    metadata,
    sa.Column("id", _Id, primary_key=True, autoincrement=True),
    sa.Column(
        "space_id", sa.BigInteger, sa.ForeignKey("spaces.id", ondelete="CASCADE"), nullable=False
    ),
    sa.Column("text_sha", _Sha, nullable=False),
    sa.Column("vector", sa.LargeBinary, nullable=False),  # float32, little-endian
    sa.UniqueConstraint("space_id", "text_sha", name="uq_embeddings_text"),
)

skipped = sa.Table(
    "skipped",  # files whose content said no, so that the next run need not read them again
    metadata,
    sa.Column(
        "project_id",
        sa.BigInteger,
        sa.ForeignKey("projects.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    sa.Column("path_sha", _Sha, primary_key=True),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("modified_ns", sa.BigInteger, nullable=False),
    sa.Column("recipe", sa.String(64), nullable=False),
    sa.Column("reason", sa.String(40), nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
)

conversations = sa.Table(
    "conversations",  # what a document has beside its own row where it is a conversation
    metadata,
    sa.Column(
        "document_id",
        sa.BigInteger,
        sa.ForeignKey("documents.id", ondelete="CASCADE"),
        primary_key=True,
    ),
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
    sa.Column(
        "document_id",
        sa.BigInteger,
        sa.ForeignKey("documents.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    sa.Column("number", sa.Integer, primary_key=True),  # from 1
    # as it is called where it comes from; may be empty
    sa.Column("name", plain_text(250), nullable=False),
    sa.Column("author", sa.Text, nullable=False),
    # the author, or the kind where there is none, as it is compared: in lower case
    sa.Column("speaker", plain_text(200), nullable=False),
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
    sa.Column(
        "project_id",
        sa.BigInteger,
        sa.ForeignKey("projects.id", ondelete="CASCADE"),
        nullable=False,
    ),
    sa.Column("name", plain_text(), nullable=False),
    sa.Column("name_sha", _Sha, nullable=False),
    sa.Column("last", sa.BigInteger, nullable=False),  # the number of the newest record
    # how many records there are, so that nobody has to count them
    sa.Column("kept", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("project_id", "name_sha", name="uq_streams_name"),
    sqlite_autoincrement=True,
)

records = sa.Table(
    "records",
    metadata,
    sa.Column(
        "stream_id",
        sa.BigInteger,
        sa.ForeignKey("streams.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    sa.Column("number", sa.BigInteger, primary_key=True),  # in the order in which they came
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("sha", _Sha, nullable=False),
    sa.Column("length", sa.Integer, nullable=False),  # characters of the body
    sa.Column("body", sa.Text, nullable=False),
    sa.Index("ix_records_at", "stream_id", "at", "number"),
)

keys = sa.Table(
    "keys",  # who may ask through a service; what is secret of a key is not here
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    # of the whole key, which is random enough to need no salt
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
    sa.Column("project", plain_text(200), nullable=False),
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


# What lives for hours, not for good. With SQLite it lies in a file of its own, so that keeping a
# search's window never waits for an indexing run that has the catalog locked; that file may be
# deleted at any time, and only continuations go with it. A server has them among its other tables.
short_lived = sa.MetaData()

windows = sa.Table(
    "windows",
    short_lived,
    sa.Column("name", sa.LargeBinary(10), primary_key=True),
    sa.Column("caller", sa.String(64), nullable=False),
    sa.Column("question", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),  # seconds since 1970
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Index("ix_windows_created", "created_at"),
    sa.Index("ix_windows_expires", "expires_at"),
)

segments = sa.Table(
    # gone before their window is: what was asked is known for longer than what was answered
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
    # which chunk was shown in place of one that was rewritten after the window was frozen
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
    # queries by their fingerprint, so that one that was embedded in another process need not be
    # embedded again
    "query_vectors",
    short_lived,
    sa.Column("key", _Sha, primary_key=True),
    sa.Column("vector", sa.LargeBinary, nullable=False),  # float32, little-endian
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Index("ix_query_vectors_expires", "expires_at"),
)
