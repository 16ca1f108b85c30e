"""A retrieval memory: index code, documents and conversations, find them again by meaning and by
word, within a token budget.
"""

import sys

# `python -m unspool` puts the current folder first on the module path, and it may be a stranger's.
# It goes before anything else is imported. Meanwhile `sys.argv[0]` is "-m", and the module's name
# stands before the arguments. Other programs keep their path.
if (
    sys.argv[:1] == ["-m"]
    and sys.orig_argv[-len(sys.argv)] in ("unspool", "-munspool")
    and not sys.flags.safe_path
):
    del sys.path[0]

from unspool.access.keys import Keys
from unspool.corpus import Corpus
from unspool.domain.answers import Answer, Citation, Usage
from unspool.domain.conversations import AuthorKind, Conversation, ConversationRecord, Message
from unspool.domain.documents import Chunk, Document, DocumentRecord, Kind, Lines, Passage, Status
from unspool.domain.events import AnswerFinished, IndexFinished, Outcome, PageServed
from unspool.domain.history import HistoryEntry, HistoryPage, Record, Retention, StreamStatus
from unspool.domain.keys import Key, Role
from unspool.domain.queries import (
    Form,
    Hit,
    Insights,
    Origin,
    Page,
    Said,
    Served,
    Snippet,
    Source,
    Stability,
)
from unspool.domain.reports import (
    BadRecord,
    Check,
    Failure,
    IndexReport,
    Masked,
    MoveReport,
    Progress,
    ProjectStatus,
    ReembedPlan,
    ReembedReport,
    RememberReport,
    Skip,
    StoreStatus,
)
from unspool.errors import UnspoolError
from unspool.memory.conversations import Conversations
from unspool.memory.history import History, MemoryHistory
from unspool.moving import move
from unspool.opening import open
from unspool.settings import Settings, UntrustedFolderWarning
from unspool.switching import drop_old, reembed

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AnswerFinished",
    "AuthorKind",
    "BadRecord",
    "Check",
    "Chunk",
    "Citation",
    "Conversation",
    "ConversationRecord",
    "Conversations",
    "Corpus",
    "Document",
    "DocumentRecord",
    "Failure",
    "Form",
    "History",
    "HistoryEntry",
    "HistoryPage",
    "Hit",
    "IndexFinished",
    "IndexReport",
    "Insights",
    "Key",
    "Keys",
    "Kind",
    "Lines",
    "Masked",
    "MemoryHistory",
    "Message",
    "MoveReport",
    "Origin",
    "Outcome",
    "Page",
    "PageServed",
    "Passage",
    "Progress",
    "ProjectStatus",
    "Record",
    "ReembedPlan",
    "ReembedReport",
    "RememberReport",
    "Retention",
    "Role",
    "Said",
    "Served",
    "Settings",
    "Skip",
    "Snippet",
    "Source",
    "Stability",
    "Status",
    "StoreStatus",
    "StreamStatus",
    "UnspoolError",
    "UntrustedFolderWarning",
    "Usage",
    "drop_old",
    "move",
    "open",
    "reembed",
]
