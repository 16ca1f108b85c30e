"""Links lead somewhere, examples run, outputs are what the program prints, generated pages are
fresh.
"""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from documentation import FENCE, PAGES, ROOT, name

from servers import PostgresServer

import generate  # isort: skip - `documentation` tells Python where it is

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_RUNNABLE = re.compile(r"<!-- python: run -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RUN = [page for page in PAGES if generate.blocks(page.read_text(encoding="utf-8"))]
_FORBIDDEN = re.compile(
    r"(?<![\w&])#\d+\b|/work/|/tmp/|\bsession id|\bissue \d|\bTODO\b|\bFIXME\b|\bXXX\b",
    re.IGNORECASE,
)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(
        r"^#{1,6} (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {
        (index.parent / link).resolve() for link in _LINK.findall(index.read_text(encoding="utf-8"))
    }
    assert [
        name(page)
        for page in PAGES
        if page.is_relative_to(ROOT / "docs") and page != index and page not in linked
    ] == []


def test_the_reference_is_what_the_generator_makes_now() -> None:
    for page, text in generate.pages().items():
        stored = page.read_text(encoding="utf-8") if page.exists() else ""
        assert (
            list(difflib.unified_diff(stored.splitlines(), text.splitlines(), lineterm="", n=0))
            == []
        ), f"{name(page)}: run python docs/generate.py"


def test_there_are_no_reference_pages_that_nobody_makes() -> None:
    assert set((ROOT / "docs" / "reference").iterdir()) == set(generate.pages())


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "reference" not in page.parts], ids=name
)
def test_python_blocks_compile(page: Path) -> None:
    for language, body in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            compile(body, name(page), "exec")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if _RUNNABLE.search(page.read_text(encoding="utf-8"))], ids=name
)
def test_python_blocks_that_say_so_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    if page.name == generate.SERVED:
        monkeypatch.setenv("UNSPOOL_DATABASE", request.getfixturevalue("served"))
    shutil.copytree(ROOT / "docs" / "sample", tmp_path / "docs" / "sample")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__page__"}
    for body in _RUNNABLE.findall(page.read_text(encoding="utf-8")):
        exec(compile(body, name(page), "exec"), names)
    assert not capsys.readouterr().err


@pytest.fixture
def served(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of an empty database, for the page whose catalog is on a server."""
    address = postgres_server.create_database()
    yield address
    postgres_server.drop_database(address)


def alike(output: str) -> list[str]:
    """An output without what differs from run to run: numbers, the width of columns, and which
    words an explanation lists.
    """
    output = re.sub(r"^( *words [\d.]+) \([^)\n]*\)", r"\1", output, flags=re.MULTILINE)
    lines = [
        re.sub(r"\s+", " ", re.sub(r"\(\d+/s\)", "", re.sub(r"\d+(\.\d+)?", "N", line))).strip()
        for line in output.splitlines()
    ]
    return [line for line in lines if line]


@pytest.mark.parametrize("page", [page for page in _RUN if page.name != "README.md"], ids=name)
def test_outputs_are_what_the_program_prints(page: Path, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue("served") if page.name == generate.SERVED else ""
    with generate.place(page, server) as execute:
        for block in generate.blocks(page.read_text(encoding="utf-8")):
            for one in block:
                assert alike(execute(one.command)) == alike(one.output), (
                    f"{one.command}; run: python docs/generate.py --outputs"
                )


def test_the_first_command_of_the_readme_finds_what_it_shows() -> None:
    page = ROOT / "README.md"
    (first, *_), *_ = generate.blocks(page.read_text(encoding="utf-8"))
    shown = re.findall(r"^(\S+):\d+(?:-\d+)?\s", first.output, re.MULTILINE)
    with generate.place(page) as execute:
        printed = execute(first.command)
    assert shown
    assert shown[0] in printed, f"{printed}\nrun: python docs/generate.py --outputs"
    assert all((ROOT / "src" / path).is_file() for path in shown)


def test_the_first_screen_of_the_readme_has_it_all() -> None:
    screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:60])
    for part in ("pip install", "unspool search", "./test", "import unspool", "docs/quickstart.md"):
        assert part in screen


@pytest.mark.parametrize("page", [*PAGES, ROOT / "docs" / "generate.py"], ids=name)
def test_pages_speak_of_the_product_alone(page: Path) -> None:
    assert _FORBIDDEN.findall(page.read_text(encoding="utf-8")) == []


def test_the_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert len(text.split()) > 1500
