"""Path globs: what they match, in a database's matcher and in Python's, and that none takes
long.
"""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from unspool.domain import globs

GLOBS = [
    # pattern, what it matches, what it does not
    ("*.py", ["a.py", "src/a.py", "src/deep/.py"], ["a.pyc", "a.py/b", "apy"]),
    ("a.py", ["a.py", "src/a.py"], ["ba.py", "a.py.bak", "aXpy"]),
    ("src/*.py", ["src/a.py"], ["src/deep/a.py", "x/src/a.py", "src/a.pyc"]),
    (
        "src/**/*.py",
        ["src/a.py", "src/deep/a.py", "src/very/deep/a.py"],
        ["a.py", "x/src/a.py", "srcs/a.py"],
    ),
    ("src/**", ["src/a", "src/a/b"], ["src", "srcs/a", "x/src/a"]),
    ("src/", ["src/a", "src/a/b", "x/src/a"], ["src", "xsrc/a"]),
    ("**/test_*.py", ["test_a.py", "x/test_a.py", "x/y/test_.py"], ["x/atest_a.py", "test_a.txt"]),
    ("**/*", ["a", "a/b", "a/b/c"], []),
    ("**", ["a", "a/b"], []),
    ("*", ["a", "a/b", ".hidden"], []),
    ("a?c", ["abc", "x/aZc"], ["ac", "abbc", "a/c"]),
    ("a/?/c", ["a/b/c"], ["a//c", "a/bb/c"]),
    ("[ab].py", ["a.py", "x/b.py"], ["c.py", "ab.py"]),
    ("[!ab].py", ["c.py", "x/d.py"], ["a.py"]),
    ("[a-c]1", ["a1", "b1"], ["d1", "-1"]),
    ("[]x].py", ["].py", "x.py"], ["[.py", "y.py"]),
    ("a[.py", ["a[.py"], ["a.py"]),
    ("a+b(c).{md}$^|", ["a+b(c).{md}$^|"], ["aab(c).md"]),
    ("/README.md", ["README.md"], []),
    ("./src/a.py", ["src/a.py"], ["x/src/a.py"]),
    ("ü*.md", ["über.md", "x/ü.md"], ["u.md"]),
    ("a\\d", ["a\\d"], ["a1"]),
    ("docs/*/index.*", ["docs/x/index.html"], ["docs/index.html", "docs/x/y/index.html"]),
]


@pytest.mark.parametrize(
    ("pattern", "matching", "others"), GLOBS, ids=[pattern for pattern, _, _ in GLOBS]
)
def test_a_glob_matches(pattern: str, matching: list[str], others: list[str]) -> None:
    for made in (globs.translate_plain(pattern), globs.translate_atomic(pattern)):
        regex = re.compile(made)
        assert [path for path in matching if not regex.search(path)] == []
        assert [path for path in others if regex.search(path)] == []


@given(st.text(alphabet="ab[]!-^*?/\\.z{}()|+$&~", max_size=12))
@example("[]")
@example("[!]")
@example("[^]")
@example("[z-a].py")
@example("[!z-a].py")
@example("[--a]")
@example("[a&&b]")
def test_every_glob_is_a_valid_regular_expression(pattern: str) -> None:
    """One that is not fails inside the database in the middle of a search."""
    re.compile(globs.translate_plain(pattern))
    re.compile(globs.translate_atomic(pattern))


def test_a_range_that_is_turned_round_holds_nothing() -> None:
    assert not re.search(globs.translate_atomic("[z-a].py"), "m.py")
    assert re.search(globs.translate_atomic("[!z-a].py"), "m.py")


def test_both_expressions_match_the_same() -> None:
    """The steady one never goes back on a gap; that is right only if the first place where it
    can end is as good as every other.
    """
    paths = [
        "".join(path) for length in range(1, 6) for path in itertools.product("ab/", repeat=length)
    ]
    patterns = [
        "".join(one) for length in range(1, 5) for one in itertools.product("a/*?", repeat=length)
    ]
    for pattern in [*patterns, "**/a*b/**/b*a", "*a*b**a", "a**/b*/**", "a*a/*b", "**/*a*b*"]:
        plain, steady = (
            re.compile("(?s)" + globs.translate_plain(pattern)),
            re.compile(globs.translate_atomic(pattern)),
        )
        assert [path for path in paths if plain.search(path)] == [
            path for path in paths if steady.search(path)
        ], pattern


@pytest.mark.parametrize(
    "pattern",
    [
        "*a" * 40 + "b",
        "**a" * 40 + "b",
        "**/*a" * 40 + "b",
        "**/" * 200 + "b",
        "*a" * 20 + "/" + "*a" * 20 + "b",
    ],
)
def test_a_glob_that_is_meant_to_take_for_ever_does_not(pattern: str) -> None:
    """Where gaps are tried in every place, the first of these never ends: if this hangs, look
    for a gap that is not atomic.
    """
    assert not re.search(globs.translate_atomic(pattern), "a" * 200 + "/a" * 100)


@given(
    st.text(alphabet="ab/.ü+(", min_size=1, max_size=12).filter(
        lambda path: not path.startswith(("/", "./")) and not path.endswith("/")
    )
)
def test_a_path_without_wildcards_matches_itself(path: str) -> None:
    assert re.search(globs.translate_atomic(path), path)
