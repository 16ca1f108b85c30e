"""Sessions: one per client, closed after ten idle minutes."""

import secrets
import time

IDLE_SECONDS = 600


class SessionStore:
    """Every open session by its token."""

    def __init__(self):
        self._seen = {}

    def open_session(self, user):
        """Give a user a new token that nobody can guess."""
        token = secrets.token_urlsafe(24)
        self._seen[token] = (user, time.monotonic())
        return token

    def expire_idle(self, now=None):
        """Close the sessions that have not been used for a while, and say how many there were."""
        now = time.monotonic() if now is None else now
        old = [token for token, (_, seen) in self._seen.items() if now - seen > IDLE_SECONDS]
        for token in old:
            del self._seen[token]
        return len(old)
