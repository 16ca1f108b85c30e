"""The description of the service is complete, and true: what it allows is answered, what it does
not is refused, and every answer is as it says.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

import unspool
from services import serving
from support import doc, settings_for
from unspool.interfaces.http import openapi, requests
from unspool.interfaces.http.app import create_app
from unspool.interfaces.http.responses import encode


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    return openapi.describe(create_app(unspool.Settings()), has_keys=True)


def operations(description: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_it_is_openapi(description: dict[str, Any]) -> None:
    validate(json.loads(encode(description)))


def test_every_operation_has_its_name_theme_words_and_keys(description: dict[str, Any]) -> None:
    found = list(operations(description))
    assert len({operation["operationId"] for _, _, operation in found}) == len(found) == 38
    for path, _, operation in found:
        assert operation["summary"]
        assert operation["description"]
        assert set(operation["tags"]) <= set(openapi.TAGS)
        assert ("security" in operation) == (path not in ("/health", "/ready"))


def test_every_answer_has_an_example_that_is_one(description: dict[str, Any]) -> None:
    for _, _, operation in operations(description):
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                name = response["$ref"].rpartition("/")[2]
                response = description["components"]["responses"][name]
            assert "X-Request-ID" in response["headers"]
            for media_type, content in response["content"].items():
                assert content["example"], (operation["operationId"], media_type)
                if media_type == "application/json":
                    schema = {**content["schema"], "components": description["components"]}
                    Draft202012Validator(schema).validate(content["example"])


def test_every_body_has_an_example_that_is_one_and_takes_nothing_that_is_not_named(
    description: dict[str, Any],
) -> None:
    bodies = {
        operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for _, _, operation in operations(description)
        if "requestBody" in operation
    }
    assert len(bodies) == 14
    for name in bodies:
        schema = description["components"]["schemas"][name]
        assert schema["additionalProperties"] is False
        for example in schema["examples"]:
            getattr(requests, name).model_validate(example)


def test_every_error_names_its_codes(description: dict[str, Any]) -> None:
    failures = description["components"]["responses"]
    assert "`throttled`" in failures["Error429"]["description"]
    assert set(failures["Error429"]["headers"]) == {"X-Request-ID", "Retry-After"}
    assert {"`host`", "`overdue`", "`bug`"} <= {
        word for one in failures.values() for word in one["description"].split(", ")
    }
    for _, _, operation in operations(description):
        assert {"403", "421", "500"} <= set(operation["responses"])
        assert ("requestBody" in operation) == ("413" in operation["responses"])


def test_random_requests_find_no_difference_from_the_description(tmp_path: Path) -> None:
    """A short run of what was run for long by hand: no 5xx, nothing undocumented, nothing
    invalid accepted, nothing valid refused.
    """
    settings = settings_for(tmp_path / "catalog.db")
    with unspool.open(settings=settings) as corpus:
        corpus.put(*(doc(f"{number}.md", f"walrus number {number}") for number in range(12)))
    with serving(settings) as address:
        flags = [
            "--checks",
            "all",
            "--phases",
            "examples,fuzzing",
            "--max-examples",
            "2",
            "--seed",
            "7",
            "--no-color",
            "--warnings",
            "off",
        ]
        command = [
            sys.executable,
            "-m",
            "schemathesis.cli",
            "run",
            f"{address}/openapi.json",
            *flags,
            "--suppress-health-check",
            "all",
        ]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_page_about_it_names_every_route(description: dict[str, Any]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "http.md").read_text(encoding="utf-8")
    assert [
        path
        for path, method, _ in operations(description)
        if f"{method.upper()} {path}`" not in page
    ] == []
