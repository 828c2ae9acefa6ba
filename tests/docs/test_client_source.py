"""The generated part of the client is the API of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

import moorage.client
from moorage.docs import reference
from moorage.docs.client_source import write
from moorage.docs.client_source.operations import short_name
from moorage.docs.client_source.types import camel, snake

COMMITTED = Path(moorage.client.__file__).parent


def test_the_committed_client_is_generated_from_the_routes(tmp_path: Path) -> None:
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    (tmp_path / "pyproject.toml").write_text(pyproject.read_text())  # the formatter's settings
    folder = tmp_path / "src" / "moorage" / "client"

    made = {path.relative_to(folder): path.read_text() for path in write.write(reference.openapi_document(), folder)}

    committed = {
        path.relative_to(COMMITTED): path.read_text()
        for package in write.PACKAGES
        for path in (COMMITTED / package).glob("*.py")
    }
    stale = sorted(str(name) for name in made.keys() | committed.keys() if made.get(name) != committed.get(name))
    assert not stale, f"src/moorage/client is stale ({', '.join(stale)}): run make docs"


@pytest.mark.parametrize(
    ("operation", "tag", "expected"),
    [
        ("list_databases", "Databases", "list"),
        ("read_database_metrics_summary", "Databases", "read_metrics_summary"),
        ("roll_function_back", "Functions", "roll_back"),
        ("create_scheduled_function", "Scheduled functions", "create"),
        ("deploy_project", "Deployments", "deploy_project"),
        ("whoami", "Identity", "whoami"),
    ],
)
def test_a_method_leaves_out_the_noun_of_its_group(operation: str, tag: str, expected: str) -> None:
    assert short_name(operation, tag) == expected


@pytest.mark.parametrize("name", ["projectId", "nextCursor", "url", "ignoreTlsError", "p95"])
def test_names_of_the_api_survive_the_way_to_python_and_back(name: str) -> None:
    assert camel(snake(name)) == name


def test_a_keyword_of_python_gets_an_underscore() -> None:
    assert snake("from") == "from_"
