"""A retrieval memory: index code and documents, find them again by meaning and by word, within a token budget."""

from unspool.corpus import Check, Corpus, ProjectStatus, drop_old, open, reembed
from unspool.domain.answers import Answer, Citation, Usage
from unspool.domain.documents import Chunk, Document, DocumentRecord, Kind, Lines, Status
from unspool.domain.events import AnswerFinished, Outcome, PageServed
from unspool.domain.queries import Form, Hit, Insights, Origin, Page, Served, Snippet, Source, Stability
from unspool.domain.reports import Failure, IndexReport, Masked, Progress, ReembedPlan, ReembedReport, Skip
from unspool.errors import UnspoolError
from unspool.settings import Settings

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AnswerFinished",
    "Check",
    "Chunk",
    "Citation",
    "Corpus",
    "Document",
    "DocumentRecord",
    "Failure",
    "Form",
    "Hit",
    "IndexReport",
    "Insights",
    "Kind",
    "Lines",
    "Masked",
    "Origin",
    "Outcome",
    "Page",
    "PageServed",
    "Progress",
    "ProjectStatus",
    "ReembedPlan",
    "ReembedReport",
    "Served",
    "Settings",
    "Skip",
    "Snippet",
    "Source",
    "Stability",
    "Status",
    "UnspoolError",
    "Usage",
    "drop_old",
    "open",
    "reembed",
]
