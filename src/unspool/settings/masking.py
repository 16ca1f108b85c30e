"""Secrets in texts that are shown: keys, and passwords in addresses."""

from __future__ import annotations

import re

MASK = "***"
_PASSWORD = re.compile(r"^([a-zA-Z][\w+.-]*://[^:/@]*):.*@", re.DOTALL)
_PASSWORD_OPTION = re.compile(
    r"([?&](?:sslpassword|password|api[-_]?key|key|token|sig|code)=)[^&]*", re.IGNORECASE
)


def redact_address(address: str) -> str:
    """Return an address without its password; any other text unchanged."""
    return _PASSWORD_OPTION.sub(rf"\1{MASK}", _PASSWORD.sub(rf"\1:{MASK}@", address))
