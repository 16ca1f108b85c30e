"""Checks of the Host and Origin headers, against DNS rebinding and CSRF."""

from __future__ import annotations

import ipaddress
import re

from starlette.datastructures import Headers

from unspool.interfaces.http.errors import HostError, OriginError
from unspool.settings.options import ServeOptions

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]*)(:[0-9]+)?")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class SourceCheck:
    """Check that rejects unknown host names and web pages of unknown origins.

    A service that other machines reach also answers to any bare address: no name of a stranger
    resolves to one.
    """

    def __init__(self, options: ServeOptions) -> None:
        self._is_public = not is_loopback(options.host)
        names = [options.host, *split_list(options.hosts)]
        self._hosts = _LOOPBACK | {name.strip("[]").lower() for name in names}
        self._origins = frozenset(split_list(options.origins))

    def check(self, headers: Headers) -> None:
        """Raise `HostError` or `OriginError`, unless a request may be answered."""
        hosts = headers.getlist("host")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        match = _HOST.fullmatch(host)
        name = match[1].strip("[]") if match else ""
        if name not in self._hosts and not (self._is_public and _is_address(name)):
            raise HostError(
                f"the service is not called {host[:60]!r}; UNSPOOL_SERVE_HOSTS lists its names"
            )
        origin = headers.get("origin", "").lower()
        if origin and origin not in self._origins | {f"http://{host}", f"https://{host}"}:
            raise OriginError(
                f"pages of {origin[:60]!r} may not call this service; UNSPOOL_SERVE_ORIGINS "
                f"lists those that may"
            )


def split_list(text: str) -> list[str]:
    """Return the lower-case items of a list with commas."""
    return [part.strip().lower().rstrip("/") for part in text.split(",") if part.strip()]


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches an address."""
    name = host.strip("[]").lower()
    return name == "localhost" or (_is_address(name) and ipaddress.ip_address(name).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
