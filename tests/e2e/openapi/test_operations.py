"""Every operation of the OpenAPI document on a running platform: each succeeds, and answers only as documented.

The first calls are those of the plan: they fill an organization with one of everything, and bring each operation to a
success by the links of the document. Generated calls follow, valid and invalid ones, on the same organization.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import memory
from tests.e2e.openapi import plan
from tests.e2e.openapi.calls import Operations, checks, library
from tests.e2e.openapi.plan import Call, Run
from tests.e2e.openapi.world import World, running_world, unclaimed_api

from moorage.core.http.models import MAX_WAIT_S
from moorage.docs.reference import openapi_document

pytestmark = pytest.mark.group("openapi")

# Operations that the run cannot bring to a success, each with the reason in a sentence.
UNREACHED: dict[str, str] = {
    "begin_sign_in": "needs an identity provider; tests/accounts/identity/openid has one",
    "exchange_code": "needs an identity provider; tests/accounts/identity/openid has one",
    "retry_job": "no job of the run fails; tests/accounts/operator makes some that do",
    "discard_job": "no job of the run fails; tests/accounts/operator makes some that do",
    "remove_machine": "no machine of the run is gone; tests/e2e/machines removes one",
}
DOCUMENT = openapi_document()
# A stream does not end by itself; tests/core/http/test_sse.py follows them.
CALLED = [
    operation["operationId"]
    for path, operations in DOCUMENT["paths"].items()
    for operation in operations.values()
    if not path.endswith("/stream")
]
REPEATABLE: dict[str, Any] = {
    "derandomize": True,
    "database": None,
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
}
NOTHING = 10**9  # No resource has such an id.
NOWHERE = "127.0.0.1:9/none"  # An image of a registry that is not there.


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with memory.folder("moorage-openapi-") as folder, running_world(folder) as made:
        yield made


@pytest.fixture(scope="module")
def run(world: World, tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Run:
    """The run of the plan. A call that fails is noted, and the run goes on."""
    document = requests.get(f"{world.platform.url}/v1/openapi.json", timeout=20).json()
    made = Run(Operations(world.platform.url, document), world)
    for operation_id in plan.order(made.operations):
        if operation_id not in UNREACHED:
            _try(made, operation_id, plan.call_of(operation_id))
    with unclaimed_api(tmp_path_factory.mktemp("unclaimed"), sqlite_template) as (url, setup_token):
        made.operations.url = url
        body = {"setup_token": setup_token, "email": "ada@example.com", "name": "Ada Moor"}
        _try(made, plan.ELSEWHERE, Call(body=plan.always(body), who=plan.NOBODY))
        made.operations.url = world.platform.url
    return made


def _try(run: Run, operation_id: str, call: Call) -> None:
    try:
        plan.perform(run, operation_id, call)
    except Exception as error:  # noqa: BLE001 - the report names every operation that failed, not only the first
        run.problems[operation_id] = f"{type(error).__name__}: {error}"


def test_every_operation_succeeds_and_answers_as_the_document_says(run: Run) -> None:
    missed = [each for each in run.operations.missed() if each not in UNREACHED]

    assert run.report(missed) == ""
    assert run.report(run.problems) == ""
    assert set(UNREACHED) <= set(run.operations.missed())


def test_the_run_is_still_who_it_was_and_has_what_it_made(run: Run) -> None:
    for operation_id in ("whoami", "read_org", "read_account", "read_project", "read_database", "read_function"):
        plan.perform(run, operation_id, plan.call_of(operation_id))

    assert run.answer("whoami").data["orgId"] == run.org


@pytest.mark.deep
@pytest.mark.parametrize("examples", [2, 12], ids=["few", "many"])
@pytest.mark.parametrize("operation_id", CALLED)
def test_generated_calls_meet_only_answers_of_the_document(run: Run, operation_id: str, examples: int) -> None:
    operation = run.operations.by_id[operation_id]
    is_empty = not operation.body and not list(operation.iter_parameters())
    known = {} if operation_id in plan.ENDINGS else run.operations.paths.get(operation_id, {})
    headers = run.headers(operation_id)
    statuses: list[int] = []

    def call_and_validate(case: Any, is_known: bool) -> None:
        path = {**(case.path_parameters or {}), **(known if is_known else {})}
        case.path_parameters = _harmless_path(operation_id, path)
        case.body = _harmless_body(case.body)
        case.query = _quick_query(case.query)
        sent = {**headers, **({"X-Organization-Id": run.org} if is_known else {})}
        url, session = run.operations.url, run.operations.session
        reply = case.call_and_validate(url, session=session, headers=sent, checks=checks(), timeout=60)
        statuses.append(reply.status_code)

    modes = library().GenerationMode
    for mode in modes:
        if not (is_empty and mode is modes.NEGATIVE):
            strategy = operation.as_strategy(generation_mode=mode)
            test = given(case=strategy, is_known=st.booleans())(call_and_validate)
            settings(max_examples=examples, **REPEATABLE)(test)()

    assert statuses


def _harmless_path(operation_id: str, path: dict[str, Any]) -> dict[str, Any]:
    """Let an operation that ends something name nothing that exists: the run would end itself."""
    if operation_id not in plan.ENDINGS:
        return path
    return {name: NOTHING + value % NOTHING if isinstance(value, int) else value for name, value in path.items()}


def _quick_query(query: Any) -> Any:
    """Let no generated call wait long for the work that it starts."""
    wait = query.get("wait") if query else None
    is_long = isinstance(wait, int) and not isinstance(wait, bool) and 1 < wait <= MAX_WAIT_S
    return {**query, "wait": 1} if is_long else query


def _harmless_body(body: Any) -> Any:
    """Let nothing that is generated lead to another machine."""
    if not isinstance(body, dict):
        return body
    changed = dict(body)
    for name, value in body.items():
        if name == "publicImage" and isinstance(value, str):
            changed[name] = NOWHERE
        elif isinstance(value, str) and re.match(r"\w+://", value):
            changed[name] = "http://127.0.0.1:9/"
    return changed
