"""Dispatch of GitHub's events to listeners: once, in the transaction of the job."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.accounts.webhooks.deliveries import SECRETS, organization, send_github, stored_events
from tests.builders import make_org
from tests.client import Client
from tests.conftest import RunJobs

from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.webhooks import jobs as webhook_jobs
from moorage.accounts.webhooks.jobs import handle
from moorage.accounts.webhooks.service import GithubEvent, GithubEvents, HandleWebhookEvent
from moorage.accounts.webhooks.states import WebhookStatus
from moorage.app import App
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane, kind_of
from moorage.core.jobs.tables import CLAIM

pytestmark = [pytest.mark.anyio, pytest.mark.settings(**SECRETS)]

Listen = Callable[[str], list[GithubEvent]]


@pytest.fixture
def github(app: App) -> GithubEvents:
    """The registry of the application's worker, without listeners."""
    del app.handlers.by_kind[kind_of(HandleWebhookEvent)]
    return webhook_jobs.register(app.handlers)


@pytest.fixture
def listen(github: GithubEvents) -> Listen:
    def start(event: str) -> list[GithubEvent]:
        heard: list[GithubEvent] = []
        github.listen(event, lambda _tx, told: heard.append(told))
        return heard

    return start


async def test_a_listener_hears_an_event_once_however_often_it_is_delivered(
    api: Client, run_jobs: RunJobs, listen: Listen
) -> None:
    heard = listen("pull_request")
    payload = {"action": "opened", "number": 7, "repository": {"id": 1}}

    await asyncio.gather(*(send_github(api, payload, event="pull_request", delivery="d-1") for _ in range(10)))
    await run_jobs()
    await send_github(api, payload, event="pull_request", delivery="d-1")
    await run_jobs()

    assert heard == [GithubEvent("pull_request", "opened", "d-1", payload)]


async def test_everybody_who_registered_for_an_event_hears_it_and_nobody_else(
    api: Client, db: Database, run_jobs: RunJobs, listen: Listen
) -> None:
    first, second, other = listen("push"), listen("push"), listen("pull_request")

    await send_github(api, {"ref": "refs/heads/main"})
    await run_jobs()

    assert (len(first), len(second), other) == (1, 1, [])
    assert first[0].action is None
    assert [event.status for event in await stored_events(db)] == [WebhookStatus.HANDLED]


async def test_a_ping_needs_no_listener(api: Client, db: Database, run_jobs: RunJobs) -> None:
    reply = await send_github(api, {"zen": "Keep it logically awesome."}, event="ping")
    await run_jobs()

    assert reply.json == {"received": True}
    assert [(event.kind, event.status) for event in await stored_events(db)] == [("ping", WebhookStatus.IGNORED)]


async def test_events_of_one_repository_are_told_in_the_order_they_came(
    api: Client, run_jobs: RunJobs, listen: Listen
) -> None:
    heard = listen("push")

    for number in range(6):
        await send_github(api, {"number": number, "repository": {"id": 9}}, delivery=f"d-{number}")
    await run_jobs()

    assert [event.payload["number"] for event in heard] == [0, 1, 2, 3, 4, 5]


async def test_two_events_of_one_repository_are_never_at_work_at_once(api: Client, db: Database) -> None:
    for delivery, repository in (("d-1", {"id": 9}), ("d-2", {"id": 9}), ("d-3", {"id": 10}), ("d-4", None)):
        await send_github(api, {"repository": repository}, delivery=delivery)

    claimed = await db.write(
        lambda tx: tx.all(
            CLAIM, machine_id=0, lane=Lane.INTERACTIVE, now=tx.now, until=tx.now + 1000, lease="a worker", most=10
        )
    )

    handled = sorted(msgspec.json.decode(job.payload, type=HandleWebhookEvent).event_id for job in claimed)
    names = {event.id: event.event_id for event in await stored_events(db)}
    assert [names[row_id] for row_id in handled] == ["d-1", "d-3", "d-4"]


async def test_a_listener_that_raises_undoes_what_others_did_for_the_same_event(
    api: Client, db: Database, run_jobs: RunJobs, github: GithubEvents
) -> None:
    org = await make_org(db, name="Before")

    def rename(tx: Tx, _: GithubEvent) -> None:
        orgs.rename(tx, org.id, Actor(None, "GitHub"), "After")

    def fail(_tx: Tx, _: GithubEvent) -> None:
        raise LookupError("no such repository")

    github.listen("push", rename)
    github.listen("push", fail)
    await send_github(api, {})
    await run_jobs()

    assert (await organization(db, org)).name == "Before"
    assert [event.status for event in await stored_events(db)] == [WebhookStatus.FAILED]


async def test_a_payload_is_parsed_before_the_transaction_of_its_event(
    api: Client, run_jobs: RunJobs, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = listen("push")
    await send_github(api, {"ref": "refs/heads/main"})
    steps: list[str] = []
    event_loop, handle_event, parse = threading.get_ident(), webhook_jobs.handle, json.loads

    def spy_parse(text: str) -> Any:
        steps.append("parsed in the event loop" if threading.get_ident() == event_loop else "parsed in a thread")
        return parse(text)

    def spy_handle(tx: Tx, job: HandleWebhookEvent, github: GithubEvents, payload: dict[str, Any]) -> None:
        steps.append("transaction began")
        handle_event(tx, job, github, payload)
        steps.append("transaction ended")

    monkeypatch.setattr(webhook_jobs, "handle", spy_handle)
    monkeypatch.setattr(json, "loads", spy_parse)
    await run_jobs()

    assert steps == ["parsed in a thread", "transaction began", "transaction ended"]
    assert [event.payload for event in heard] == [{"ref": "refs/heads/main"}]


async def test_an_event_that_was_handled_is_not_handled_again(
    api: Client, db: Database, run_jobs: RunJobs, github: GithubEvents, listen: Listen
) -> None:
    heard = listen("push")
    await send_github(api, {})
    await run_jobs()
    (stored,) = await stored_events(db)

    await db.write(lambda tx: handle(tx, HandleWebhookEvent(stored.provider, stored.id), github, {}))
    await db.write(lambda tx: handle(tx, HandleWebhookEvent(stored.provider, stored.id + 1), github, {}))

    assert len(heard) == 1
