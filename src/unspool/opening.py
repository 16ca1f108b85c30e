"""`unspool.open`: one way to a corpus, whether it is in this process or in a service."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from unspool import corpus
from unspool.corpus import Corpus
from unspool.errors import ConfigError
from unspool.settings import Settings

if TYPE_CHECKING:  # the real import is where it is used: `import unspool` loads no client
    from unspool.client import RemoteCorpus

_OF_FOLDER = ("unspool.toml", ".env")


@overload
def open(  # noqa: A001
    address: str | None = None, *, vectors: str | None = None, embedder: object = None, settings: Settings | None = None
) -> Corpus: ...


@overload
def open(address: str | None = None, *, settings: Settings | None = None, key: str | None) -> RemoteCorpus: ...  # noqa: A001


def open(  # noqa: A001
    address: str | None = None,
    *,
    vectors: str | None = None,
    embedder: object = None,
    settings: Settings | None = None,
    key: str | None = None,
) -> Corpus | RemoteCorpus:
    """The corpus at an address, or the one that the settings name. It is made if it does not exist.

    `embedder` is a name as in the settings, a LangChain `Embeddings` object, or an embedder of one's own. An address such as http://host:8765 is
    that of a service, to which `key` is shown, or the setting's; what comes back has the same methods.
    """
    settings, service = resolved(address, vectors=vectors, embedder=embedder, settings=settings, key=key)
    if service is None:
        return corpus.open(embedder=embedder, settings=settings)
    from unspool.client import RemoteCorpus

    return RemoteCorpus(service, key=key, settings=settings)


def resolved(
    address: str | None, *, vectors: str | None, embedder: object, settings: Settings | None, key: str | None
) -> tuple[Settings, str | None]:
    """The settings with what is given on top, and the address of the service that they name; None for a corpus in this process."""
    name = embedder if isinstance(embedder, str) else None
    given = {"database": address, "vectors": vectors, "embedder": name}
    settings = Settings.load(arguments=given) if settings is None else settings.with_arguments(given)
    if not settings.database.lower().startswith(("http://", "https://")):
        if key is not None:
            raise ConfigError("a key was given for a corpus in this process, which asks for none; give the address of a service, or leave it out")
        return settings, None
    if vectors is not None or embedder is not None:
        raise ConfigError("vectors and embedder are chosen where the service runs; leave them out")
    if key is None and settings.key and _is_foreign(settings):
        raise ConfigError(
            f"UNSPOOL_KEY is yours, but where it would be sent is said by {settings.origins['database']} in this folder, which somebody else may "
            "have written; set UNSPOOL_DATABASE in the environment, or put the key beside it"
        )
    return settings, settings.database


def _is_foreign(settings: Settings) -> bool:
    """Whether a file of the folder one happens to be in decides who gets a key that comes from elsewhere."""
    return settings.origins.get("database") in _OF_FOLDER and settings.origins.get("key") not in _OF_FOLDER
