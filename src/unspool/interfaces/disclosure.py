"""Messages of errors for remote callers.

Names and addresses of the systems behind a service are for its operator alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from unspool.domain.keys import Role
from unspool.errors import COMMANDS, Hint, OverdueError, UnspoolError, UnsupportedError

LOGGED = 500  # characters of a message in the log

# in place of messages that name hosts, folders or addresses of the operator
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


def words(error: UnspoolError, role: Role | None, advice: Mapping[Hint, str] = COMMANDS) -> str:
    """Return the message of an error for a role; None is an unknown caller.

    A message that this caller may not read is logged instead.
    """
    is_plain = error.http_status < 500 or isinstance(error, OverdueError | UnsupportedError)
    if is_plain or (role is not None and role.allows(Role.ADMIN)):
        return error.explain(advice)
    write_down(error)
    return _INSTEAD.get(error.code, _MISMADE)


def write_down(error: UnspoolError) -> None:
    """Log the message of an error. The log masks secrets."""
    logging.getLogger("unspool").warning(
        "%s, code %s: %s", type(error).__name__, error.code, str(error)[:LOGGED]
    )
