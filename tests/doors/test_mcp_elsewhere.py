"""What others wrote to look at MCP servers: the inspector, and the conformance suite as far as
it applies to a server with tools of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services import serving
from support import doc, open_corpus, report_missing, settings_for

PACKAGES = (
    "@modelcontextprotocol/inspector@2.12.0 @modelcontextprotocol/conformance@0.2.0-alpha.12 "
    "node@22"
)
CURE = f"run `npm install --prefix DIR {PACKAGES}` and set UNSPOOL_TEST_NPM=DIR"
# The other scenarios call tools, prompts and resources that a server made for the suite has, or
# test what this one does not declare: prompts, completions, logging, subscriptions, sampling,
# elicitation, tasks, headers for arguments.
APPLICABLE = (
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "sep-2164-resource-not-found",
    "dns-rebinding-protection",
    "http-header-validation",
    "input-required-result-unsupported-methods",
)


@pytest.fixture(scope="module")
def programs() -> Path:
    """A folder with the packages."""
    folder = os.environ.get("UNSPOOL_TEST_NPM", "")
    found = Path(folder) / "node_modules" / ".bin"
    if not folder or not (found / "node").exists():
        report_missing("npm", f"the inspector is not installed; {CURE}")
    return found


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("elsewhere") / "catalog.db"
    with open_corpus(path) as corpus:
        corpus.put(doc("garden.md", "Tomatoes want water.", "notes"))
    return path


@pytest.fixture(scope="module")
def address(programs: Path, catalog: Path) -> Iterator[str]:
    with serving(settings_for(catalog)) as found:
        yield f"{found}/mcp"


def run(programs: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "HOME": str(home)}
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        stdin=subprocess.DEVNULL,
        check=False,
    )


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_inspector_lists_and_calls(
    programs: Path, catalog: Path, address: str, tmp_path: Path, transport: str, era: str
) -> None:
    local = (sys.executable, "-m", "unspool", "mcp", "-e", f"UNSPOOL_DATABASE=sqlite:///{catalog}")
    target = local if transport == "stdio" else (address, "--transport", "http")
    inspector = (str(programs / "mcp-inspector"), "--cli", "--protocol-era", era, *target)
    # which also looks for schemas that some models reject
    listed = run(programs, tmp_path, *inspector, "--method", "tools/list", "--strict")
    assert listed.returncode == 0, listed.stderr
    assert [one["name"] for one in json.loads(listed.stdout)["tools"]][:2] == ["search", "more"]
    called = run(
        programs,
        tmp_path,
        *inspector,
        "--method",
        "tools/call",
        "--tool-name",
        "search",
        "--tool-arg",
        "query=tomatoes",
    )
    assert json.loads(called.stdout)["structuredContent"]["hits"][0]["at"] == "garden.md:1", (
        called.stderr
    )


@pytest.mark.parametrize("scenario", APPLICABLE)
def test_the_conformance_suite_passes(
    programs: Path, address: str, tmp_path: Path, scenario: str
) -> None:
    result = run(
        programs,
        tmp_path,
        str(programs / "node"),
        str(programs / "conformance"),
        "server",
        "--url",
        address,
        "--scenario",
        scenario,
    )
    assert result.returncode == 0, result.stdout[-2000:]
