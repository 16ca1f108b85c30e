"""The command that answers: ask."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from unspool.errors import NotFoundError, UnspoolError
from unspool.interfaces import pages, render, terminal
from unspool.interfaces.cli import conditions
from unspool.interfaces.cli.door import ADDRESSES, READING, color, command, note, opened, print_json
from unspool.interfaces.cli.scopes import NOTHING_FOUND, given_text, narrowed, scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unspool.answering.answer import AnswerStream
    from unspool.corpus import Corpus
    from unspool.domain.answers import Answer
    from unspool.domain.conversations import Message

LAST_TURNS = 20


@command(
    "ask",
    "Answer a question from what is indexed, with citations",
    examples=(
        'unspool ask "how are sessions opened?" .',
        'unspool ask "who may sign in?" --project docs --limit 5 --json',
    ),
    takes=(
        "limit",
        "answer_model",
        "answer_context_tokens",
        "answer_max_tokens",
        *ADDRESSES,
        *READING,
    ),
)
@click.argument("question")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@narrowed
@click.option(
    "--conversation",
    metavar="ID",
    help=(
        "A remembered conversation that the question goes on from: its last messages are shown "
        "to the model."
    ),
)
def ask(
    flags: dict[str, str | None],
    as_json: bool,
    question: str,
    paths: tuple[str, ...],
    projects: tuple[str, ...],
    where: tuple[str, ...],
    whole: str | None,
    language: tuple[str, ...],
    globs: tuple[str, ...],
    kind: tuple[str, ...],
    conversation: str | None,
) -> int:
    """Answer a QUESTION from the best hits for it; PATHs are indexed or refreshed first, and '-'
    reads the question from stdin.

    With no model set, it shows what one would be shown.
    """
    condition = conditions.combined(where, whole, languages=language, paths=globs, kinds=kind)
    with opened(flags) as corpus:
        names, inside = scope(corpus, paths, projects)
        parts = [part for part in (condition, inside) if part is not None]
        turns = _last_turns(corpus, conversation, names or ()) if conversation is not None else ()
        with corpus.answering(
            given_text(question),
            projects=names,
            where=conditions.together(parts),
            conversation=turns,
        ) as stream:
            answer = _show(stream, as_json=as_json)
    for message in answer.notes:
        note(message)
    for message in answer.warnings:
        note(message, kind="warning")
    return 0 if answer.found else NOTHING_FOUND


def _last_turns(corpus: Corpus, conversation: str, projects: Sequence[str]) -> Sequence[Message]:
    """The end of a conversation in one of the projects that are searched, else in the one that
    conversations go to.
    """
    for project in (*(corpus.projects() if "*" in projects else projects), None):
        known = corpus.conversations.get(conversation, project=project, last=LAST_TURNS)
        if known is not None:
            return known.messages
    raise NotFoundError(
        f"no conversation {conversation!r}; `unspool documents` lists what there is, --project "
        f"says in which project to look"
    )


def _show(stream: AnswerStream, *, as_json: bool) -> Answer:
    """Write the answer as it comes, then its sources."""
    screen = terminal.Screen(sys.stdout, color=color())
    shown = ""
    try:
        for piece in stream:
            if not as_json:
                screen.put(shown := piece)
    except (UnspoolError, KeyboardInterrupt):
        if shown and not shown.endswith("\n"):
            screen.put("\n")  # so that the error begins a line
        raise
    answer = stream.answer
    if as_json:
        print_json(render.answer(answer))
    else:
        screen.write(pages.after_answer(answer))
        sys.stdout.flush()  # before what is said about it
    return answer
