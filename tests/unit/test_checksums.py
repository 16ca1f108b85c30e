"""Checksums of derived files: any change of a committed byte is found before the byte is used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unspool.index.embedded import checksums
from unspool.index.embedded.checksums import Checksums, Column, DamagedError

quick = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "BLOCK_BYTES", 64)


def write(file: Path, *pieces: bytes) -> Checksums:
    sums = Checksums()
    for piece in pieces:
        sums = checksums.append(file, sums, np.frombuffer(piece, dtype=np.uint8))
    return sums


@quick
@given(st.lists(st.binary(max_size=200), max_size=6))
def test_checksums_do_not_depend_on_how_the_bytes_were_appended(
    tmp_path: Path, pieces: list[bytes]
) -> None:
    one, many = tmp_path / "one", tmp_path / "many"
    one.unlink(missing_ok=True)
    many.unlink(missing_ok=True)
    assert write(one, b"".join(pieces)) == write(many, *pieces)
    assert many.read_bytes() == b"".join(pieces) if pieces else not many.exists()


@quick
@given(st.binary(min_size=1, max_size=400), st.data())
@pytest.mark.parametrize("eager", [0, 10**6])
def test_no_changed_byte_is_ever_returned(
    tmp_path: Path, eager: int, data_bytes: bytes, data: st.DataObject
) -> None:
    file = tmp_path / "column"
    sums = write(file, data_bytes)
    hurt = bytearray(data_bytes)
    hurt[data.draw(st.integers(0, len(hurt) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(hurt)
    assert checksums.find_file_damage(file, sums)
    start = data.draw(st.integers(0, len(hurt)))
    stop = data.draw(st.integers(start, len(hurt)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksums, "EAGER_BYTES", eager)
        try:
            read = Column.open(file, sums, np.uint8).slice(start, stop).tobytes()
        except DamagedError:
            return
        assert not eager
        assert read == data_bytes[start:stop]


def test_a_lazy_column_verifies_only_the_blocks_that_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checksums, "EAGER_BYTES", 0)
    file = tmp_path / "column"
    sums = write(file, bytes(range(256)))
    file.write_bytes(bytes(range(200)) + bytes(56))
    column = Column.open(file, sums, np.uint8)
    assert column.take(np.array([0, 70, 130])).tolist() == [0, 70, 130]
    with pytest.raises(DamagedError, match="block 3"):
        column.take(np.array([255]))
    with pytest.raises(DamagedError, match="block 3"):
        column.all()


def test_blocks_that_an_earlier_view_verified_are_not_read_again(tmp_path: Path) -> None:
    file = tmp_path / "column"
    sums = write(file, bytes(100))
    first = Column.open(file, sums, np.uint8)
    longer = checksums.append(file, sums, np.ones(100, dtype=np.uint8))
    content = bytearray(file.read_bytes())
    content[10] = 7  # in a full block that `first` has verified
    file.write_bytes(content)
    assert (
        Column.open(file, longer, np.uint8, previous=first).slice(64, 200).tolist()
        == [0] * 36 + [1] * 100
    )
    with pytest.raises(DamagedError, match="block 0"):
        Column.open(file, longer, np.uint8)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"checksum": 1, "state": "{}"}',
        b'{"checksum": 1, "state": 2}',
        b"\xff\xfe",
    ],
)
def test_a_state_file_that_is_not_as_it_was_written_is_damage(
    tmp_path: Path, content: bytes
) -> None:
    assert checksums.read_state(tmp_path) is None
    checksums.write_state(tmp_path, {"rows": 3})
    assert checksums.read_state(tmp_path) == {"rows": 3}
    (tmp_path / "state.json").write_bytes(content)
    with pytest.raises(DamagedError):
        checksums.read_state(tmp_path)


@pytest.mark.parametrize("size", [1, 63, 65, 100])
def test_a_damaged_block_does_not_get_a_new_checksum_when_it_grows(
    tmp_path: Path, size: int
) -> None:
    file = tmp_path / "column"
    sums = write(file, bytes(size))
    file.write_bytes(bytes(size - 1) + b"\x01")
    with pytest.raises(DamagedError, match="block"):
        checksums.append(file, sums, np.zeros(3, dtype=np.uint8))
