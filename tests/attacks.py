"""Hostile files: modules that a stranger plants in a folder, and documents that are slow, large
or damaged on purpose.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

# Names of the standard library, of packages that unspool needs, of optional ones, and those that
# Python imports by itself.
PLANTED = (
    "json numpy sitecustomize usercustomize pypdf docx selectolax lxml pickle site subprocess "
    "threading signal socket "
    "multiprocessing asyncio logging sqlalchemy click rich tokenizers tree_sitter tantivy "
    "uvicorn fastapi mcp watchfiles "
    "orjson torch onnxruntime fastembed redis psycopg"
).split()
_PLANTED_CODE = (
    "import sys\nwith open({log!r}, 'a') as log:\n    log.write(f'{{__name__}} ran in "
    "{{sys.orig_argv}}\\n')\n"
)

_WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
_MAIN_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
_TYPES = f"""<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Default Extension="png" ContentType="image/png"/>
<Override PartName="/word/document.xml" ContentType="{_MAIN_TYPE}"/></Types>"""
_RELS = (
    f'<Relationships xmlns="{_RELATIONS}"><Relationship Id="a" Type="{_OFFICE}" '
    f'Target="word/document.xml"/></Relationships>'
)


def plant(folder: Path, log: Path) -> Path:
    """Write modules that note in a log when they are executed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PLANTED:
        (folder / f"{name}.py").write_text(_PLANTED_CODE.format(log=str(log)))
    return folder


