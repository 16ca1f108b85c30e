"""Repositories by their address: a shallow copy of one commit, made with the `git` program.

The address may hold a password. It is handed to git and to nothing else: not to the copy's configuration, not to a message.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from urllib.parse import unquote

from unspool.domain.documents import DEFAULT_PROJECT
from unspool.errors import (
    ConflictError,
    InputError,
    MissingDependencyError,
    NotFoundError,
    RejectedError,
    ServiceError,
    ServiceTimeoutError,
    UnreachableError,
    UnspoolError,
)
from unspool.sources.names import words

_URL = re.compile(r"(?:https?|ssh|git|git\+ssh|file)://\S", re.IGNORECASE)
_SCP = re.compile(r"[\w.-]+@[\w.-]+:(?!//)[^\s:]\S*$")  # git@host:path; a user is asked for, so that C:\ is a path
_USER_INFO = re.compile(r"(?<=://)[^/\s@]+@")
_SOURCE = "unspool.source"  # where the copy's configuration keeps the address it was made from, without a password
# Settings of the user and of the machine must not run programs for a repository that nobody has looked at yet.
_SAFE = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "protocol.ext.allow=never"),
    *("-c", "credential.interactive=false"),
    *("-c", "advice.detachedHead=false"),
    *("-c", "gc.auto=0"),
)
_LOCAL_VARIABLES = words(  # as `git rev-parse --local-env-vars` lists them
    "GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_CONFIG GIT_CONFIG_PARAMETERS GIT_CONFIG_COUNT GIT_OBJECT_DIRECTORY GIT_DIR GIT_WORK_TREE "
    "GIT_IMPLICIT_WORK_TREE GIT_GRAFT_FILE GIT_INDEX_FILE GIT_NO_REPLACE_OBJECTS GIT_REPLACE_REF_BASE GIT_PREFIX "
    "GIT_SHALLOW_FILE GIT_COMMON_DIR"
)
_ANSWERS: tuple[tuple[type[UnspoolError], str, str], ...] = (
    (
        RejectedError,
        (
            r"authentication failed|could not read (?:username|password)|terminal prompts disabled|permission denied|access denied"
            r"|returned error: 40[13]|host key verification"
        ),
        "refused to give it out; it may be private or not exist: check the address and your git credentials",
    ),
    (
        NotFoundError,
        r"couldn't find remote ref|not our ref|unadvertised object|invalid refspec",
        "has no such branch, tag or commit, or is empty; check the name",
    ),
    (NotFoundError, r"not found|does not exist|does not appear to be a git repository|no such file", "is no repository there; check the address"),
    (
        UnreachableError,
        r"could not resolve|unable to access|connection|timed out|unreachable|hung up|early eof|ssl|couldn't connect|failed to connect",
        "cannot be reached; check the address and the network, then try again",
    ),
)


def is_git_url(text: str) -> bool:
    """Whether it is an address that git fetches from, and not a path on this machine."""
    return bool(_URL.match(text) or _SCP.match(text))


def redact(url: str) -> str:
    """The address without its password, token or query; fit for messages."""
    head, separator, rest = url.partition("://")
    if not separator:
        return url
    rest = re.sub(r"[?#].*$", "", rest, flags=re.DOTALL)
    # An unescaped "/" in a password: what looks like the host is the user and no valid port.
    odd = re.match(r"[^/@]*:(?!\d+/)[^/@]*/.*@", rest)
    split = rest.find("/", odd.end() if odd else 0)
    host, path = (rest[:split], rest[split:]) if split >= 0 else (rest, "")
    user, at, host = host.rpartition("@")
    # For ssh the user is part of the address; on the web it may be a token.
    shown = user if head.lower() in ("ssh", "git+ssh") and ":" not in user else "***"
    return f"{head}://{shown}{at}{host}{path}" if at else f"{head}://{host}{path}"


def project_name(url_or_path: str) -> str:
    """A name for what is found there: the last part of the address or path, without `.git`."""
    text = redact(url_or_path) if is_git_url(url_or_path) else os.path.abspath(url_or_path)
    last = re.split(r"[/\\:]", text.rstrip("/\\"))[-1].removesuffix(".git")
    name = re.sub(r"[*,\x00-\x1f\x7f]", "-", last).strip()[:200].strip()
    return name or DEFAULT_PROJECT


def clone(url: str, *, into: Path, ref: str = "", timeout_s: float = 600) -> Path:
    """The files of one commit (`ref`: a branch, tag or commit; else the default branch) in the folder `into`.

    Fetches only what is new if `into` was made from the same address before; local changes there are thrown away.
    """
    if not is_git_url(url) or url.startswith("-"):
        raise InputError(f"{redact(url)[:200]!r} is no git address; give https://, ssh://, git@host:path or file://")
    if ref.startswith("-") or re.search(r"[\s:?*\[\\^~\x00-\x1f]|\.\.", ref):
        raise InputError(f"{ref[:200]!r} cannot be a branch, tag or commit; give its plain name")
    git = _Git(url, timeout_s)
    source = redact(url)
    try:
        empty = not into.exists() or not any(into.iterdir())
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{str(into)!r} cannot hold a copy of {source}: {error.strerror}; choose another folder") from error
    if empty:
        git.run("init", "--quiet", "--template=", ".", cwd=into)
        git.run("config", "--local", _SOURCE, source, cwd=into)
    elif git.run("config", "--local", "--get", _SOURCE, cwd=into, check=False).strip() != source:
        raise ConflictError(f"{str(into)!r} holds something else than a copy of {source}; remove it or choose another folder")
    git.run("fetch", "--quiet", "--depth=1", "--no-tags", "--force", "--no-recurse-submodules", "--", url, ref or "HEAD", cwd=into)
    git.run("reset", "--quiet", "--hard", "FETCH_HEAD", "--", cwd=into)
    git.run("clean", "--quiet", "-ffd", cwd=into)
    return into


class _Git:
    """Runs git for one address, within one time limit for all steps together."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self.url = url
        self.timeout_s = timeout_s
        self.deadline = time.monotonic() + timeout_s

    def run(self, *arguments: str, cwd: Path, check: bool = True) -> str:
        try:
            process = subprocess.Popen(
                ["git", *_SAFE, *arguments],
                cwd=cwd,
                env=_environment(cwd),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # no terminal to ask on, and helpers can be ended together
            )
        except FileNotFoundError as error:
            raise MissingDependencyError(
                f"{redact(self.url)} needs the git program; install it (apt install git, brew install git, git-scm.com)"
            ) from error
        try:
            output, complaint = process.communicate(timeout=max(self.deadline - time.monotonic(), 0.001))
        except subprocess.TimeoutExpired:
            raise ServiceTimeoutError(f"{redact(self.url)} did not finish within {self.timeout_s:g} s; try again or allow more time") from None
        finally:
            _end(process)
        if process.returncode and check:
            raise self._failure(complaint.decode("utf-8", "replace"))
        return output.decode("utf-8", "replace")

    def _failure(self, complaint: str) -> UnspoolError:
        said = self._clean(complaint)
        for error, pattern, meaning in _ANSWERS:
            if re.search(pattern, said, re.IGNORECASE):
                return error(f"{redact(self.url)} {meaning} (git: {said})")
        return ServiceError(f"{redact(self.url)} could not be copied (git: {said})")

    def _clean(self, complaint: str) -> str:
        """One line of what git said, without anything secret of the address."""
        text = complaint.replace(self.url, redact(self.url))
        user_info = self.url.partition("://")[2].rpartition("@")[0]
        for secret in sorted({part for raw in (user_info, user_info.partition(":")[2]) for part in (raw, unquote(raw))}, key=len, reverse=True):
            if len(secret) > 2 and redact(self.url) != self.url:
                text = text.replace(secret, "***")
        text = _USER_INFO.sub("***@", text)
        return " ".join(line.strip() for line in text.splitlines() if line.strip() and not line.startswith("hint:"))[:400]


def _environment(cwd: Path) -> dict[str, str]:
    """The caller's, so that proxies and ssh agents work, but nothing that points git at another repository (as in a hook)."""
    ours = os.environ  # noqa: TID251 - not read, only handed on
    inherited = {name: value for name, value in ours.items() if name not in _LOCAL_VARIABLES and not name.startswith("GIT_TRACE")}
    return inherited | {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_CEILING_DIRECTORIES": str(cwd.resolve().parent),  # an empty folder inside another work tree is no copy of ours
        "LC_ALL": "C",
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends git and its helpers if they still run."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.communicate()
