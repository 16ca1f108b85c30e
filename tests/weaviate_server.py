"""A Weaviate server for tests: a process from a given program, or one that runs already."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from servers import PORTS, NoServer
from store_servers import StoreServer

PROGRAM = "UNSPOOL_TEST_WEAVIATE_SERVER"
# read at once, since tests change the environment
GIVEN = os.environ.get(PROGRAM, "")  # path of a program, or address of a server that runs
GIVEN_KEY = os.environ.get("UNSPOOL_TEST_WEAVIATE_KEY", "")
CURE = (
    f"no Weaviate server: set {PROGRAM} to the path of a program, which is built by: CGO_ENABLED=0 "
    f"go install github.com/weaviate/weaviate/cmd/weaviate-server@v1.39.0; or to the address of a "
    f"server with its key in UNSPOOL_TEST_WEAVIATE_KEY, such as one from the Docker image "
    f"cr.weaviate.io/semitechnologies/weaviate:1.39.0"
)
COUNT = 6  # ports of a server


class WeaviateServer(StoreServer):
    """A server with a random key. It uses its port and the five above it."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings  # variables in place of those below
        self._key = secrets.token_hex(16)
        if not (GIVEN and Path(GIVEN).is_file()):
            raise NoServer(CURE, service="weaviate")
        super().__init__()

    def choose_port(self) -> int:
        return find_free_ports(COUNT)

    @property
    def address(self) -> str:
        return f"weaviate+http://127.0.0.1:{self.port}?grpc_port={self.port + 1}"

    @property
    def key(self) -> str:
        return self._key

    @property
    def command(self) -> list[str]:
        return [GIVEN, "--host", "127.0.0.1", "--port", str(self.port), "--scheme", "http"]

    @property
    def environment(self) -> Mapping[str, str]:
        # The port of gRPC and one of the cluster are open to all interfaces, so both have a key.
        return {
            "PERSISTENCE_DATA_PATH": str(self.folder / "data"),
            "DEFAULT_VECTORIZER_MODULE": "none",
            "DISABLE_TELEMETRY": "true",
            "AUTOSCHEMA_ENABLED": "false",
            "GRPC_PORT": str(self.port + 1),
            "CLUSTER_HOSTNAME": "node1",
            "CLUSTER_ADVERTISE_ADDR": "127.0.0.1",
            "CLUSTER_BIND_ADDR": "127.0.0.1",
            "CLUSTER_GOSSIP_BIND_PORT": str(self.port + 2),
            "CLUSTER_DATA_BIND_PORT": str(self.port + 3),
            "RAFT_PORT": str(self.port + 4),
            "RAFT_INTERNAL_RPC_PORT": str(self.port + 5),
            "RAFT_BOOTSTRAP_EXPECT": "1",
            "RAFT_TIMEOUTS_MULTIPLIER": "1",  # it elects itself at once
            "CLUSTER_BASIC_AUTH_USERNAME": "cluster",
            "CLUSTER_BASIC_AUTH_PASSWORD": self._key,
            "AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED": "false",
            "AUTHENTICATION_APIKEY_ENABLED": "true",
            "AUTHENTICATION_APIKEY_ALLOWED_KEYS": self._key,
            "AUTHENTICATION_APIKEY_USERS": "admin",
            "AUTHORIZATION_ADMINLIST_ENABLED": "true",
            "AUTHORIZATION_ADMINLIST_USERS": "admin",
            "GO_PROFILING_DISABLE": "true",
            "LOG_LEVEL": "warning",
            "GOMEMLIMIT": "2GiB",
            **self.settings,
        }

    @property
    def ready_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/.well-known/ready"


def find_free_ports(count: int) -> int:
    """Return the first of some free ports in a row."""
    for _ in range(1000):
        first = PORTS[secrets.randbelow(len(PORTS) - count)]
        with ExitStack() as stack, suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise NoServer(f"no {count} free ports in a row; end what listens there", service="weaviate")


class RunningServer(StoreServer):
    """A server that somebody else has started, at the given address."""

    command: list[str] = []  # noqa: RUF012
    environment: Mapping[str, str] = {}
    ready_url = ""
    address = GIVEN
    key = GIVEN_KEY

    def __init__(self) -> None:
        """Start nothing."""

    def close(self) -> None:
        """Leave it running."""


def start_server() -> StoreServer:
    """Start a server, or raise `NoServer` with the cure."""
    return RunningServer() if "://" in GIVEN else WeaviateServer()
