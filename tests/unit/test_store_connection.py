"""Addresses, errors and retries of the connection that adapters of servers share."""

from __future__ import annotations

import pytest

from unspool.errors import (
    AddressError,
    RateLimitedError,
    RejectedError,
    ServiceTimeoutError,
    UnreachableError,
)
from unspool.index.options import VectorOptions
from unspool.index.ports import DamagedError
from unspool.index.vectors.connection import (
    Diagnosis,
    StoreAddress,
    StoreConnection,
    StoreFailure,
    parse_store_address,
)

KEY = "sk-very-secret"


def parse(address: str) -> StoreAddress:
    return parse_store_address(
        address,
        pattern="acme+http://HOST:PORT/PREFIX",
        port=7000,
        options={"shards": 1, "on_disk": False, "mode": "exact"},
    )


def test_an_address_has_a_server_a_path_and_typed_options() -> None:
    found = parse("acme+https://db.example/team%20a?shards=3&on_disk=on&mode=graph")
    assert (found.host, found.port, found.path) == ("db.example", 7000, "team a")
    assert found.options == {"shards": 3, "on_disk": True, "mode": "graph"}
    assert found.is_encrypted
    assert found.place == "acme+https://db.example:7000"
    assert parse("acme+http://[::1]:9").options == {"shards": 1, "on_disk": False, "mode": "exact"}


@pytest.mark.parametrize(
    "address",
    [
        "acme+http://",
        "acme+http://host:port",
        f"acme+http://user:{KEY}@host",
        f"acme+http://{KEY}@host",
        "acme+http://host?shards=many",
        "acme+http://host?shards",
        "acme+http://host?on_disk=1",
        "acme+http://host?sharks=1",
        "acme+http://host#part",
    ],
)
def test_a_wrong_address_is_rejected_without_its_key(address: str) -> None:
    with pytest.raises(AddressError) as raised:
        parse(address)
    assert KEY not in str(raised.value)


class Driver:
    """Driver that fails some times, then answers."""

    def __init__(self, failures: int) -> None:
        self.left = failures

    def call(self) -> str:
        if self.left:
            self.left -= 1
            raise ConnectionError(f"http://user:{KEY}@host refused")
        return "done"


def connect(diagnosis: Diagnosis | None, *, retries: int = 0) -> StoreConnection:
    return StoreConnection("acme://host:1", VectorOptions(retries=retries), lambda error: diagnosis)


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (StoreFailure.UNREACHABLE, UnreachableError),
        (StoreFailure.TIMEOUT, ServiceTimeoutError),
        (StoreFailure.BUSY, RateLimitedError),
        (StoreFailure.KEY, RejectedError),
        (StoreFailure.LOST, DamagedError),
    ],
)
def test_a_failure_becomes_an_error_of_ours_without_the_text_of_the_driver(
    failure: StoreFailure, error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"acme://host:1 .*\(503\); ") as raised:
        connect(Diagnosis(failure, "503")).call(Driver(1).call)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    assert KEY not in str(raised.value)


def test_a_failure_that_may_pass_is_repeated() -> None:
    busy = Diagnosis(StoreFailure.BUSY, "429", retry_after=0.0)
    assert connect(busy, retries=2).call(Driver(2).call) == "done"
    with pytest.raises(RateLimitedError):
        connect(busy, retries=2).call(Driver(3).call)


def test_a_refusal_is_not_repeated() -> None:
    driver = Driver(1)
    with pytest.raises(RejectedError):
        connect(Diagnosis(StoreFailure.REFUSED, "400"), retries=5).call(driver.call)
    assert not driver.left


def test_a_defect_is_not_hidden() -> None:
    with pytest.raises(ConnectionError):
        connect(None).call(Driver(1).call)
