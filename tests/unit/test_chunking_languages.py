"""Languages are told by name, extension and first line; importing the package loads no grammar."""

from __future__ import annotations

import subprocess
import sys

import pytest

from unspool.chunking import kind_of, language_of
from unspool.domain.documents import Kind


@pytest.mark.parametrize(
    ("path", "head", "language"),
    [
        ("a/b/main.py", "", "python"),
        ("Main.JAVA", "", "java"),
        ("a.tsx", "", "tsx"),
        ("a.d.ts", "", "typescript"),
        ("c:\\code\\x.cs", "", "csharp"),
        ("Dockerfile", "", "dockerfile"),
        ("Dockerfile.dev", "", "dockerfile"),
        ("web.dockerfile", "", "dockerfile"),
        ("Makefile", "", "makefile"),
        ("CMakeLists.txt", "", "cmake"),
        ("Gemfile", "", "ruby"),
        ("README", "", "text"),
        ("README.md", "", "markdown"),
        ("index.rst", "", "rst"),
        ("poetry.lock", "", "lock"),
        ("Pipfile.lock", "", "json"),
        ("x.h", "#include <stdio.h>\nint f(void);\n", "c"),
        ("x.h", "#pragma once\n#include <vector>\n", "cpp"),
        ("x.h", "namespace a {\n}\n", "cpp"),
        ("x.h", "/* class of things, using the\n   namespace idea */\nint f(void);\n", "c"),
        ("x.h", "#import <Foundation/Foundation.h>\n@interface A\n", "objectivec"),
        ("run", "#!/bin/sh\n", "bash"),
        ("run", "#!/usr/bin/env python3.11\n", "python"),
        ("run", "#! /usr/bin/env -S LANG=C node --x\n", "javascript"),
        ("run", "#!\n", "text"),
        ("run", "", "text"),
        ("odd.xyz", "", "text"),
        ("odd.xyz", "#!/usr/bin/ruby\n", "ruby"),
        ("", "", "text"),
        (".gitignore", "", "ini"),
    ],
)
def test_the_language_is_told_by_name_then_extension_then_first_line(
    path: str, head: str, language: str
) -> None:
    assert language_of(path, head) == language


@pytest.mark.parametrize(
    ("language", "kind"),
    [
        ("python", Kind.CODE),
        ("sql", Kind.CODE),
        ("css", Kind.CODE),
        ("makefile", Kind.CODE),
        ("perl", Kind.CODE),
        ("json", Kind.DATA),
        ("lock", Kind.DATA),
        ("csv", Kind.DATA),
        ("markdown", Kind.DOCS),
        ("text", Kind.DOCS),
        ("klingon", Kind.DOCS),
    ],
)
def test_the_language_decides_the_kind(language: str, kind: Kind) -> None:
    assert kind_of(language) is kind


def test_importing_the_package_loads_no_grammar() -> None:
    script = (
        "import sys, unspool.chunking; print([name for name in sys.modules if "
        "name.startswith('tree_sitter_')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout.strip() == "[]"