PROGRAM = (str(Path(sys.executable).with_name("unspool")),)
MODULE = (sys.executable, "-m", "unspool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A user in a stranger's folder, and how unspool is started there."""

    folder: Path
    database: str
    launcher: tuple[str, ...] = PROGRAM

    def run(self, *arguments: str) -> str:
        """Return the output of a command that succeeds."""
        done = subprocess.run(
            [*self.launcher, *arguments],
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def start(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start a command, and end it."""
        pipes: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        with subprocess.Popen(
            [*self.launcher, *arguments],
            cwd=self.folder,
            env=self._environment(),
            text=True,
            **pipes,
        ) as process:
            try:
                yield process
            finally:
                process.terminate()
                process.communicate(timeout=60)

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("UNSPOOL_", "PYTHON"))
        }
        return {**kept, "UNSPOOL_DATABASE": self.database}


def prey(folder: Path, log: Path) -> Path:
    """Write what a stranger's folder contains: planted modules, enough notes for several
    workers, documents and a chat.
    """
    plant(folder, log)
    for number in range(90):
        (folder / f"note{number}.md").write_text(
            f"# Note {number}\n\nAbout walrus number {number}.\n"
        )
    (folder / "manual.docx").write_bytes(docx_of_paragraphs(3))
    (folder / "chat.jsonl").write_text(
        '{"id": "c", "messages": [{"text": "the walrus sails at noon"}]}\n'
    )
    return folder


def _index(victim: Victim) -> None:
    assert "added" in victim.run("index", ".")


def _search(victim: Victim) -> None:
    assert "walrus" in victim.run("search", "walrus", ".")


def _remember(victim: Victim) -> None:
    victim.run("remember", "chat.jsonl")


def _watch(victim: Victim) -> None:
    with victim.start("watch", ".", "--debounce-ms", "50") as process:
        _wait_for(process.stderr, "watching")
        (victim.folder / "new.html").write_text("<h1>walrus</h1>")
        _wait_for(process.stdout, "1 added")


def _mcp(victim: Victim) -> None:
    about = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    with victim.start("mcp") as process:
        for id_, method, params in (
            (1, "initialize", about),
            (2, "tools/call", {"name": "index", "arguments": {"path": "."}}),
        ):
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(
                json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}) + "\n"
            )
            process.stdin.flush()
            answer = process.stdout.readline()
        assert "added" in answer, answer


def _serve(victim: Victim, workers: int) -> None:
    with victim.start("serve", "--port", "0", "--workers", str(workers), "--root", ".") as process:
        address = (
            _wait_for(process.stderr, "listening on ").split("listening on ")[1].partition(",")[0]
        )
        job = _request(f"{address}/v1/projects/prey/index", {"source": str(victim.folder)})
        deadline = time.monotonic() + 60
        while (state := _request(f"{address}/v1/jobs/{job['id']}")["state"]) != "done":
            assert (
                state in ("waiting", "queued", "pending", "running") and time.monotonic() < deadline
            ), state
            time.sleep(0.1)


def _wait_for(stream: IO[str] | None, text: str) -> str:
    assert stream is not None
    said = ""
    for line in stream:
        said += line
        if text in line:
            return line
    raise AssertionError(said)


def _request(address: str, body: object = None) -> Any:
    request = urllib.request.Request(
        address,
        None if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


# Every way to have a folder's files read. Each fails if nothing was read.
DOORS: dict[str, Callable[[Victim], None]] = {
    "index": _index,
    "search": _search,
    "remember": _remember,
    "watch": _watch,
    "mcp": _mcp,
    "serve, 1 process": lambda victim: _serve(victim, 1),
    "serve, 2 processes": lambda victim: _serve(victim, 2),
}


def docx(body: str, parts: dict[str, bytes] | None = None) -> bytes:
    """Return a DOCX with this XML in its body, and other parts beside it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", _TYPES)
        archive.writestr("_rels/.rels", _RELS)
        archive.writestr(
            "word/document.xml", f"<w:document {_WORD}><w:body>{body}</w:body></w:document>"
        )
        for name, data in (parts or {}).items():
            archive.writestr(name, data)
    return out.getvalue()


def docx_with_wide_cell(columns: int = 1_000_000) -> bytes:
    """Return a DOCX of one table, whose first cell claims to span many columns."""
    wide = (
        f'<w:tc><w:tcPr><w:gridSpan w:val="{columns}"/></w:tcPr><w:p><w:r><w:t>wide '
        f"walrus</w:t></w:r></w:p></w:tc>"
    )
    return docx(
        f"<w:tbl><w:tr>{wide}<w:tc><w:p><w:r><w:t>narrow</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
    )


def docx_of_paragraphs(count: int) -> bytes:
    """Return a DOCX of many short paragraphs: a hundred bytes of XML each."""
    return docx(
        "".join(
            f"<w:p><w:r><w:t>walrus {number} on the island</w:t></w:r></w:p>"
            for number in range(count)
        )
    )


def docx_of_cells(rows: int, columns: int) -> bytes:
    """Return a DOCX of one large table."""
    cell = "<w:tc><w:p><w:r><w:t>walrus</w:t></w:r></w:p></w:tc>"
    return docx(f"<w:tbl>{f'<w:tr>{cell * columns}</w:tr>' * rows}</w:tbl>")


def docx_bomb(megabytes: int) -> bytes:
    """Return a DOCX that contains a part of zeros."""
    return docx("<w:p/>", {"word/media/image.png": bytes(megabytes * 1_000_000)})


def pdf(*objects: bytes, root: int = 1) -> bytes:
    """Return a PDF of these objects, numbered from 1."""
    out = bytearray(b"%PDF-1.4\n")
    places = []
    for number, content in enumerate(objects, start=1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer << /Size %d /Root %d 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (
        len(objects) + 1,
        root,
        start,
    )
    return bytes(out)


def pdf_of_content(content: bytes) -> bytes:
    """Return a PDF of one page with this content, compressed."""
    packed = zlib.compress(content, 9)
    return pdf(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] /Resources << /Font << /F1 5 0 R >> >> /Contents 4 0 R >>",
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%b\nendstream" % (len(packed), packed),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    )


def slow_pdf(texts: int = 1_000_000) -> bytes:
    """Return a small PDF that takes minutes to read: one page with many operators."""
    return pdf_of_content(b"BT /F1 12 Tf " + b"1 0 0 1 5 5 Tm (walrus) Tj " * texts + b"ET")


def pdf_of_pages(count: int) -> bytes:
    """Return a PDF with many pages."""
    kids = b" ".join(b"%d 0 R" % (number + 4) for number in range(count))
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] /Resources << /Font << /F1 3 0 R >> >> >>"
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    tree = b"<< /Type /Pages /Kids [%b] /Count %d >>" % (kids, count)
    return pdf(b"<< /Type /Catalog /Pages 2 0 R >>", tree, font, *[page] * count)


def pdf_with_loop() -> bytes:
    """Return a PDF whose page tree contains itself."""
    return pdf(
        b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 1 >>"
    )


def deep_pdf(depth: int) -> bytes:
    """Return a PDF whose catalog contains arrays in arrays."""
    return pdf(
        b"<< /Type /Catalog /Pages 2 0 R /X " + b"[" * depth + b"]" * depth + b" >>",
        b"<< /Type /Pages /Kids [] /Count 0 >>",
    )


def attributes_html(count: int) -> bytes:
    """Return a page of prose, a third of it, with one tag that has many attributes."""
    prose = "<p>The walrus lives on the island, and it swims well.</p>\n" * (count // 12)
    return (
        f"<html><body>{prose}<p {' '.join(f'a{number}' for number in range(count))}>x</body></html>"
    ).encode()


def nested_html(count: int) -> bytes:
    """Return a page of prose with elements in elements."""
    return (
        "<p>The walrus lives on the island, and it swims well.</p>\n" * (count // 10)
        + "<div>" * count
    ).encode()


def notebook(megabytes: float) -> bytes:
    """Return a notebook with one large output."""
    output = {
        "output_type": "stream",
        "name": "stdout",
        "text": ["walrus " * 12 + "\n"] * int(megabytes * 1_000_000 / 90),
    }
    cell = {
        "cell_type": "code",
        "execution_count": 1,
        "metadata": {},
        "outputs": [output],
        "source": ["walrus()"],
    }
    return json.dumps(
        {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    ).encode()


def indented_python(megabytes: float) -> bytes:
    """Return Python whose blocks are nested as deeply as the size allows."""
    depth = int((megabytes * 2_000_000) ** 0.5)
    return "".join(f"{' ' * level}if x:\n" for level in range(depth)).encode()


# Every document, with the name of its file. Sizes are below the limits at which a file is skipped
# as huge.
DOCUMENTS: dict[str, Callable[[], bytes]] = {
    "wide-cell.docx": docx_with_wide_cell,
    "paragraphs.docx": lambda: docx_of_paragraphs(2_000_000),
    "paragraphs-allowed.docx": lambda: docx_of_paragraphs(300_000),
    "cells.docx": lambda: docx_of_cells(2_000, 200),
    "bomb.docx": lambda: docx_bomb(400),
    "images.docx": lambda: docx_bomb(149),
    "cut.docx": lambda: docx_of_paragraphs(1_000)[:-200],
    "operators.pdf": slow_pdf,
    "stream-bomb.pdf": lambda: pdf_of_content(b" " * 300_000_000),
    "long-text.pdf": lambda: pdf_of_content(
        b"BT /F1 12 Tf (" + b"walrus " * 5_000_000 + b") Tj ET"
    ),
    "pages.pdf": lambda: pdf_of_pages(100_000),
    "pages-allowed.pdf": lambda: pdf_of_pages(5_000),
    "loop.pdf": pdf_with_loop,
    "deep.pdf": lambda: deep_pdf(500_000),
    "attributes.html": lambda: attributes_html(150_000),
    "nested.html": lambda: nested_html(100_000),
    "notebook.ipynb": lambda: notebook(1.9),
    "deep.json": lambda: b"[" * 1_900_000,
    "deep-whole.json": lambda: b"[" * 900_000 + b"]" * 900_000,
    "one-line.txt": lambda: b"x" * 1_900_000,
    "one-line.js": lambda: b"a(" * 950_000,
    "parentheses.py": lambda: b"x = " + b"(" * 900_000 + b")" * 900_000,
    "indented.py": lambda: indented_python(1.9),
    "braces.cpp": lambda: b"a<" * 950_000,
    "headings.md": lambda: b"# a\n" * 475_000,
    "quotes.md": lambda: b">" * 1_900_000,
    "passwords.txt": lambda: b"password=" * 210_000,
    "disguised.txt": slow_pdf,
}

_CHAT = '{"id": "a", "messages": [{"text": "the walrus sails at noon"}]}'
# Every export of conversations, with the name of its file.
EXPORTS: dict[str, Callable[[], bytes]] = {
    "lists.json": lambda: (
        f'[{_CHAT}, {{"id": "x", "messages": [{"[], " * 12_000_000}[]]}}]'.encode()
    ),
    "lists.jsonl": lambda: (
        f'{_CHAT}\n{{"id": "x", "messages": [{"[], " * 12_000_000}[]]}}\n'
        f"{_CHAT.replace('a', 'b', 1)}\n"
    ).encode(),
    "nested.json": lambda: f'[{_CHAT}, {{"id": "x", "messages": {"[" * 5_000_000}'.encode(),
    "long-text.jsonl": lambda: (
        f'{_CHAT}\n{{"id": "x", "messages": [{{"text": "{"walrus " * 8_000_000}"}}]}}\n'.encode()
    ),
    "escapes.json": lambda: (
        f'[{_CHAT}, {{"id": "x", "messages": [{{"text": "'.encode()
        + rb"\ud800" * 8_000_000
        + b'"}]}]'
    ),
    "bomb.zip": lambda: _zip("conversations.json", b"[" + b" " * 400_000_000 + b"]"),
}


def _zip(name: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return out.getvalue()
