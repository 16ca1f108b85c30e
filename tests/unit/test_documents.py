"""Documents: what may be one, and what their chunks are called."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspool.domain.documents import (
    MAX_NAME_LENGTH,
    MAX_PATH_LENGTH,
    Chunk,
    Document,
    Lines,
    chunk_id,
    sha256,
)
from unspool.errors import InputError

SHA = bytes(range(32))
names = st.text(max_size=20)


@given(names, names, st.binary(max_size=32), st.integers(0, 10**6))
def test_a_chunk_id_is_the_same_every_time_and_fits_a_signed_column(
    project: str, path: str, sha: bytes, occurrence: int
) -> None:
    first = chunk_id(project, path, sha, occurrence)
    assert first == chunk_id(project, path, sha, occurrence)
    assert 0 <= first < 2**63


@given(
    st.lists(
        st.tuples(names, names, st.binary(max_size=4), st.integers(0, 20)), unique=True, max_size=50
    )
)
def test_whatever_differs_in_name_content_or_occurrence_has_another_chunk_id(
    parts: list[tuple[str, str, bytes, int]],
) -> None:
    """Parts that only differ in where one ends and the next begins ("ab", "c" and "a", "bc")
    differ too.
    """
    assert len({chunk_id(*part) for part in parts}) == len(parts)


def test_a_chunk_id_never_changes_between_versions() -> None:
    """Every derived index and every continuation relies on it: if this fails, existing catalogs
    break.
    """
    assert chunk_id("notes", "a.md", SHA, 0) == 6253883212763258318
    assert chunk_id("notes", "b\udcff.md", SHA, 1) == 7716295423741945037


def test_a_fingerprint_is_the_sha256_of_the_bytes() -> None:
    assert sha256(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(
    "name",
    ["a", "my project", "söme/thing", "x" * MAX_NAME_LENGTH, "日本", "'; DROP TABLE projects; --"],
)
def test_project_names_that_a_terminal_can_carry_are_taken(name: str) -> None:
    assert Document(project=name, path="a", text="").project == name


@pytest.mark.parametrize(
    "name",
    ["", " ", " a", "a ", "a*", "a,b", "a\nb", "a\x00", "a\x7f", "\t", "x" * (MAX_NAME_LENGTH + 1)],
)
def test_other_project_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="project name"):
        Document(project=name, path="a", text="")


@pytest.mark.parametrize(
    "path", ["a", "a b/ç.md", "/etc/x", "../x", "x" * MAX_PATH_LENGTH, "a'b\"c.md", "-rf"]
)
def test_any_path_that_can_be_stored_is_taken(path: str) -> None:
    assert Document(path=path, text="").path == path


@pytest.mark.parametrize("path", ["", "a\x00b", "x" * (MAX_PATH_LENGTH + 1)])
def test_paths_that_cannot_be_stored_are_refused(path: str) -> None:
    with pytest.raises(InputError, match="document path"):
        Document(path=path, text="")


def test_a_time_without_a_zone_is_refused_and_one_with_a_zone_is_kept() -> None:
    with pytest.raises(InputError, match="time zone"):
        Document(path="a", text="", modified=datetime(2026, 1, 2))
    assert Document(
        path="a", text="", modified=datetime(2026, 1, 2, tzinfo=UTC)
    ).modified == datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    "metadata",
    [
        {"a": None},
        {"a": [1]},
        {"a": {"b": 1}},
        {"": 1},
        {1: "a"},
        {"k" * 201: 1},
        {"a": float("nan")},
        {"a": b"x"},
        {"a": Path("x")},
    ],
)
def test_metadata_that_no_store_could_filter_by_is_refused(metadata: dict) -> None:
    with pytest.raises(InputError, match="metadata"):
        Document(path="a", text="", metadata=metadata)


def test_a_number_that_no_database_can_hold_is_refused_as_metadata() -> None:
    """Left alone it is an OverflowError in the middle of the transaction."""
    with pytest.raises(InputError, match="metadata"):
        Document(path="a", text="", metadata={"big": 10**400})


def test_metadata_is_copied_and_read_only() -> None:
    given_metadata = {"author": "ann", "year": 2026, "score": 0.5, "done": True}
    document = Document(path="a", text="", metadata=given_metadata)
    given_metadata["author"] = "bob"
    assert dict(document.metadata) == {"author": "ann", "year": 2026, "score": 0.5, "done": True}
    with pytest.raises(TypeError):
        document.metadata["author"] = "carl"  # type: ignore[index]


def test_a_chunk_says_where_it_is_as_editors_write_it() -> None:
    def chunk(first: int, last: int, headings: tuple[str, ...] = ()) -> Chunk:
        return Chunk(
            id=1,
            project="p",
            path="a/b.md",
            index=0,
            text="x",
            start=0,
            end=1,
            lines=Lines(first, last),
            token_count=1,
            headings=headings,
        )

    assert chunk(3, 9).location == "a/b.md:3-9"
    assert chunk(3, 3).location == "a/b.md:3"
    assert chunk(3, 3).heading == ""
    assert chunk(3, 3, ("One", "Two")).heading == "Two"
