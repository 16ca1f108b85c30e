"""What a caller from elsewhere may read of an error.

What the service needs has names and places that only its operator should see.
"""

from __future__ import annotations

import logging

from unspool.domain.keys import Role
from unspool.errors import OverdueError, UnspoolError, UnsupportedError

LOGGED = 500  # characters of what an error says

# Instead of the words of errors that name hosts, folders or addresses of the operator's
_INSTEAD = {
    "unreachable": (
        "something that the service needs does not answer; try again later, the service's log "
        "says more"
    ),
    "timeout": (
        "something that the service needs did not answer in time; try again later, the service's "
        "log says more"
    ),
    "rate_limited": "something that the service needs is asked too often; try again later",
    "rejected": (
        "something that the service needs refused what it was asked for; the service's log says "
        "more"
    ),
    "service": "something that the service needs failed; the service's log says more",
}
_MISMADE = "the service is not set up for this; the service's log says more"


def words(error: UnspoolError, role: Role | None) -> str:
    """What somebody of a role may read of an error, None where it is not known who asks; the log
    is told the rest.
    """
    is_plain = error.http_status < 500 or isinstance(error, OverdueError | UnsupportedError)
    if is_plain or (role is not None and role.allows(Role.ADMIN)):
        return str(error)
    write_down(error)
    return _INSTEAD.get(error.code, _MISMADE)


def write_down(error: UnspoolError) -> None:
    """Tell the log what an error says; it masks secrets."""
    logging.getLogger("unspool").warning(
        "%s, code %s: %s", type(error).__name__, error.code, str(error)[:LOGGED]
    )
