"""What a scan finds and leaves out; git itself says what its ignore rules mean."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unspool.errors import InputError, NotFoundError
from unspool.sources.folders import Scan, scan
from unspool.sources.ignores import Rules

GIT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "PATH": os.environ.get("PATH", ""),
}


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, newline="")
    return root


def paths(result: Scan) -> list[str]:
    return [found.path for found in result.found]


def reasons(result: Scan) -> dict[str, str]:
    return {skip.path: skip.reason for skip in result.skips}


def git_keeps(root: Path, *, top: Path | None = None) -> set[str]:
    if not (top or root).joinpath(".git").exists():
        subprocess.run(["git", "init", "-q", str(top or root)], check=True, env=GIT)
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        env=GIT,
    )
    return {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}


AWKWARD = [
    ("*.log\n!keep.log\n", ["a.log", "keep.log", "d/keep.log", "d/b.log"]),
    ("build/\n", ["build/x", "d/build/y", "d/build2/z"]),
    ("build\n", ["build", "d/build"]),
    ("d/\n!d/keep\n", ["d/keep", "d/other"]),
    ("d/*\n!d/keep\n", ["d/keep", "d/other", "d/e/f"]),
    ("/top\n", ["top", "d/top"]),
    ("d/e\n", ["d/e", "x/d/e"]),
    ("**/e\n", ["e", "d/e", "d/f/e/g"]),
    ("d/**\n", ["d/a", "d/b/c", "e"]),
    ("d/**/x\n", ["d/x", "d/a/x", "d/a/b/x", "x"]),
    ("**/a/**/b\n", ["a/b", "z/a/q/b", "a/q/b/c", "b"]),
    ("**\n!*/\n!*.md\n", ["a.md", "d/b.md", "d/c.txt"]),
    ("*\n!.gitignore\n!src/\n!src/**\n", ["a", "src/b", "src/c/d"]),
    ("*.[oa]\n[!a-c]x\n", ["l.o", "l.a", "l.b", "dx", "ax"]),
    ("[[:digit:]]*\n*.[[:upper:]]\n", ["1a", "a1", "b.C", "b.c"]),
    ("[a\\]b].t\n[]-]\n[^x]y\n", ["].t", "a.t", "-", "]", "ay", "xy"]),
    ("[a-\\]]q\n", ["aq", "]q", "bq"]),
    ("[z-a]q\n[abc\n\\\n", ["aq", "zq", "[abc", "\\"]),
    ("[[:nope:]]q\n", ["nq", ":q"]),
    ("\\!bang\n\\#hash\n#comment\n", ["!bang", "#hash", "#comment"]),
    ("space\\ \ntrim   \nin ner\ntab\t\n", ["space ", "trim", "in ner", "tab\t", "tab"]),
    ("crlf\r\nIcon\r\r\n", ["crlf", "Icon\r", "Icon"]),
    ("\ufeffbom\n", ["bom"]),
    ("a?c\n", ["abc", "aéc", "ac"]),
    ("*é*\n", ["aéc", "abc"]),
    ("a**b\n**c/x\n", ["ab", "a1b", "a/b", "cc/x", "d/cc/x"]),
    ("foo//\n//bar\n/\n!\n", ["foo/a", "bar", "d/bar"]),
    ("d/e/\n!d/e/f\n", ["d/e/f", "d/g"]),
    ("*/k\n", ["m/k", "m/n/k", "k"]),
    (".*\n!.keep\n", [".hidden", ".keep", "d/.x/y"]),
    ("*a*b*c\n", ["abc", "xaybzc", "xaybz", "acb"]),
    ("!a\na\n!a\n", ["a", "d/a"]),
    ("x/*/z\n", ["x/y/z", "x/z", "x/y/q/z"]),
    ("*.d\n!x.d/\n", ["x.d/a", "y.d/a", "z.d"]),
]


@pytest.mark.parametrize(
    ("rules", "names"), AWKWARD, ids=[repr(rules)[:30] for rules, _ in AWKWARD]
)
def test_awkward_rules_mean_what_git_says(tmp_path: Path, rules: str, names: list[str]) -> None:
    tree(tmp_path, dict.fromkeys(names, "x") | {".gitignore": rules})
    expected = git_keeps(tmp_path)
    assert set(paths(scan(tmp_path))) == expected


PATTERN = st.lists(
    st.sampled_from(["a", "b", "ab", "*", "**", "?", "/", "/", "[ab]", "[!a]", "*.x", "a*", "\\a"]),
    min_size=1,
    max_size=5,
).map("".join)
LINE = st.builds(
    lambda negated, pattern, end: negated + pattern + end,
    st.sampled_from(["", "", "!"]),
    PATTERN,
    st.sampled_from(["", "", "/", " "]),
)
PLAIN_STARS = re.compile(r"[ab]\*\*+(?:/| *$)")  # where git and its manual differ; see ignores.py
FILE = st.lists(LINE.filter(lambda line: not PLAIN_STARS.search(line)), max_size=5).map("\n".join)
NAMES = [
    f"{x}/{y}/{z}" for x in ("a", "b", "ab") for y in ("a", "b.x") for z in ("a", "b", "ab", "c.x")
] + ["c", "b.x/a", "a.x", "bb"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tree(tmp_path_factory.mktemp("repository"), dict.fromkeys(NAMES, "x"))
    subprocess.run(["git", "init", "-q", str(root)], check=True, env=GIT)
    return root


@settings(max_examples=60, deadline=None)
@given(top=FILE, nested=FILE, exclude=FILE)
def test_any_rules_mean_what_git_says(
    repository: Path, top: str, nested: str, exclude: str
) -> None:
    tree(
        repository,
        {".gitignore": top or "\n", "a/.gitignore": nested or "\n", ".git/info/exclude": exclude},
    )
    kept = git_keeps(repository)
    assert set(paths(scan(repository))) == kept
    below = {name.removeprefix("b/") for name in kept if name.startswith("b/")}
    # Git lists nothing below a root that is ignored itself; unspool walks what it was asked to.
    assert not below or set(paths(scan(repository / "b"))) == below


def test_rules_above_a_root_inside_a_work_tree_apply(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            ".gitignore": "*.log\n/p/q/secret\nq/x\n",
            "p/.gitignore": "*.tmp\n",
            "p/q/a": "x",
            "p/q/b.log": "x",
            "p/q/c.tmp": "x",
            "p/q/secret": "x",
        },
    )
    tree(tmp_path, {"p/q/x": "x", "p/q/d": "x", ".unspoolignore": "d\n"})
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, env=GIT)
    tree(tmp_path, {".git/info/exclude": "a\n"})
    assert paths(scan(tmp_path / "p" / "q")) == ["x"]


def test_rules_above_a_root_outside_a_work_tree_do_not(tmp_path: Path) -> None:
    tree(tmp_path, {".gitignore": "*\n", "p/a": "x"})
    assert paths(scan(tmp_path / "p")) == ["a"]


def test_a_root_that_is_ignored_itself_is_walked_because_it_was_asked_for(tmp_path: Path) -> None:
    tree(tmp_path, {".gitignore": "build/\n", "build/a": "x"})
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, env=GIT)
    assert paths(scan(tmp_path / "build")) == ["a"]


def test_linked_work_trees_have_the_excludes_of_their_repository(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "main/.git/info/exclude": "*.no\n",
            "main/.git/worktrees/w/commondir": "../..\n",
            "w/a.no": "x",
            "w/b": "x",
        },
    )
    tree(tmp_path, {"w/.git": f"gitdir: {tmp_path}/main/.git/worktrees/w\n"})
    result = scan(tmp_path / "w")
    assert (paths(result), reasons(result)) == (["b"], {".git": "ignored", "a.no": "ignored"})


def test_the_own_ignore_file_wins_over_gitignore_beside_it_and_can_bring_back_what_is_left_out_by_default(
    tmp_path: Path,
) -> None:
    tree(
        tmp_path,
        {
            ".gitignore": "vendor/*\ngone\n",
            ".unspoolignore": "!vendor/x\n*.txt\n!node_modules/\n!uv.lock\n!.git/\n",
        },
    )
    tree(
        tmp_path,
        {
            "vendor/x/a.py": "x",
            "vendor/y/b.py": "x",
            "c.txt": "x",
            "gone": "x",
            "node_modules/d.js": "x",
            "uv.lock": "x",
            ".git/config": "x",
        },
    )
    result = scan(tmp_path)
    assert paths(result) == [
        ".gitignore",
        ".unspoolignore",
        "uv.lock",
        "node_modules/d.js",
        "vendor/x/a.py",
    ]
    assert reasons(result) == {
        "vendor/y/": "ignored",
        "c.txt": "ignored",
        "gone": "ignored",
        ".git/": "ignored",
    }


def test_hostile_patterns_cost_nothing_special() -> None:
    rules = Rules(
        (
            "*a" * 60
            + "b\n"
            + "**/"
            + "a/**/" * 40
            + "b\n"
            + "[" * 5000
            + "\n"
            + "*" * 10_000
            + "x\n"
        ).encode()
    )
    start = time.process_time()
    rules.excludes("a" * 250, "/".join(["a"] * 500), folder=False)
    assert time.process_time() - start < 0.5


def test_folders_of_dependencies_and_caches_are_one_skip_each(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "node_modules/a/b.js": "x",
            "env/pyvenv.cfg": "x",
            "env/lib/c.py": "x",
            ".git/config": "x",
            "__pycache__/d.py": "x",
            "e.py": "x",
        },
    )
    tree(
        tmp_path,
        {
            "cache/CACHEDIR.TAG": "Signature: 8a477f597d28d172789f06886806bc55\n",
            "cache/f": "x",
            "fake/CACHEDIR.TAG": "no",
            "fake/g": "x",
            ".unspool/h": "x",
        },
    )
    result = scan(tmp_path)
    assert paths(result) == ["e.py", "fake/g"]
    folders = {path: reason for path, reason in reasons(result).items() if path.endswith("/")}
    expected = {
        "node_modules/": "vendored",
        "env/": "vendored",
        ".git/": "ignored",
        "__pycache__/": "ignored",
        "cache/": "ignored",
        ".unspool/": "ignored",
    }
    assert folders == expected


def test_a_folder_of_dependencies_is_walked_if_it_is_the_root(tmp_path: Path) -> None:
    tree(tmp_path, {"site-packages/a.py": "x", "venv/pyvenv.cfg": "x"})
    assert paths(scan(tmp_path / "site-packages")) == ["a.py"]
    assert paths(scan(tmp_path / "venv")) == ["pyvenv.cfg"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *(
            (name, "binary")
            for name in (
                "a.png",
                "a.ZIP",
                "a.woff2",
                "a.xlsx",
                "a.sqlite",
                "a.pyc",
                "a.wasm",
                "a.safetensors",
                "a.parquet",
                "a.o",
                "a.mp4",
            )
        ),
        *(
            (name, "generated")
            for name in (
                "package-lock.json",
                "uv.lock",
                "Cargo.lock",
                "go.sum",
                "a.js.map",
                "a_pb2.py",
                "a.pb.go",
                "a.snap",
            )
        ),
        *((name, "minified") for name in ("a.min.js", "a.min.css")),
    ],
)
def test_names_that_say_enough_are_skipped(tmp_path: Path, name: str, reason: str) -> None:
    tree(tmp_path, {name: "x"})
    assert reasons(scan(tmp_path)) == {name: reason}


@pytest.mark.parametrize(
    "name",
    [
        "a.py",
        "Makefile",
        ".env",
        "a.ts",
        "a.pdf",
        "a.docx",
        "mapping.py",
        "lock",
        "a.lock.py",
        "min.js",
        "a.key",
        "a.dot",
    ],
)
def test_other_names_are_found(tmp_path: Path, name: str) -> None:
    tree(tmp_path, {name: "x"})
    assert paths(scan(tmp_path)) == [name]


def test_empty_and_huge_files_are_skipped_without_being_read(tmp_path: Path) -> None:
    tree(
        tmp_path, {"empty.py": "", "big.txt": "x", "big.pdf": "x", "huge.pdf": "x", "edge.txt": "x"}
    )
    for name, size in {
        "big.txt": 2 * 1024**3,
        "big.pdf": 39_000_000,
        "huge.pdf": 41_000_000,
        "edge.txt": 2_000_000,
    }.items():
        os.truncate(tmp_path / name, size)
    result = scan(tmp_path)
    assert paths(result) == ["big.pdf", "edge.txt"]
    assert reasons(result) == {"empty.py": "empty", "big.txt": "huge", "huge.pdf": "huge"}


def test_links_are_never_followed(tmp_path: Path) -> None:
    outside = tree(tmp_path / "outside", {"secret.py": "x"})
    root = tree(tmp_path / "root", {"a.py": "x", "d/b.py": "x"})
    for name, target in {
        "file": "a.py",
        "out": outside / "secret.py",
        "outdir": outside,
        "loop": ".",
        "d/up": "..",
        "self": "self",
        "broken": "nowhere",
    }.items():
        (root / name).symlink_to(str(target))
    result = scan(root)
    assert paths(result) == ["a.py", "d/b.py"]
    assert reasons(result) == dict.fromkeys(
        ["file", "out", "outdir", "loop", "d/up", "self", "broken"], "symlink"
    )
    assert "out of" in next(skip.detail for skip in result.skips if skip.path == "outdir")


def test_a_root_that_is_a_link_is_resolved(tmp_path: Path) -> None:
    tree(tmp_path, {"real/a.py": "x", "real/b/c.py": "x"})
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "one.py").symlink_to("real/a.py")
    assert paths(scan(tmp_path / "link")) == ["a.py", "b/c.py"]
    assert paths(scan(tmp_path / "one.py")) == ["one.py"]


def test_pipes_and_sockets_are_skipped_and_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
        assert reasons(scan(tmp_path)) == {"pipe": "special", "sock": "special"}
    with pytest.raises(InputError, match="pipe"):
        scan(tmp_path / "pipe")
    with pytest.raises(InputError, match="device"):
        scan(Path("/dev/null"))


def test_a_single_file_is_taken_as_it_is(tmp_path: Path) -> None:
    tree(tmp_path, {".gitignore": "*\n", "uv.lock": "x", "a.png": "x"})
    assert paths(scan(tmp_path / "uv.lock")) == ["uv.lock"]
    assert reasons(scan(tmp_path / "a.png")) == {"a.png": "binary"}


def test_a_missing_root_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"nowhere.*check the path"):
        scan(tmp_path / "nowhere")
    with pytest.raises(NotFoundError):
        scan(tree(tmp_path, {"f": "x"}) / "f" / "below")


def as_nobody(code: str, *arguments: str) -> str:
    """Runs code without root's right to read everything."""
    source = (
        "import sys, os\nfrom pathlib import Path\nfrom unspool.sources.folders import scan\n"
        + ("os.setgroups([]); os.setgid(65534); os.setuid(65534)\n" if os.getuid() == 0 else "")
    )
    done = subprocess.run(
        [sys.executable, "-c", source + code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": "src"},
    )
    return done.stdout.strip()


@pytest.fixture
def shared_tmp(tmp_path: Path) -> Path:
    for folder in (tmp_path, *tmp_path.parents):
        if folder == Path("/tmp"):
            break
        folder.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_an_unlistable_folder_is_reported_as_unread_not_as_empty(
    shared_tmp: Path, mode: int
) -> None:
    tree(shared_tmp, {"open/a.py": "x", "shut/b.py": "x", "shut/c/d.py": "x"})
    (shared_tmp / "shut").chmod(mode)
    code = (
        "s = scan(Path(sys.argv[1]))\nprint([f.path for f in s.found], s.unread, [(k.path, "
        "k.reason) for k in s.skips])"
    )
    try:
        assert (
            as_nobody(code, str(shared_tmp)) == "['open/a.py'] ['shut'] [('shut/', 'unreadable')]"
        )
    finally:
        (shared_tmp / "shut").chmod(0o755)


def test_an_unlistable_root_is_unread_as_a_whole(shared_tmp: Path) -> None:
    root = tree(shared_tmp / "shut", {"a.py": "x"})
    root.chmod(0o000)
    try:
        assert (
            as_nobody("s = scan(Path(sys.argv[1]))\nprint(s.found, s.unread)", str(root))
            == "[] ['']"
        )
    finally:
        root.chmod(0o755)


def test_names_of_any_bytes_can_be_stored_and_opened(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path)
    os.mkdir(root + b"/d\xff")
    names = [
        b"new\nline.py",
        b"caf\xe9.py",
        b"caf\xea.py",
        "café.py".encode(),
        b"d\xff/x.py",
        b" space .py",
        b'quo"te.py',
    ]
    for name in names:
        with open(root + b"/" + name, "wb") as file:
            file.write(name)
    result = scan(tmp_path)
    assert len(set(paths(result))) == len(names)
    assert all(found.path.encode() and found.path.endswith(".py") for found in result.found)
    assert {Path(found.file).read_bytes() for found in result.found} == set(names)
    assert paths(scan(tmp_path)) == paths(result)


def test_the_order_is_fixed_and_folders_come_whole(tmp_path: Path) -> None:
    tree(tmp_path, dict.fromkeys(("b/z", "b/a", "a.py", "c", "a/q", "a-b"), "x"))
    assert paths(scan(tmp_path)) == ["a-b", "a.py", "c", "a/q", "b/a", "b/z"]


def test_found_files_carry_size_and_time(tmp_path: Path) -> None:
    tree(tmp_path, {"a.py": "four"})
    os.utime(tmp_path / "a.py", ns=(1, 1_234_567_890_123_456_789))
    found = scan(tmp_path).found[0]
    assert (found.size_bytes, found.modified_ns, found.file) == (
        4,
        1_234_567_890_123_456_789,
        str(tmp_path / "a.py"),
    )


def test_what_vanishes_during_the_walk_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path, {"a/b.py": "x", "c.py": "x", "d/e.py": "x"})
    listed: Callable[[str], object] = os.scandir

    def scandir(path: str) -> object:
        if path.endswith("/a"):
            (tmp_path / "a" / "b.py").unlink()
            (tmp_path / "a").rmdir()
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    result = scan(tmp_path)
    assert (paths(result), result.skips, result.unread) == (["c.py", "d/e.py"], [], [])


def test_very_deep_folders_end_neither_the_scan_nor_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "d" * 100
    for _ in range(60):
        os.mkdir(name)
        os.chdir(name)
    tree(tmp_path, {"a.py": "x"})
    result = scan(tmp_path)
    assert paths(result) == ["a.py"]
    assert result.unread  # the operating system refuses paths beyond 4096 bytes
    os.chdir(tmp_path)
    subprocess.run(["rm", "-rf", name], check=True)


def test_progress_is_told_and_ends_with_the_count(tmp_path: Path) -> None:
    tree(tmp_path, {f"{folder}/{name}.py": "x" for folder in "ab" for name in range(600)})
    told: list[int] = []
    scan(tmp_path, on_progress=told.append)
    assert told == [600, 1200, 1200]
