"""Names, titles and texts that a terminal would obey: no command writes such a character, with
--json or without.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import Cli, write
from support import doc, open_corpus

EVIL = "a\x9b31mb\u202ec\u2066d\u200fe\u061cf\u2028g\x7fh"
OBEYED = set("\x9b\u202e\u2066\u200f\u061c\u2028\x7f\x1b")


@pytest.fixture
def evil(cli: Cli, database: Path, tmp_path: Path) -> str:
    """A project whose name, paths, titles, text and failures have such characters."""
    name = EVIL.replace("\u2028", "")  # which a name may not have
    folder = write(
        tmp_path / name, {f"{EVIL}.md": f"# Walrus {EVIL}\n\nThe walrus {EVIL} sleeps.\n"}
    )
    (folder / f"bad{EVIL}.pdf").write_bytes(b"%PDF-1.7 nothing")
    assert not OBEYED & set(cli("index", str(folder), "--skipped").output)
    with open_corpus(database) as corpus:
        (project,) = corpus.projects()
        corpus.put(doc(f"put{EVIL}", f"A walrus {EVIL}", project, title=EVIL))
        corpus.history("stream-\u202e", project=project).append(f"body {EVIL}")
    return str(project)


COMMANDS = [
    ("search", "walrus"),
    ("search", "walrus", "--full"),
    ("search", "walrus", "--explain", "-n", "1"),
    ("ask", "walrus"),
    ("documents",),
    ("status",),
    ("settings",),
    ("doctor",),
    ("history", "stream-\u202e"),
    ("history",),
    ("related", f"put{EVIL}:1"),
    ("index", f"/nowhere/{EVIL}"),
    ("more", EVIL),
    ("documents", "--project", EVIL),
    ("search", "walrus", "--project", EVIL),
    ("search", "walrus", "--where", f"{EVIL}=1"),
    ("search", f"--{EVIL}"),
    ("search", "walrus", "--limit", EVIL),
    (EVIL,),
    ("--debug", "more", EVIL),
]


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_no_command_writes_a_character_that_a_terminal_obeys(
    cli: Cli, evil: str, flags: tuple[str, ...]
) -> None:
    for command in COMMANDS:
        answer = cli(*command, *flags)
        assert answer.exit_code in (0, 1, 2), (command, answer.output)
        assert not OBEYED & set(answer.output), command
        for line in answer.stdout.split("\n") if flags else ():
            assert not line or json.loads(line)


def test_a_program_reads_the_same_values(cli: Cli, evil: str) -> None:
    answer = cli("search", "walrus", "--json")
    hits = json.loads(answer.stdout)["hits"]
    assert {hit["path"] for hit in hits} == {f"{EVIL}.md", f"put{EVIL}"}
    assert {hit["project"] for hit in hits} == {evil}
    assert any(f"The walrus {EVIL} sleeps." in hit["snippet"]["text"] for hit in hits)


def test_colour_does_not_let_such_a_character_through(cli: Cli, evil: str) -> None:
    answer = cli("search", "walrus", "--color")
    assert not (OBEYED - {"\x1b"}) & set(answer.output)
