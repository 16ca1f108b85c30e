"""Repositories by their address: a shallow copy of one commit, made with the `git` program.

The address may contain a password. Only git's environment contains it: no command line, which every
user of the machine can read, no configuration file of the copy, no message.

Nothing that a repository contains starts a program. Of the user's git configuration only the parts
for authentication and network are used (`_USER_KEYS`), so that private repositories work. Filters,
hooks, diff drivers, aliases and file system monitors are not configured at all. The configuration
of a copy is written anew before each run.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from unspool.domain.documents import DEFAULT_PROJECT
from unspool.domain.reports import OnProgress, Progress
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
from unspool.sources.names import split_words

LOOK_EVERY_S = 0.5  # how soon a fetch that hangs hears that nobody waits for it any more
_FETCHING = Progress(task="fetching", done=0, total=0)
_URL = re.compile(r"(?:https?|ssh|git|git\+ssh|file)://\S", re.IGNORECASE)
# git@host:path; a user is asked for, so that C:\ is a path
_SCP = re.compile(r"[\w.-]+@[\w.-]+:(?!//)[^\s:]\S*$")
# An unescaped "/" in a password: what looks like the host is the user and no valid port.
_ODD_USER = r"[^/@]*:(?!\d+/)[^/@]*/.*@"
_ADDRESS = re.compile(
    rf"(?P<scheme>.*?)://(?P<authority>(?:{_ODD_USER})?[^/]*)(?P<path>.*)", re.DOTALL
)
_USER_INFO = re.compile(r"(?<=://)[^/\s@]+@")
# file in the copy's `.git`: the address that the copy was made from, without a password
_SOURCE = "unspool-source"
_CONFIGURATION = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfilemode = false\n" + (
    "\tsymlinks = false\n" if os.name == "nt" else ""
)
# Files of a `.git` folder that change what git runs or where it reads and writes. They are removed
# before each run; `config` and `info` are written anew.
_FOREIGN = (
    "config",
    "config.worktree",
    "commondir",
    "hooks",
    "info",
    "objects/info/alternates",
    "objects/info/http-alternates",
)
_PROTOCOLS = ("file", "git", "http", "https", "ssh")
_SAFE = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("protocol.allow", "never"),
    *((f"protocol.{name}.allow", "always") for name in _PROTOCOLS),
    ("credential.interactive", "false"),
    ("submodule.recurse", "false"),
    ("advice.detachedHead", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
)
# Settings of the user's git configuration that a private repository may need.
_USER_KEYS = re.compile(
    r"credential\..+|http\..+|url\..+\.insteadof|core\.sshcommand|ssh\.variant|safe\.directory",
    re.IGNORECASE,
)
# Variables of the caller that git needs to find its own programs, to authenticate and to use the
# network.
_USER_VARIABLES = split_words(
    "GIT_EXEC_PATH GIT_SSH GIT_SSH_COMMAND GIT_SSH_VARIANT GIT_SSL_CAINFO GIT_SSL_CAPATH "
    "GIT_SSL_CERT GIT_SSL_CIPHER_LIST GIT_SSL_KEY "
    "GIT_SSL_NO_VERIFY GIT_SSL_VERSION GIT_PROXY_SSL_CAINFO GIT_PROXY_SSL_CERT GIT_PROXY_SSL_KEY "
    "GIT_HTTP_PROXY_AUTHMETHOD "
    "GIT_HTTP_USER_AGENT GIT_HTTP_LOW_SPEED_LIMIT GIT_HTTP_LOW_SPEED_TIME"
)
# where the user's configuration is
_USER_FILES = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
_SSH = "ssh -o BatchMode=yes"  # fail instead of asking for a password or about a host
_ANSWERS: tuple[tuple[type[UnspoolError], str, str], ...] = (
    (
        RejectedError,
        (
            r"authentication failed|could not read (?:username|password)|terminal prompts "
            r"disabled|permission denied|access denied"
            r"|returned error: 40[13]|host key verification"
        ),
        (
            "refused to give it out; it may be private or not exist: check the address and your "
            "git "
            "credentials"
        ),
    ),
    (
        NotFoundError,
        r"couldn't find remote ref|not our ref|unadvertised object|invalid refspec",
        "has no such branch, tag or commit, or is empty; check the name",
    ),
    (
        NotFoundError,
        r"not found|does not exist|does not appear to be a git repository|no such file",
        "is no repository there; check the address",
    ),
    (
        UnreachableError,
        (
            r"could not resolve|unable to access|connection|timed out|unreachable|hung up|early "
            r"eof|ssl|couldn't connect|failed to connect"
        ),
        "cannot be reached; check the address and the network, then try again",
    ),
)


def is_git_url(text: str) -> bool:
    """Return True for an address that git fetches from, False for a path on this machine."""
    return bool(_URL.match(text) or _SCP.match(text))


def redact(url: str) -> str:
    """Return the address without its password, token or query, fit for messages."""
    head, user, host, path = _split_address(
        re.sub(r"[?#].*$", "", url, flags=re.DOTALL) if "://" in url else url
    )
    if not head:
        return url
    # For ssh the user is part of the address; on the web it may be a token.
    shown = user if user is None or (_is_ssh(head) and ":" not in user) else "***"
    return f"{head}://{host}{path}" if shown is None else f"{head}://{shown}@{host}{path}"


def host_of(url: str) -> str:
    """Return the host of an address, in lower case and without its port; "" for `file://`."""
    head, _, host, _ = _split_address(url)
    if not head:
        host = url.partition(":")[0].rpartition("@")[2]
    found = re.fullmatch(r"\[([^\]]*)\](?::\d*)?|([^:]*)(?::\d*)?", host)
    return (found[1] or found[2] or "").lower().rstrip(".") if found else host.lower()


def _split_address(url: str) -> tuple[str, str | None, str, str]:
    """Split an address into scheme, user with password (None if missing), host with port, and path.

    Without a scheme only the path is set.
    """
    found = _ADDRESS.fullmatch(url)
    if not found:
        return "", None, "", url
    user, at, host = found["authority"].rpartition("@")
    return found["scheme"], user if at else None, host, found["path"]


def _is_ssh(scheme: str) -> bool:
    return scheme.lower() in ("ssh", "git+ssh")


def project_name(url_or_path: str) -> str:
    """Return a name for a project: the last part of its address or path, without `.git`."""
    text = redact(url_or_path) if is_git_url(url_or_path) else os.path.abspath(url_or_path)
    last = re.split(r"[/\\:]", text.rstrip("/\\"))[-1].removesuffix(".git")
    name = re.sub(r"[*,\x00-\x1f\x7f]", "-", last).strip()[:200].strip()
    return name or DEFAULT_PROJECT


def check_ref(source: str, ref: str) -> None:
    """Raise InputError if a branch, tag or commit was given with a path."""
    if ref and not is_git_url(source):
        raise InputError(
            f"ref {ref[:80]!r} was given with a path; a ref chooses what to fetch from a git "
            f"URL, a folder is taken as it is"
        )


def clone(
    url: str,
    *,
    into: Path,
    ref: str = "",
    timeout_s: float = 600,
    redirects: bool = True,
    on_progress: OnProgress | None = None,
) -> Path:
    """Put the files of one commit (`ref`: a branch, tag or commit; else the default branch) into
    the folder `into`.

    Fetch only new objects if `into` was made from the same address before. Local changes there are
    discarded. Without `redirects` nothing is fetched from a host that the address does not name.
    `on_progress` is called repeatedly while git works, and may raise to end it.
    """
    if not is_git_url(url) or url.startswith("-"):
        raise InputError(
            f"{redact(url)[:200]!r} is no git address; give https://, ssh://, git@host:path or "
            f"file://"
        )
    if ref.startswith("-") or re.search(r"[\s:?*\[\\^~\x00-\x1f]|\.\.", ref):
        raise InputError(f"{ref[:200]!r} cannot be a branch, tag or commit; give its plain name")
    git = _Git(url, into, timeout_s, on_progress, redirects=redirects)
    source = redact(url)
    try:
        made = not into.exists()
        empty = made or not any(into.iterdir())
        into.mkdir(parents=True, exist_ok=True)
        if not empty and _read_source(into) != source:
            raise ConflictError(
                f"{str(into)!r} holds something else than a copy of {source}; remove it or "
                f"choose another folder"
            )
    except OSError as error:
        raise InputError(
            f"{str(into)!r} cannot hold a copy of {source}: {error.strerror}; choose another folder"
        ) from error
    try:
        git.fetch(ref or "HEAD", source)
        git.run("reset", "--quiet", "--hard", "FETCH_HEAD", "--")
        git.run("clean", "--quiet", "-ffd")
    except BaseException:
        if empty:  # a folder without a commit must not block another address
            shutil.rmtree(into, ignore_errors=True)
            if not made:
                into.mkdir(exist_ok=True)
        raise
    return into


def _read_source(folder: Path) -> str:
    """Return the address that a copy was made from; "" if the folder is no copy, or if links in
    it lead elsewhere.
    """
    git_folder = folder / ".git"
    try:
        with os.scandir(git_folder) as entries:
            if git_folder.is_symlink() or any(entry.is_symlink() for entry in entries):
                return ""
        return (git_folder / _SOURCE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


class _Git:
    """Git program for one address and one copy, with one time limit for all steps together."""

    def __init__(
        self,
        url: str,
        into: Path,
        timeout_s: float,
        on_progress: OnProgress | None,
        *,
        redirects: bool,
    ) -> None:
        self.url = url
        self.address, self._credentials = _split_credentials(url)
        self.timeout_s = timeout_s
        self.deadline = time.monotonic() + timeout_s
        self._into = into.resolve()
        self._git_folder = self._into / ".git"
        self._on_progress = on_progress
        self._redirects = redirects
        self._user_settings: list[tuple[str, str]] = []

    def fetch(self, ref: str, source: str) -> None:
        """Fetch one commit into the copy. Prepare the copy first."""
        try:
            self._prepare(source)
        except OSError as error:
            raise InputError(
                f"{str(self._into)!r} cannot hold a copy of {source}: {error.strerror}; choose "
                f"another folder"
            ) from error
        self._user_settings = list(self._read_user_settings())
        trusted = [value for key, value in self._user_settings if key == "safe.directory"]
        is_local = self.address.lower().startswith("file:")
        # git does not hand settings on to the program that reads a local repository
        settings = [part for value in trusted for part in ("-c", f"safe.directory={value}")]
        program = shlex.join(["git", *settings, "upload-pack"])
        options = ["--upload-pack", program] if trusted and is_local else []
        self.run(
            "fetch",
            "--quiet",
            "--depth=1",
            "--no-tags",
            "--force",
            "--no-recurse-submodules",
            *options,
            "--",
            self.address,
            ref,
        )

    def _prepare(self, source: str) -> None:
        """Make the `.git` folder, or rid one that exists of every setting that is not from here."""
        self._git_folder.mkdir(exist_ok=True)
        (self._git_folder / _SOURCE).write_text(source, encoding="utf-8")
        for name in _FOREIGN:
            path = self._git_folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if not (self._git_folder / "HEAD").exists():
            self.run("init", "--quiet", "--template=", ".")
        (self._git_folder / "config").write_text(_CONFIGURATION, encoding="utf-8")
        # Attributes in this file override those of the repository, and of git versions that read
        # the user's configuration all the same.
        (self._git_folder / "info").mkdir(exist_ok=True)
        (self._git_folder / "info" / "attributes").write_text(
            "* -filter -diff -merge\n", encoding="utf-8"
        )

    def _read_user_settings(self) -> Iterator[tuple[str, str]]:
        """Yield the settings of the user and of the machine that authentication and network may
        need.
        """
        listed = self.run(
            "config", "--list", "--includes", "--show-scope", "-z", with_user_files=True
        ).split("\0")
        for scope, entry in zip(listed[::2], listed[1::2], strict=False):
            key, separator, value = entry.partition("\n")
            is_redirect = key.lower().startswith("http.") and key.lower().endswith(
                ".followredirects"
            )
            is_restriction = key.startswith("protocol.") and value == "never"
            if scope in ("system", "global") and (
                is_restriction
                or (_USER_KEYS.fullmatch(key) and (self._redirects or not is_redirect))
            ):
                yield key, value if separator else "true"

    def run(self, *arguments: str, with_user_files: bool = False) -> str:
        """Run one git command in the copy and return its output."""
        try:
            with _STARTING:
                process = subprocess.Popen(
                    ["git", *arguments],
                    cwd=self._into,
                    env=self._build_environment(with_user_files),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    # no terminal to ask on, and helpers can be ended together
                    start_new_session=True,
                )
                _RUNNING.add(process)
        except FileNotFoundError as error:
            raise MissingDependencyError(
                f"{redact(self.url)} needs the git program; install it (apt install git, brew "
                f"install git, git-scm.com)"
            ) from error
        try:
            output, complaint = self._wait_for(process)
        except BaseException:
            _end(process)
            raise
        finally:
            _RUNNING.discard(process)
        if process.returncode:
            raise self._translate_failure(complaint.decode("utf-8", "replace"))
        return output.decode("utf-8", "surrogateescape")

    def _build_environment(self, with_user_files: bool) -> dict[str, str]:
        """Return the caller's environment, with only those variables of git that authentication
        and network need.
        """
        ours = dict(os.environ)  # noqa: TID251 - not read, only handed on
        kept = {
            name
            for name in ours
            if not name.startswith("GIT_")
            or name in _USER_VARIABLES
            or (with_user_files and name in _USER_FILES)
        }
        environment = {name: ours[name] for name in kept} | {
            "GIT_DIR": str(self._git_folder),
            "GIT_COMMON_DIR": str(self._git_folder),
            "GIT_WORK_TREE": str(self._into),
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_DEFAULT_HASH": "sha1",
            "GIT_DEFAULT_REF_FORMAT": "files",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "",
            "SSH_ASKPASS": "",
            "SSH_ASKPASS_REQUIRE": "never",
            "GCM_INTERACTIVE": "never",
            "LC_ALL": "C",
        }
        if with_user_files:
            return environment
        if "GIT_ALLOW_PROTOCOL" in ours:  # the user allows fewer
            environment["GIT_ALLOW_PROTOCOL"] = ":".join(
                set(_PROTOCOLS) & set(ours["GIT_ALLOW_PROTOCOL"].split(":"))
            )
        if not {"GIT_SSH", "GIT_SSH_COMMAND"} & kept and not any(
            key == "core.sshcommand" for key, _ in self._user_settings
        ):
            environment["GIT_SSH_COMMAND"] = _SSH
        straight = () if self._redirects else (("http.followRedirects", "false"),)
        restrictions = [one for one in self._user_settings if one[0].startswith("protocol.")]
        settings = [*self._user_settings, *_SAFE, *restrictions, *straight, *self._credentials]
        numbered = list(enumerate(settings))
        return environment | {
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_COUNT": str(len(settings)),
            **{f"GIT_CONFIG_KEY_{number}": key for number, (key, _) in numbered},
            **{f"GIT_CONFIG_VALUE_{number}": value for number, (_, value) in numbered},
        }

    def _wait_for(self, process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
        """Wait for git and return its output and its errors.

        Raise an error after the time limit, or whatever `on_progress` raises.
        """
        while (left := self.deadline - time.monotonic()) > 0:
            if self._on_progress is not None:
                self._on_progress(_FETCHING)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=min(left, LOOK_EVERY_S))
        raise ServiceTimeoutError(
            f"{redact(self.url)} did not finish within {self.timeout_s:g} s; try again or "
            f"allow more time"
        )

    def _translate_failure(self, complaint: str) -> UnspoolError:
        said = self._clean(complaint)
        for error, pattern, meaning in _ANSWERS:
            if re.search(pattern, said, re.IGNORECASE):
                return error(f"{redact(self.url)} {meaning} (git: {said})")
        return ServiceError(f"{redact(self.url)} could not be copied (git: {said})")

    def _clean(self, complaint: str) -> str:
        """Return the errors of git as one line, without the secrets of the address."""
        text = complaint.replace(self.url, redact(self.url))
        user_info = self.url.partition("://")[2].rpartition("@")[0]
        for secret in sorted(
            {
                part
                for raw in (user_info, user_info.partition(":")[2])
                for part in (raw, unquote(raw))
            },
            key=len,
            reverse=True,
        ):
            if len(secret) > 2 and redact(self.url) != self.url:
                text = text.replace(secret, "***")
        text = _USER_INFO.sub("***@", text)
        return " ".join(
            line.strip()
            for line in text.splitlines()
            if line.strip() and not line.startswith("hint:")
        )[:400]


def _split_credentials(url: str) -> tuple[str, list[tuple[str, str]]]:
    """Return an address without its secrets, and the git settings that send them to this host
    alone.
    """
    head, user, host, path = _split_address(url)
    if user is None or head.lower() == "file":
        return url, []
    name, separator, password = user.partition(":")
    if _is_ssh(head):
        return f"{head}://{name}@{host}{path}", []  # ssh takes no password from an address
    base, bare = f"{head.lower()}://{host}/", f"{head}://{host}{path}"
    if not separator:
        return bare, [(f"credential.{base}.username", unquote(name))]
    both = f"{unquote(name)}:{unquote(password)}".encode()
    return bare, [
        (f"http.{base}.extraHeader", f"Authorization: Basic {base64.b64encode(both).decode()}")
    ]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End git and its helpers if they still run."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.wait()
    # not read to their end: a helper that left the group may hold them open
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


_STARTING = threading.Lock()
_RUNNING: set[subprocess.Popen[bytes]] = set()


@atexit.register
def end_all() -> None:
    """End every running git.

    Each has its own session and would outlive a process that ends while one of its threads fetches.
    """
    _STARTING.acquire()  # and never let go of: nothing is started any more
    for process in list(_RUNNING):
        _end(process)
