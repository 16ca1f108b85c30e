"""Isolated child processes of this Python, which exchange pickled messages with their parent.

A child imports nothing from the current folder and ignores the `PYTHON*` variables. It is not
started by `multiprocessing`, which imports the caller's main module again: a script without a guard
around its last lines would index inside each of its own workers.
"""

from __future__ import annotations

import contextlib
import copyreg
import importlib
import io
import json
import os
import pickle
import signal
import site
import subprocess
import sys
import threading
import time
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, cast

from unspool.errors import ServiceError

# The setup travels over the pipe. It may contain an address with a password, and every user of the
# machine can read arguments. The standard library comes first. Site folders keep the order that
# they have in the parent.
_START = """
import json, site, sys
setup = json.loads(sys.stdin.buffer.readline())
own = sys.path[:]
folders = set(site.getsitepackages())
first = next((number for number, entry in enumerate(own) if entry in folders), len(own))
for folder in setup["user_sites"]:
    site.addsitedir(folder)
sys.path[:] = dict.fromkeys([*own[:first], *setup["path"], *sys.path[first:], setup["package"]])
from unspool.processes import run_target
run_target(setup["target"], setup["memory_bytes"])
"""
_TICK_S = 0.1
_ORPHANED_S = 1.0
_PACKAGE_FOLDER = str(Path(__file__).resolve().parent.parent)
_OUT_OF_MEMORY = pickle.dumps(MemoryError())


class ChildEndedError(Exception):
    """End of a child before it sent the expected message."""


class ChildOverdueError(ChildEndedError):
    """End of a child that was killed because it sent no message in time."""


class ChildMemoryError(ChildEndedError):
    """End of a child that reached its memory limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a child that reads files of strangers."""

    # without a message: with the start and the end of the process less than 30
    seconds: float = 25.0
    # Private memory. Libraries that are mapped from files add 40 MB, and the parent has 100 to 130
    # MB: below 500 MB together.
    memory_bytes: int = 350_000_000


class Child:
    """Isolated process that runs a function, given as `module:function`, with a `Channel` to
    this process.
    """

    def __init__(
        self, target: str, *, memory_bytes: int = 0, variables: Mapping[str, str] | None = None
    ) -> None:
        setup = {
            "path": trusted_path(),
            "user_sites": [site.getusersitepackages()] if site.ENABLE_USER_SITE else [],
            "package": _PACKAGE_FOLDER,
            "target": target,
            "memory_bytes": memory_bytes,
        }
        options = [
            "-I",
            "-X",
            f"utf8={sys.flags.utf8_mode}",
            *(["-B"] if sys.flags.dont_write_bytecode else []),
        ]
        self._process = subprocess.Popen(
            [sys.executable, *options, "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**isolated_environment(), **(variables or {})},
        )
        self._input = cast(BinaryIO, self._process.stdin)
        self._output = cast(BinaryIO, self._process.stdout)
        self._lock = threading.Lock()
        self._limit: float | None = None  # seconds that the parent waits for the present message
        self._received = 0  # messages
        self._is_overdue = False
        self._has_started = False
        self._ended = threading.Event()
        threading.Thread(target=self._watch, name="unspool-watchdog", daemon=True).start()
        # the next `receive` reports that the child has ended
        with contextlib.suppress(BrokenPipeError):
            self._input.write(json.dumps(setup).encode() + b"\n")
            self._input.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, value: object) -> None:
        """Send a message. A child that has ended is reported by the next `receive`."""
        with contextlib.suppress(BrokenPipeError):
            _write(self._input, _dump(value))

    def receive(self, seconds: float | None = None) -> object:
        """Return the next message, and raise the child's error if the message is one.

        Kill the child if none arrives in time.
        """
        if not self._has_started:
            self._await_start()
        self._limit = seconds
        try:
            message = _read(self._output)
        except (OSError, EOFError, pickle.UnpicklingError, ValueError) as error:
            raise (ChildOverdueError if self._is_overdue else ChildEndedError) from error
        finally:
            with self._lock:
                self._limit, self._received = None, self._received + 1
        if self._is_overdue:  # the message and the end of the time coincided
            raise ChildOverdueError
        if isinstance(message, MemoryError):
            raise ChildMemoryError
        if isinstance(message, Exception):
            raise message
        return message

    def _await_start(self) -> None:
        try:
            _read(self._output)
        except (OSError, EOFError, ValueError) as error:
            if self._ended.is_set():
                raise ChildEndedError from error
            raise ServiceError(
                f"a child process of {sys.executable} did not start; its own message on stderr "
                f"says why"
            ) from error
        self._has_started = True

    def kill(self) -> None:
        """End the child at once. A `receive` that waits in another thread ends with it."""
        self._ended.set()
        self._process.kill()

    def close(self) -> None:
        """End the child and release its pipes."""
        self.kill()
        for pipe in (self._input, self._output):
            # the pipe may contain data that the child never read
            with contextlib.suppress(OSError):
                pipe.close()
        self._process.wait()

    def _watch(self) -> None:
        """Kill the child when its time is over.

        Time in which this process was stopped as well does not count.
        """
        before, spent, received = time.monotonic(), 0.0, 0
        while not self._ended.wait(_TICK_S):
            now = time.monotonic()
            elapsed, before = min(now - before, 2 * _TICK_S), now
            with self._lock:
                if self._limit is None or self._received != received:
                    spent, received = 0.0, self._received
                    continue
                spent += elapsed
                if spent >= self._limit:
                    self._is_overdue = True
                    self._process.kill()
                    return


