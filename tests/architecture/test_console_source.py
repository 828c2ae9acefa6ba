"""The source of the console: it calls every route but those listed here, and its words stand in one folder."""

from __future__ import annotations

import re

from tests.architecture.source import ROOT

from moorage.docs.reference import openapi_document

SOURCES = ROOT / "console" / "src"
GENERATED = "schema.d.ts"
METHODS = ("get", "post", "put", "patch", "delete")
CALL = re.compile(r'\b(?:api\.|eventsOf\("|send\(")(get|post|put|patch|delete)(?:\(|",)\s*["`](/v1/[^"`?]*)')
READ = re.compile(r'\b(?:useResource|useLogStream|follow)\(\s*["`](/v1/[^"`?]*)')
# Two English words or more, in quotes, between tags or in an attribute.
WORDS = re.compile(r'["\'>][A-Z][a-z]+ [a-z]+(?: [a-z]+)*[.<"\']|(?:aria-label|title)="[A-Z][a-z]+"')
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# The page of all components for developers, the words themselves, and code that people start from.
WITHOUT_WORDS = ("components.tsx", "text", "templates.ts")
# Routes that no page needs, with the reason.
ELSEWHERE = {
    "post /api/v1/webhook/github-events": "the code host calls it",
    "post /webhook": "the payment provider calls it",
    "get /v1/github/callback": "the code host leads the browser to it",
    "get /health": "for probes; /operator shows the state of the platform",
    "get /v1/openapi.json": "the page /docs reads it",
    "get /v1/cronjobs/executions/{uuid}/logs": "the page of a run reads the stream, which has the same lines",
    "get /v1/functions/token": "answers a masked token; /settings/tokens has tokens that work",
    "get /v1/registries/{registry_id}": "the list has all of it",
    "post /v1/databases/{name}/upgrade": "the former name of change-tier",
}


def without_names(path: str) -> str:
    """Return a path with `{}` for each parameter, as templates and documents spell them differently."""
    return re.sub(r"\$?\{[^}]*\}", "{}", path)


def called() -> set[str]:
    """Return method and path of each call, with `{}` for parameters."""
    found = set()
    for file in SOURCES.rglob("*.ts*"):
        if file.name == GENERATED:
            continue
        code = file.read_text()
        found |= {f"{method} {without_names(path)}" for method, path in CALL.findall(code)}
        found |= {f"get {without_names(path)}" for path in READ.findall(code)}
    return found


def documented() -> dict[str, str]:
    """Return the routes of the API by method and path without names."""
    paths = openapi_document()["paths"]
    routes = [f"{method} {path}" for path, operations in paths.items() for method in operations if method in METHODS]
    return {without_names(route): route for route in routes}


def test_the_console_calls_every_route_or_says_why_not() -> None:
    calls = called()

    missing = {route for key, route in documented().items() if key not in calls}

    assert missing == set(ELSEWHERE)


def test_the_console_calls_no_route_that_does_not_exist() -> None:
    routes = documented()

    assert {call for call in called() if call not in routes} == set()


def test_words_that_people_read_stand_in_the_folder_of_texts() -> None:
    files = [file for file in SOURCES.rglob("*.ts*") if not {file.name, file.parent.name} & {*WITHOUT_WORDS, GENERATED}]

    found = {file.name: WORDS.findall(COMMENT.sub("", file.read_text())) for file in files}

    assert {name: words for name, words in found.items() if words} == {}
