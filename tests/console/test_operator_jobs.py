"""Jobs that failed, on the page of operators, in a real browser."""

from __future__ import annotations

import msgspec
import pytest
from playwright.sync_api import expect
from tests.console.accounts import in_store
from tests.console.support import Console, Visit

from moorage.core import jobs
from moorage.core.db.store import Database

pytestmark = pytest.mark.group("console")


class Sail(msgspec.Struct, frozen=True, tag="console.sail"):
    """A job of a kind that the platform does not know, so that it fails."""

    ship: str


async def add(db: Database) -> None:
    await db.write(lambda tx: jobs.add(tx, Sail("<img src=x onerror=alert(1)>"), max_attempts=1))


def test_a_failed_job_is_tried_again_and_then_discarded(console: Console, visit: Visit) -> None:
    in_store(console, add)
    visit.sign_in()
    visit.settle("/operator/jobs")
    row = visit.page.get_by_role("row").filter(has_text="console.sail")
    expect(row).to_contain_text("no handler for jobs of kind console.sail")
    expect(row).to_contain_text("1 / 1")
    row.get_by_role("button", name="Retry").click()

    expect(visit.page.get_by_text("The job runs again")).to_be_visible()
    expect(row).to_contain_text("no handler")  # It has failed again.
    row.get_by_role("button", name="Discard").click()
    dialog = visit.page.get_by_role("dialog")
    expect(dialog).to_contain_text("console.sail")
    dialog.get_by_role("button", name="Discard").click()
    expect(row).to_have_count(0)
    queues = console.running.get("/v1/operator/queues", token=console.running.session())[1]["data"]["items"]
    assert "console.sail" not in [each["kind"] for each in queues]
