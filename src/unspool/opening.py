"""`unspool.open`: opens a corpus in this process or in a service."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from unspool.corpus import Corpus
from unspool.errors import ConfigError
from unspool.settings import Settings

if TYPE_CHECKING:  # imported where it is used, so that `import unspool` loads no client
    from unspool.client import RemoteCorpus


@overload
def open(  # noqa: A001
    address: str | None = None,
    *,
    vectors: str | None = None,
    embedder: object = None,
    settings: Settings | None = None,
    trust_folder: bool = False,
) -> Corpus: ...


@overload
def open(  # noqa: A001
    address: str | None = None,
    *,
    settings: Settings | None = None,
    key: str | None,
    trust_folder: bool = False,
) -> RemoteCorpus: ...


def open(  # noqa: A001
    address: str | None = None,
    *,
    vectors: str | None = None,
    embedder: object = None,
    settings: Settings | None = None,
    key: str | None = None,
    trust_folder: bool = False,
) -> Corpus | RemoteCorpus:
    """Open the corpus at an address, or the one that the settings name. Create it if it does not
    exist.

    `embedder` is a name as in the settings, a LangChain `Embeddings` object, or your own embedder.
    An address such as http://host:8765 is that of a service, which gets `key` or the key of the
    settings. The result has the same methods. With `trust_folder` every setting in `unspool.toml`
    and `.env` of the current folder counts. Without it, a folder that the user does not trust can
    only set harmless ones.
    """
    name = embedder if isinstance(embedder, str) else None
    given = {"database": address, "vectors": vectors, "embedder": name}
    if settings is None:
        settings = Settings.load(arguments=given, trust_folder=trust_folder)
    elif trust_folder:
        raise ConfigError(
            "trust_folder was given with settings, which are loaded already; give it to "
            "Settings.load()"
        )
    else:
        settings = settings.with_arguments(given)
    if settings.database.address.lower().startswith(("http://", "https://")):
        from unspool.client import RemoteCorpus

        if vectors is not None or embedder is not None:
            raise ConfigError(
                "vectors and embedder are chosen where the service runs; leave them out"
            )
        return RemoteCorpus(settings.database.address, key=key, settings=settings)
    if key is not None:
        raise ConfigError(
            "a key was given for a corpus in this process, which needs none; give the address "
            "of a service, or leave it out"
        )
    return Corpus(settings, embedder=None if name is not None else embedder)
