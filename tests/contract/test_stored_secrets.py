"""Planted secrets through every way in: nothing that is stored or returned contains one, and
addresses are reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import secrets_corpus
import unspool
from support import open_corpus
from talks import said, talk
from unspool.wire import encode

FORMS = secrets_corpus.build(11)
TOKEN = "ghp_" + "k3Jx9QmZ7rT2vW8yB4nL6pD1sF5hG0aCeUiO"
NAMELESS = "notes.md"  # the name of a text that has none


def test_no_planted_secret_is_in_the_catalog_the_derived_folder_or_any_output(
    tmp_path: Path,
) -> None:
    data, tree = tmp_path / "data", tmp_path / "tree"
    data.mkdir()
    with open_corpus(data / "catalog.db") as corpus:
        _plant(corpus, tree)
        outputs = list(_collect_outputs(corpus))
    stored = b"\n".join(file.read_bytes() for file in sorted(data.rglob("*")) if file.is_file())
    assert len(stored) > 100_000
    shown = "\n".join(outputs)
    assert "walrus" in shown
    left = [form for form in FORMS if secrets_corpus.is_readable(form.secret, shown)]
    left += [form for form in FORMS if form.secret.encode() in stored]
    assert left == []


def test_no_planted_secret_is_returned_by_a_corpus_on_any_engine(
    corpus: unspool.Corpus, tmp_path: Path
) -> None:
    _plant(corpus, tmp_path / "tree")
    shown = "\n".join(_collect_outputs(corpus))
    assert [form for form in FORMS if secrets_corpus.is_readable(form.secret, shown)] == []


def _plant(corpus: unspool.Corpus, tree: Path) -> None:
    """Plant every form in a file, in a document, in a message, in a record, and in titles and
    metadata.
    """
    for number, form in enumerate(FORMS):
        file = tree / str(number) / (form.path or NAMELESS)
        file.parent.mkdir(parents=True)
        file.write_text(f"{form.text}\n", encoding="utf-8")
    corpus.index(tree, project="files")
    corpus.put(*_documents())
    corpus.remember(
        talk("chat", *(said(form.text, author=_get_author(form)) for form in FORMS)),
        *(
            talk(f"c{number}", "walrus", title=form.text, metadata=_metadata(form))
            for number, form in enumerate(FORMS)
        ),
    )
    log = corpus.history("log")
    for form in FORMS:
        log.append(form.text)


def _documents() -> Iterator[unspool.Document]:
    for number, form in enumerate(FORMS):
        path = f"{number}/{form.path or NAMELESS}"
        yield unspool.Document(
            project="put", path=path, text=form.text, title=form.text, metadata=_metadata(form)
        )


def _get_author(form: secrets_corpus.Form) -> str:
    """Return a form as the author of a message, which is one short line."""
    line = form.text.strip()
    return line if "\n" not in line and len(line) <= 200 else "bob"


def _metadata(form: secrets_corpus.Form) -> dict[str, str]:
    return {"password": form.secret, "note": form.text}


def _collect_outputs(corpus: unspool.Corpus) -> Iterator[str]:
    for query in (
        "walrus",
        "password",
        "token of the client",
        "postgres",
        "curl login",
        "SECRET_KEY",
        "Authorization Bearer",
        "create user",
    ):
        page = corpus.search(query, projects="*", limit=100, explain=True)
        yield json.dumps(encode(page))
        yield repr(page)
    for project in ("files", "put"):
        yield repr(list(corpus.documents(project=project)))
    yield repr(list(corpus.documents()))
    yield repr(corpus.conversations.list())
    yield repr(corpus.conversations.get("chat"))
    yield repr([corpus.conversations.get(f"c{number}") for number in range(len(FORMS))])
    log = corpus.history("log")
    yield repr(log.read(1000))
    yield repr(log.page(full=True))


def test_a_secret_in_a_path_is_reported_without_the_secret_and_the_path_stays(
    corpus: unspool.Corpus, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / f"{TOKEN}.md").write_text(f"a walrus and {TOKEN}\n")
    report = corpus.index(tree, project="tree")
    assert [record.path for record in corpus.documents(project="tree")] == [f"{TOKEN}.md"]
    assert [one.kind for one in report.masked] == ["github token"]
    assert (
        len(report.warnings) == 1
        and "github token" in report.warnings[0]
        and "path" in report.warnings[0]
    )
    assert TOKEN not in repr(report)


def test_a_secret_in_a_metadata_key_is_reported_and_the_key_stays(corpus: unspool.Corpus) -> None:
    report = corpus.put(unspool.Document(path="a.md", text="a walrus", metadata={TOKEN: "x"}))
    assert TOKEN in next(iter(corpus.documents())).metadata
    assert any("metadata key" in warning for warning in report.warnings)
    assert TOKEN not in repr(report)


def test_secrets_in_ids_of_conversations_and_messages_are_reported(corpus: unspool.Corpus) -> None:
    report = corpus.remember(talk(TOKEN, said(f"a walrus and {TOKEN}", id=TOKEN)))
    assert any("conversation id" in warning for warning in report.warnings)
    assert any("message id" in warning for warning in report.warnings)
    assert corpus.conversations.get(TOKEN) is not None
    assert report.masked and TOKEN not in repr(report)


def test_a_secret_in_the_name_of_a_stream_is_reported(corpus: unspool.Corpus) -> None:
    record = corpus.history(TOKEN).append("a walrus")
    assert record.stream == TOKEN
    assert len(record.warnings) == 1 and TOKEN not in record.warnings[0]
    assert corpus.history("log").append("a walrus").warnings == ()


@pytest.mark.parametrize(
    ("value", "stored"),
    [("swordfish", "*********"), (12345678, "********"), (True, True), (0.5, 0.5)],
)
def test_a_metadata_value_is_masked_by_its_key(
    corpus: unspool.Corpus, value: str | float, stored: str | float
) -> None:
    corpus.put(
        unspool.Document(
            path="a.md", text="a walrus", metadata={"password": value, "author": "ann"}
        )
    )
    assert dict(next(iter(corpus.documents())).metadata) == {"password": stored, "author": "ann"}
