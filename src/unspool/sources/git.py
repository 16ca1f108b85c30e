"""Repositories by their address: a shallow copy of one commit, made with the `git` program.

The address may hold a password. It is handed to git in its environment and to nothing else: not on a command line, which every user of the
machine can read, not to the copy's configuration, not to a message.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote

from unspool.domain.documents import DEFAULT_PROJECT
from unspool.domain.reports import Progress
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

LOOK_EVERY_S = 0.5  # how soon a fetch that hangs hears that nobody waits for it any more
_FETCHING = Progress(task="fetching", done=0, total=0)
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
_STRAIGHT = ("-c", "http.followRedirects=false")
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
    head, user, host, path = _parts(re.sub(r"[?#].*$", "", url, flags=re.DOTALL) if "://" in url else url)
    if not head:
        return url
    # For ssh the user is part of the address; on the web it may be a token.
    shown = user if user is None or (_is_ssh(head) and ":" not in user) else "***"
    return f"{head}://{host}{path}" if shown is None else f"{head}://{shown}@{host}{path}"


def host_of(url: str) -> str:
    """The host that an address leads to, in lower case and without its port; nothing for `file://`."""
    head, _, host, _ = _parts(url)
    if not head:
        host = url.partition(":")[0].rpartition("@")[2]
    found = re.fullmatch(r"\[([^\]]*)\](?::\d*)?|([^:]*)(?::\d*)?", host)
    return (found[1] or found[2] or "").lower().rstrip(".") if found else host.lower()


def _parts(url: str) -> tuple[str, str | None, str, str]:
    """Scheme, user with password (None: there is none), host with port and the rest of an address; all but the last empty where it has no scheme."""
    head, separator, rest = url.partition("://")
    if not separator:
        return "", None, "", url
    # An unescaped "/" in a password: what looks like the host is the user and no valid port.
    odd = re.match(r"[^/@]*:(?!\d+/)[^/@]*/.*@", rest)
    split = rest.find("/", odd.end() if odd else 0)
    host, path = (rest[:split], rest[split:]) if split >= 0 else (rest, "")
    user, at, host = host.rpartition("@")
    return head, user if at else None, host, path


def _is_ssh(scheme: str) -> bool:
    return scheme.lower() in ("ssh", "git+ssh")


def project_name(url_or_path: str) -> str:
    """A name for what is found there: the last part of the address or path, without `.git`."""
    text = redact(url_or_path) if is_git_url(url_or_path) else os.path.abspath(url_or_path)
    last = re.split(r"[/\\:]", text.rstrip("/\\"))[-1].removesuffix(".git")
    name = re.sub(r"[*,\x00-\x1f\x7f]", "-", last).strip()[:200].strip()
    return name or DEFAULT_PROJECT


def check_ref(source: str, ref: str) -> None:
    """Refuse a branch, tag or commit of what is no repository."""
    if ref and not is_git_url(source):
        raise InputError(f"ref {ref[:80]!r} was given with a path; a ref chooses what to fetch from a git URL, a folder is taken as it is")


def clone(
    url: str,
    *,
    into: Path,
    ref: str = "",
    timeout_s: float = 600,
    redirects: bool = True,
    on_progress: Callable[[Progress], None] | None = None,
) -> Path:
    """The files of one commit (`ref`: a branch, tag or commit; else the default branch) in the folder `into`.

    Fetches only what is new if `into` was made from the same address before; local changes there are thrown away. Without `redirects` nothing is
    fetched from a host that the address does not name. `on_progress` is called again and again while git works, and may raise to end it.
    """
    if not is_git_url(url) or url.startswith("-"):
        raise InputError(f"{redact(url)[:200]!r} is no git address; give https://, ssh://, git@host:path or file://")
    if ref.startswith("-") or re.search(r"[\s:?*\[\\^~\x00-\x1f]|\.\.", ref):
        raise InputError(f"{ref[:200]!r} cannot be a branch, tag or commit; give its plain name")
    git = _Git(url, timeout_s, on_progress, options=() if redirects else _STRAIGHT)
    source = redact(url)
    try:
        made = not into.exists()
        empty = made or not any(into.iterdir())
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{str(into)!r} cannot hold a copy of {source}: {error.strerror}; choose another folder") from error
    try:
        if empty:
            git.run("init", "--quiet", "--template=", ".", cwd=into)
            git.run("config", "--local", _SOURCE, source, cwd=into)
        elif git.run("config", "--local", "--get", _SOURCE, cwd=into, check=False).strip() != source:
            raise ConflictError(f"{str(into)!r} holds something else than a copy of {source}; remove it or choose another folder")
        git.run("fetch", "--quiet", "--depth=1", "--no-tags", "--force", "--no-recurse-submodules", "--", git.address, ref or "HEAD", cwd=into)
        git.run("reset", "--quiet", "--hard", "FETCH_HEAD", "--", cwd=into)
        git.run("clean", "--quiet", "-ffd", cwd=into)
    except BaseException:
        if empty:  # what was never fetched must not keep the place from another address
            shutil.rmtree(into, ignore_errors=True)
            if not made:
                into.mkdir(exist_ok=True)
        raise
    return into


class _Git:
    """Runs git for one address, within one time limit for all steps together."""

    def __init__(self, url: str, timeout_s: float, on_progress: Callable[[Progress], None] | None, *, options: Sequence[str]) -> None:
        self.url = url
        self.address, self._credentials = _secretless(url)
        self.timeout_s = timeout_s
        self.deadline = time.monotonic() + timeout_s
        self._on_progress = on_progress
        self._options = options

    def run(self, *arguments: str, cwd: Path, check: bool = True) -> str:
        try:
            with _STARTING:
                process = subprocess.Popen(
                    ["git", *_SAFE, *self._options, *arguments],
                    cwd=cwd,
                    env=_environment(cwd) | self._credentials,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,  # no terminal to ask on, and helpers can be ended together
                )
                _RUNNING.add(process)
        except FileNotFoundError as error:
            raise MissingDependencyError(
                f"{redact(self.url)} needs the git program; install it (apt install git, brew install git, git-scm.com)"
            ) from error
        try:
            output, complaint = self._awaited(process)
        except BaseException:
            _end(process)
            raise
        finally:
            _RUNNING.discard(process)
        if process.returncode and check:
            raise self._failure(complaint.decode("utf-8", "replace"))
        return output.decode("utf-8", "replace")

    def _awaited(self, process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
        """What git wrote and complained of; a time-out where it takes too long, and whatever `on_progress` raises meanwhile."""
        while True:
            if self._on_progress is not None:
                self._on_progress(_FETCHING)
            left = self.deadline - time.monotonic()
            try:
                return process.communicate(timeout=min(max(left, 0.001), LOOK_EVERY_S))
            except subprocess.TimeoutExpired:
                if left > LOOK_EVERY_S:
                    continue
            raise ServiceTimeoutError(f"{redact(self.url)} did not finish within {self.timeout_s:g} s; try again or allow more time")

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
    inherited = {name: value for name, value in ours.items() if name not in _LOCAL_VARIABLES and not name.startswith(("GIT_TRACE", "GIT_CURL_"))}
    return inherited | {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_CEILING_DIRECTORIES": str(cwd.resolve().parent),  # an empty folder inside another work tree is no copy of ours
        "LC_ALL": "C",
    }


def _secretless(url: str) -> tuple[str, dict[str, str]]:
    """An address without what is secret of its user, and that as variables by which git sends it to this host alone."""
    head, user, host, path = _parts(url)
    if user is None or head.lower() == "file":
        return url, {}
    name, separator, password = user.partition(":")
    if _is_ssh(head):
        return f"{head}://{name}@{host}{path}", {}  # ssh takes no password from an address
    base, bare = f"{head.lower()}://{host}/", f"{head}://{host}{path}"
    if not separator:
        key, value = f"credential.{base}.username", unquote(name)
    else:
        both = f"{unquote(name)}:{unquote(password)}".encode()
        key, value = f"http.{base}.extraHeader", f"Authorization: Basic {base64.b64encode(both).decode()}"
    return bare, {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": key, "GIT_CONFIG_VALUE_0": value}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends git and its helpers if they still run."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.wait()
    for pipe in (process.stdout, process.stderr):  # not read to their end: a helper that left the group may hold them open
        if pipe is not None:
            pipe.close()


_STARTING = threading.Lock()
_RUNNING: set[subprocess.Popen[bytes]] = set()


@atexit.register
def end_all() -> None:
    """They are in sessions of their own, and would outlive a process that ends while another of its threads fetches."""
    _STARTING.acquire()  # and never let go of: nothing is started any more
    for process in list(_RUNNING):
        _end(process)
