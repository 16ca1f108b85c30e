"""Files that change or go while they are taken in: what was read is kept, and what was not is
told.
"""

from __future__ import annotations

from pathlib import Path

import exports
import unspool
from unspool.domain.reports import Progress


def test_a_file_that_goes_while_it_is_read_is_taken_in(
    corpus: unspool.Corpus, tmp_path: Path
) -> None:
    path = exports.lines(
        tmp_path / "c.jsonl", {"id": "a", "messages": [{"text": "we sail at noon"}]}
    )

    def remove(progress: Progress) -> None:
        path.unlink(missing_ok=True)

    report = corpus.remember_files(path, on_progress=remove)
    assert (report.added, report.bad_count) == (1, 0)
    assert corpus.conversations.exists("a")


def test_a_file_that_goes_while_another_is_read_is_told_and_the_others_are_kept(
    corpus: unspool.Corpus, tmp_path: Path
) -> None:
    first, gone, last = (
        exports.lines(
            tmp_path / f"{name}.jsonl", {"id": name, "messages": [{"text": f"{name} sails"}]}
        )
        for name in "abc"
    )

    def remove(progress: Progress) -> None:
        gone.unlink(missing_ok=True)

    report = corpus.remember_files([first, gone, last], on_progress=remove)
    assert (report.added, report.bad_count) == (2, 1)
    assert report.bad[0].source == str(gone) and "no such file" in report.bad[0].reason
    assert [corpus.conversations.exists(name) for name in "abc"] == [True, False, True]
    assert corpus.search("sails", projects="conversations").hits
