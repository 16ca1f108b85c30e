"""What embedders of the wire have in common: how their settings are called, and the server that
the options describe.
"""

from __future__ import annotations

from unspool.calling import Names, Server, check_access
from unspool.embedders.options import EmbedderOptions

NAMES = Names(
    prefix="UNSPOOL_EMBEDDER",
    model="UNSPOOL_EMBEDDER",
    slower="lower UNSPOOL_EMBEDDER_CONCURRENCY",
    refused="a text it does not take, or a setting such as UNSPOOL_EMBEDDER_DIMENSION",
)


def server_of(
    provider: str, model: str, options: EmbedderOptions, *, url: str, example: str
) -> Server:
    """The server of a provider that takes its key as most do, where the options say or at the
    provider's own address.
    """
    check_access(provider, model, url=options.url, key=options.key, example=example, names=NAMES)
    headers = {"Authorization": f"Bearer {options.key}"} if options.key else {}
    return Server(
        options.url or url,
        name=f"{provider}:{model}",
        key=options.key,
        timeout_s=options.timeout_s,
        headers=headers,
        names=NAMES,
    )