class Channel:
    """Pipes of a child to its parent."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._incoming, self._outgoing = incoming, outgoing

    def receive(self) -> object:
        """Return the next message of the parent.

        Raise `EOFError` when there is no parent any more.
        """
        return _read(self._incoming)

    def send(self, value: object) -> None:
        """Send a message to the parent."""
        _write(self._outgoing, _dump(value))


def run_target(target: str, memory_bytes: int) -> None:
    """Run a child's function until it returns or the parent closes the pipe.

    Errors travel to the parent.
    """
    # Ctrl-C reaches the whole group of processes, and the parent decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Buffered, because a plain write that a signal interrupts may end halfway, and the parent would
    # wait for the rest.
    outgoing = open(sys.stdout.fileno(), "wb", closefd=False)  # noqa: SIM115 - open as long as the process lives
    sys.stdout = sys.stderr  # text that a library prints must not reach the pipe
    # finalizers that find no memory: the parent reports the file
    sys.unraisablehook = lambda error: None
    channel = Channel(sys.stdin.buffer, outgoing)
    channel.send(None)
    _set_limit("RLIMIT_CORE", 0, 0)  # a crash dump would contain the texts of this process
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    if memory_bytes:
        limit_memory(memory_bytes, memory_bytes)
    module, _, name = target.partition(":")
    try:
        getattr(importlib.import_module(module), name)(channel)
    except (EOFError, BrokenPipeError):
        pass
    except MemoryError:
        with contextlib.suppress(BrokenPipeError):
            _write(outgoing, _OUT_OF_MEMORY)
    except Exception as error:  # noqa: BLE001 - the parent raises it again
        with contextlib.suppress(BrokenPipeError):
            channel.send(portable(error))


def portable(error: Exception) -> Exception:
    """Return the error, or a `ServiceError` that describes it if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - an exception's own pickling may raise anything
        return ServiceError(f"a child process failed with {type(error).__name__}: {error}")
    return error


def isolated_environment() -> dict[str, str]:
    """Return the variables for a Python child: none that changes what it imports, and no current
    folder on its path.
    """
    kept = {
        name: value
        for name, value in os.environ.items()  # noqa: TID251
        if not name.upper().startswith("PYTHON")
    }
    return {**kept, "PYTHONSAFEPATH": "1", **({"PYTHONUTF8": "1"} if sys.flags.utf8_mode else {})}


@contextlib.contextmanager
def isolated_children() -> Iterator[None]:
    """Isolate the Python processes that a library starts meanwhile.

    They inherit the environment and `sys.path`.
    """
    path = sys.path[:]
    names = dict.fromkeys(os.environ)  # noqa: TID251
    with set_variables({**names, **isolated_environment()}):
        sys.path[:] = [*trusted_path(), _PACKAGE_FOLDER]
        try:
            yield
        finally:
            sys.path[:] = path


@contextlib.contextmanager
def set_variables(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables of the environment during a block, and remove those that are None."""
    before = {name: os.environ.get(name) for name in variables}  # noqa: TID251
    _update_environment(variables)
    try:
        yield
    finally:
        _update_environment(before)


def _update_environment(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)  # noqa: TID251
        else:
            os.environ[name] = value  # noqa: TID251


def trusted_path() -> list[str]:
    """Return the entries of `sys.path` without the current folder, relative entries and those of
    `PYTHONPATH`.
    """
    named = "" if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "")  # noqa: TID251 - it set `sys.path`
    refused = {os.path.realpath(entry) for entry in named.split(os.pathsep) if entry}
    with contextlib.suppress(OSError):  # the current folder was deleted
        refused.add(os.path.realpath(Path.cwd()))
    return [
        entry
        for entry in sys.path
        if Path(entry).is_absolute() and os.path.realpath(entry) not in refused
    ]


def limit_memory(soft_bytes: int, hard_bytes: int | None = None) -> None:
    """Limit the private memory of this process.

    A hard limit is final, a soft one can be changed below it. Only Linux enforces them.
    """
    _set_limit("RLIMIT_DATA", soft_bytes, hard_bytes)


def _set_limit(name: str, soft: int, hard: int | None) -> None:
    # Windows has no limits, and a lower one may be set already
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        kind = getattr(resource, name)
        most = resource.getrlimit(kind)[1] if hard is None else hard
        resource.setrlimit(kind, (soft, most))


def _end_with_parent(parent: int) -> None:
    """End this process when its parent was killed, even while it reads an endless file."""
    while os.getppid() == parent:
        time.sleep(_ORPHANED_S)
    os._exit(1)


def _dump(value: object) -> bytes:
    out = io.BytesIO()
    pickler = pickle.Pickler(out, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _REDUCERS
    pickler.dump(value)
    return out.getvalue()


def _freeze(values: dict[object, object]) -> MappingProxyType[object, object]:
    return MappingProxyType(values)


# Values of the domain contain read-only mappings, which pickle does not know.
_REDUCERS: ChainMap[type, Any] = ChainMap(
    {MappingProxyType: lambda mapping: (_freeze, (dict(mapping),))}, copyreg.dispatch_table
)


def _write(pipe: BinaryIO, data: bytes) -> None:
    pipe.write(len(data).to_bytes(8, "big"))
    pipe.write(data)
    pipe.flush()


def _read(pipe: BinaryIO) -> object:
    size = pipe.read(8)
    if len(size) < 8:
        raise EOFError
    return pickle.loads(pipe.read(int.from_bytes(size, "big")))
