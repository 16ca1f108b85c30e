"""The list of stores: ours, those of other packages, and what is missing to use each."""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from unspool import wire
from unspool.domain.reports import StoreStatus
from unspool.errors import AddressError, UnreachableError
from unspool.index import vectors
from unspool.index.options import VectorOptions
from unspool.index.stores import list_stores
from unspool.index.vectors import ADAPTERS, get_adapter
from unspool.index.vectors.memory import MemoryIndex
from unspool.interfaces import terminal

SQLITE, POSTGRESQL = "sqlite:///notes.db", "postgresql://me:secret@db/app"


def find(name: str, *, database: str = SQLITE, address: str = "") -> StoreStatus:
    (found,) = (
        one for one in list_stores(VectorOptions(address=address), database) if one.name == name
    )
    return found


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an installed package with two stores. One cannot be imported."""
    folder = tmp_path / "acme_store-1.2.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-store\nVersion: 1.2\n")
    (folder / "entry_points.txt").write_text(
        "[unspool.vectors]\nacme = acme_store:AcmeIndex\nbroken = no_such_module:Index\n"
        "memory = no_such_module:Index\n"
    )
    (tmp_path / "acme_store.py").write_text(
        "from unspool.index.vectors.memory import MemoryIndex\n\n\n"
        "class AcmeIndex(MemoryIndex):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "acme_store", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("database", "address", "used"),
    [
        (SQLITE, "", "embedded"),
        (POSTGRESQL, "", "postgresql"),
        (SQLITE, "memory://", "memory"),
        (POSTGRESQL, "memory://x", "memory"),
    ],
)
def test_one_store_is_in_use_and_nothing_is_missing_for_it(
    database: str, address: str, used: str
) -> None:
    stores = list_stores(VectorOptions(address=address), database)
    assert [one.name for one in stores if one.in_use] == [used]
    assert [one.name for one in stores if not one.missing] == [used]
    assert {"embedded", "postgresql", *ADAPTERS} <= {one.name for one in stores}


def test_the_settings_to_change_are_named() -> None:
    assert find("memory").missing == ("UNSPOOL_VECTORS=memory://NAME",)
    assert find("postgresql").missing == ("UNSPOOL_DATABASE=postgresql://USER@HOST/DATABASE",)
    assert find("embedded", address="memory://").missing == ("UNSPOOL_VECTORS=",)
    assert find("embedded", address="memory://", database=POSTGRESQL).missing == (
        "UNSPOOL_DATABASE=sqlite:///FILE",
        "UNSPOOL_VECTORS=",
    )


def test_capabilities_are_json_and_in_a_stable_order() -> None:
    stores = list_stores(VectorOptions(), POSTGRESQL)
    encoded = wire.encode({"stores": stores})
    assert json.loads(json.dumps(encoded)) == encoded
    assert "secret" not in json.dumps(encoded)
    assert wire.decode(list[StoreStatus], encoded["stores"]) == stores
    assert find("memory").capabilities == {
        "metrics": ["cosine", "ip", "l2"],
        "max_k": 10_000,
        "filter_fields": ["kind", "language"],
        "max_ids": 10_000,
        "native_continuation": False,
        "stability": "deterministic",
    }


def test_the_version_of_a_driver_is_shown() -> None:
    assert find("postgresql").driver == f"psycopg {metadata.version('psycopg')}"
    assert find("memory").driver == ""


def test_a_missing_driver_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "packages_distributions", dict)
    found = find("postgresql", database=POSTGRESQL)
    assert found.in_use
    assert found.missing == ("pip install 'unspool[postgres]'",)
    assert (found.driver, found.capabilities) == ("", {})


@pytest.mark.usefixtures("package")
def test_stores_of_other_packages_are_listed_with_their_version() -> None:
    found = find("acme", address="acme://x")
    assert (found.in_use, found.driver, found.missing) == (True, "acme-store 1.2", ())
    assert found.capabilities["max_k"] == 10_000
    assert get_adapter("acme://x").load().__name__ == "AcmeIndex"


@pytest.mark.usefixtures("package")
def test_a_store_that_cannot_be_imported_is_listed_with_the_reason() -> None:
    found = find("broken")
    assert found.capabilities == {}
    assert "no_such_module" in found.missing[0]
    assert found.missing[1] == "UNSPOOL_VECTORS=broken://"


@pytest.mark.usefixtures("package")
def test_another_package_cannot_replace_a_store_of_ours() -> None:
    assert vectors.list_adapters()["memory"] is ADAPTERS["memory"]


def test_an_unknown_scheme_is_rejected_with_the_known_ones() -> None:
    with pytest.raises(AddressError, match="memory://"):
        get_adapter("qdrannt://me:secret@host/notes")
    for wrong in ("qdrannt://me:secret@host/notes", "secret"):
        with pytest.raises(AddressError) as caught:
            get_adapter(wrong)
        assert "me:secret" not in str(caught.value)
    assert [one for one in list_stores(VectorOptions(address="no://x"), SQLITE) if one.in_use] == []


def test_the_table_shows_the_store_in_use_and_what_the_others_need() -> None:
    stores = list_stores(VectorOptions(), SQLITE)
    lines = ["".join(text for text, _ in line) for line in terminal.render_stores(stores)]
    assert re.fullmatch(r"embedded +yes +- +- +- +- *", lines[1])
    assert re.fullmatch(r"memory +no +- +- +- +UNSPOOL_VECTORS=memory://NAME *", lines[3])
    assert "  filter_fields kind, language" in lines
    assert "  filter_fields -" in lines


class AwayIndex(MemoryIndex):
    """Index on a server that says its version, or fails."""

    def read_version(self) -> str:
        if "away" in self.name:
            raise UnreachableError("http://secret.example cannot be reached")
        return "Acme 1.2"

    @classmethod
    def open(
        cls, address: str, *, collection: str, dimension: int, options: VectorOptions
    ) -> AwayIndex:
        index = cls(dimension, options.metric)
        index.name = address
        return index

    name = ""


def test_the_server_in_use_says_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ADAPTERS, "acme", vectors.Adapter(f"{__name__}:AwayIndex"))
    here, away = find("acme", address="acme+http://here"), find("acme", address="acme://away")
    assert (here.server, here.health) == ("Acme 1.2", "ok")
    assert (away.server, away.health) == ("", "unreachable")
    assert "secret" not in json.dumps(wire.encode(away))
    assert (find("acme").server, find("acme").health) == ("", "")
    assert find("memory", address="memory://").health == "ok"
