"""A client for `unspool serve`: the methods, results and errors of a corpus, over HTTP.

    with unspool.open("http://localhost:8765", key="unspool_...") as corpus:
        page = corpus.search("how are sessions opened?")

`RemoteCorpus` sends one request or a few for each method. `AsyncRemoteCorpus` is generated from it
and runs it in threads.
"""

from unspool.errors import MissingDependencyError

try:
    import httpx2 as _  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "httpx2":
        raise
    raise MissingDependencyError(
        "a corpus in a service needs the package httpx2; pip install 'unspool[client]'"
    ) from error

from unspool.client.asynchronous import (
    AsyncRemoteConversations,
    AsyncRemoteCorpus,
    AsyncRemoteHistory,
)
from unspool.client.corpus import RemoteCorpus
from unspool.client.memory import RemoteConversations, RemoteHistory
from unspool.client.streams import RemoteAnswerStream

__all__ = [
    "AsyncRemoteConversations",
    "AsyncRemoteCorpus",
    "AsyncRemoteHistory",
    "RemoteAnswerStream",
    "RemoteConversations",
    "RemoteCorpus",
    "RemoteHistory",
]
