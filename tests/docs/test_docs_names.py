"""Settings, error codes, constants and dependencies on the pages are those of the code, and all
of them are there.
"""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from documentation import PAGES, ROOT, name

import generate  # isort: skip - `documentation` tells Python where it is
from unspool import errors
from unspool.domain import filters
from unspool.settings import Settings
from unspool.settings.definitions import DEFINITIONS, VARIABLES

_MODULES = (
    "search.ranking",
    "search.plan",
    "search.segments",
    "index.embedded.flat",
    "index.follower",
    "index.vectors.pgvector",
    "indexing.pipeline",
    "indexing.preparing",
    "chunking.packing",
    "index.analysis",
)
_JSON_ONLY = {"usage", "bug"}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_variable_is_a_setting(page: Path) -> None:
    known = set(VARIABLES)
    known |= set(
        re.findall(r"\$\{(\w+)", (ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    )
    mentioned = set(re.findall(r"\bUNSPOOL_[A-Z_]*[A-Z]\b", page.read_text(encoding="utf-8")))
    assert {one for one in mentioned if not one.startswith("UNSPOOL_TEST_")} - known == set()


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    assert [one for one in VARIABLES if one not in text] == []


def test_every_error_code_is_documented_and_has_advice() -> None:
    text = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    codes = [one.code for one in generate.error_classes()]
    assert sorted(codes) == sorted(set(codes)) == sorted(generate.WHAT_TO_DO)
    assert [code for code in codes if f"\n## {code}\n" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_error_code_and_class_that_is_mentioned_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    codes = {one.code for one in generate.error_classes()} | _JSON_ONLY
    assert set(re.findall(r"\[`(\w+)`\]\((?:reference/)?errors\.md#", text)) - codes == set()
    ours = {one.__name__ for one in generate.error_classes()}
    theirs = {"ImportError", "ValueError", "LookupError", "DamagedError"}
    assert set(re.findall(r"`(?:unspool\.errors\.)?(\w+Error)`", text)) - ours - theirs == set()


def test_every_error_has_the_attributes_that_the_reference_shows() -> None:
    for one in generate.error_classes():
        assert one.exit_code in (1, 2, 3)
        assert 400 <= one.http_status < 600
        assert issubclass(one, errors.UnspoolError)


def test_every_filter_field_is_described() -> None:
    assert set(generate.FIELDS) == set(filters.FIELDS)


def test_constants_on_the_pages_are_those_of_the_code() -> None:
    values: dict[str, float] = {
        "alpha": import_module("unspool.embedders.static").StaticEmbedder.alpha
    }
    defaults = Settings()
    values |= {
        one.variable: defaults.get(name)
        for name, one in DEFINITIONS.items()
        if isinstance(defaults.get(name), int | float)
    }
    for module in _MODULES:
        values |= {
            key: one
            for key, one in vars(import_module(f"unspool.{module}")).items()
            if isinstance(one, int | float)
        }
    found = 0
    for page in PAGES:
        for constant, value in re.findall(
            r"^\| `([A-Z_]{3,}|alpha)` \| ([\d.]+) \|",
            page.read_text(encoding="utf-8"),
            re.MULTILINE,
        ):
            found += 1
            assert values.get(constant) == pytest.approx(float(value), abs=1e-4), (
                f"{name(page)}: {constant} is {values.get(constant)}"
            )
    assert found > 15


def test_every_ranking_constant_is_explained() -> None:
    text = (ROOT / "docs" / "ranking.md").read_text(encoding="utf-8")
    ranking = vars(import_module("unspool.search.ranking"))
    assert [
        one
        for one, value in ranking.items()
        if one.isupper() and isinstance(value, float) and f"`{one}`" not in text
    ] == []


def test_every_dependency_is_explained_and_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = [
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project.get("dependency-groups", {}).values(),
    ]
    wanted = {
        re.split(r"[\[<>=!~; ]", one)[0]
        for group in groups
        for one in group
        if isinstance(one, str)
    } - {"unspool"}
    section = (
        (ROOT / "CONTRIBUTING.md")
        .read_text(encoding="utf-8")
        .split("## Dependencies")[1]
        .split("\n## ")[0]
    )
    explained = re.findall(r"^\| `([\w-]+)` \| (.+) \|$", section, re.MULTILINE)
    assert {one for one, _ in explained} == wanted
    assert len(explained) == len(wanted)


def test_the_map_of_the_code_is_complete() -> None:
    section = (
        (ROOT / "CONTRIBUTING.md")
        .read_text(encoding="utf-8")
        .split("## The map")[1]
        .split("\n## ")[0]
    )
    source = ROOT / "src" / "unspool"
    packages = [one.name + "/" for one in source.iterdir() if (one / "__init__.py").exists()]
    modules = [one.name for one in source.glob("*.py") if not one.name.startswith("__")]
    assert [one for one in (*packages, *modules) if f"`{one}`" not in section] == []
