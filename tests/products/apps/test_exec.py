"""One-off commands: complete and streamed output, and the ways they end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.builders import make_member, make_org, make_token, make_user
from tests.client import Client
from tests.core.http.lab import Guest, one_store, texts_in_store

from moorage.accounts.identity.gate import IdentityGate
from moorage.accounts.identity.organizations.service import Organization
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.sessions.session_tokens import Sessions
from moorage.accounts.identity.users import User
from moorage.core.audit import service as audit
from moorage.core.db.store import Database
from moorage.core.http.dispatch import Dispatcher
from moorage.core.kit.masking import Masker
from moorage.core.telemetry import Telemetry
from moorage.errors import Conflict, NotFound, RateLimited
from moorage.products.apps.exec.routes import make_router
from moorage.products.apps.exec.service import CommandSlots, MaskedText, Prepared, Tail
from moorage.runtime.engines.ports import CommandEnd, OutputStream
from moorage.runtime.sandbox.runs import main as sandbox
from moorage.runtime.sandbox.runs.main import Job

pytestmark = pytest.mark.anyio

UID = 192_999
SECRET = "correct-horse-battery"
EXEC = "/v1/projects/harbor/exec"
EVENTS = {"accept": "text/event-stream"}


@dataclass
class Shop:
    """A project `harbor` with an empty folder as its release, behind the real gate."""

    work: Path
    asgi: Any
    org: Organization
    owner: User
    token: str
    prepared: list[tuple[int, str, str]] = field(default_factory=list)

    @property
    def client(self) -> Client:
        return Client(self.asgi, token=self.token)

    async def run(self, command: str, **more: Any) -> Any:
        return (await self.client.post(EXEC, json={"command": command, **more})).data

    async def come(self, command: str, **headers: str) -> Caller:
        return await Caller.come_to(self, command, headers)

    def is_running(self, command: str) -> bool:
        return any(command in _command_of(pid) for pid in os.listdir("/proc") if pid.isdigit())


class Caller(Guest):
    """A client that has sent a command, and may hang up before it ends."""

    def __init__(self, shop: Shop, command: str, headers: dict[str, str]) -> None:
        super().__init__(shop.asgi, EXEC)
        self._request = json.dumps({"command": command}).encode()
        sent = {"authorization": f"Bearer {shop.token}", "content-type": "application/json", **headers}
        sent["content-length"] = str(len(self._request))
        self.scope |= {"method": "POST", "headers": [(key.encode(), sent[key].encode()) for key in sent]}

    @classmethod
    async def come_to(cls, shop: Shop, command: str, headers: dict[str, str]) -> Caller:
        caller = cls(shop, command, headers)
        await caller.come()
        return caller

    async def _receive(self) -> dict[str, Any]:
        if self._request:
            body, self._request = self._request, b""
            return {"type": "http.request", "body": body, "more_body": False}
        return await super()._receive()


def _command_of(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


@pytest.fixture
def work() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="exec-") as folder:
        work = Path(folder, "work")
        work.mkdir()
        Path(folder).chmod(0o755)
        if os.getuid() == 0:
            os.chown(work, UID, UID)
        yield work


@pytest.fixture
async def shop(db: Database, work: Path) -> Shop:
    async def prepare(org_id: int, name: str, command: str, timeout_s: float) -> Prepared:
        made.prepared.append((org_id, name, command))
        if name == "unknown":
            raise NotFound("There is no project of this name")
        if name == "asleep":
            raise Conflict("Nothing of this project has been deployed yet")
        uid = UID if os.getuid() == 0 else 0
        env = {"PATH": "/usr/bin:/bin", "TOKEN": SECRET}
        job = Job(
            ["/bin/sh", "-c", command],
            str(work),
            env=env,
            uid=uid,
            network=False,
            timeout_s=timeout_s,
            output_bytes=16 * 2**20,
        )

        async def run(put: Callable[[OutputStream, bytes], None]) -> CommandEnd:
            finished = await sandbox.run(job, put)
            return CommandEnd(finished.code, finished.why)

        return Prepared(run, [SECRET], timeout_s)

    owner = await make_user(db)
    org = await make_org(db, owner)
    router = make_router(db, prepare)
    asgi = Dispatcher(router.routes, db, IdentityGate(Sessions(db.env)), Telemetry(quiet=True))
    made = Shop(work, asgi, org, owner, await make_token(db, owner, org.id))
    return made


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.01)


def events_of(text: str) -> list[tuple[str, Any]]:
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


@one_store
async def test_a_command_runs_to_its_end_and_its_streams_come_apart(shop: Shop) -> None:
    done = await shop.run("pwd; echo warning >&2; exit 3")

    assert done == {"exitCode": 3, "reason": None, "stdout": "/work\n", "stderr": "warning\n", "truncated": False}
    assert shop.prepared == [(shop.org.id, "harbor", "pwd; echo warning >&2; exit 3")]


@one_store
async def test_a_command_that_takes_too_long_is_ended_with_the_reason(shop: Shop) -> None:
    done = await shop.run("echo begun; sleep 60", timeoutSeconds=1)

    assert done["exitCode"] == 124
    assert done["reason"] == "it took too long"
    assert done["stdout"] == "begun\n"


@one_store
async def test_the_newest_megabyte_is_kept(shop: Shop) -> None:
    done = await shop.run("head -c 3000000 /dev/zero | tr '\\0' x; echo the end; echo short >&2")

    assert done["truncated"] is True
    assert len(done["stdout"]) == 2**20
    assert done["stdout"].endswith("xxxthe end\n")
    assert done["stderr"] == "short\n"


@one_store
async def test_output_is_streamed_as_it_is_printed(shop: Shop) -> None:
    guest = await shop.come("echo one; while [ ! -e go ]; do sleep 0.02; done; printf two >&2; exit 4", **EVENTS)

    seen = events_of(await guest.sees("one"))
    (shop.work / "go").touch()
    all_of_it = events_of(await guest.ends())

    assert seen == [("output", {"stream": "stdout", "text": "one\n"})]
    assert all_of_it[1:] == [
        ("output", {"stream": "stderr", "text": "two"}),
        ("exit", {"exitCode": 4, "reason": None}),
    ]


@one_store
async def test_a_listener_that_goes_away_ends_the_command(shop: Shop) -> None:
    guest = await shop.come("echo begun; sleep 61.5", **EVENTS)
    await guest.sees("begun")
    was_running = shop.is_running("sleep 61.5")

    await guest.leaves()

    assert was_running
    assert not shop.is_running("sleep 61.5")
    assert (await shop.run("echo free"))["stdout"] == "free\n"


@one_store
async def test_a_client_that_waits_for_the_end_and_goes_away_ends_the_command_too(shop: Shop) -> None:
    guest = await shop.come("sleep 62.5")
    await until(lambda: shop.is_running("sleep 62.5"))

    await guest.leaves()

    assert guest.sent.messages == []
    assert not shop.is_running("sleep 62.5")


@one_store
async def test_secrets_are_masked_in_what_is_printed_however_it_is_cut_up(shop: Shop) -> None:
    in_two = "printf 'my correct-horse'; sleep 0.3; printf -- '-battery!\\n'; echo $TOKEN >&2"
    whole = await shop.run(in_two)
    guest = await shop.come(in_two, **EVENTS)
    streamed = events_of(await guest.ends())

    assert whole["stdout"] == "my ****!\n"
    assert whole["stderr"] == "****\n"
    said = "".join(data["text"] for name, data in streamed if name == "output" and data["stream"] == "stdout")
    assert said == "my ****!\n"
    assert SECRET not in guest.sent.text


@one_store
async def test_who_ran_what_is_recorded_without_secrets(shop: Shop, db: Database) -> None:
    await shop.run(f"true {SECRET} {'x' * 300}")

    row = (await db.read(lambda tx: audit.latest(tx, shop.org.id, before=None, most=1)))[0]
    assert (row.action, row.target_kind, row.target, row.user_id) == (
        "project.command_run",
        "project",
        "harbor",
        shop.owner.id,
    )
    assert json.loads(row.details)["command"] == f"true **** {'x' * 190}"
    assert SECRET not in await texts_in_store(db)


@one_store
async def test_only_four_commands_of_an_organization_run_at_once(shop: Shop, db: Database) -> None:
    guests = [await shop.come("echo begun; sleep 63", **EVENTS) for _ in range(4)]
    for guest in guests:
        await guest.sees("begun")
    stranger = await make_user(db)
    other = await make_org(db, stranger, name="Elsewhere")

    refused = await shop.client.post(EXEC, json={"command": "echo fifth"})
    of_others = await shop.client.post(
        EXEC, json={"command": "echo mine"}, token=await make_token(db, stranger, other.id)
    )
    await asyncio.gather(*(guest.leaves() for guest in guests))
    after = await shop.run("echo sixth")

    assert refused.status == 429
    assert refused.error["code"] == "rate_limited"
    assert refused.headers["retry-after"] == "5"
    assert of_others.data["stdout"] == "mine\n"
    assert after["stdout"] == "sixth\n"


@one_store
async def test_a_place_is_free_again_after_a_refusal_and_after_a_client_that_left_at_once(shop: Shop) -> None:
    for name in ("unknown", "asleep") * 3:
        await shop.client.post(f"/v1/projects/{name}/exec", json={"command": "true"})
    for _ in range(6):
        await (await shop.come("echo never mind", **EVENTS)).leaves()

    assert (await shop.run("echo fine"))["stdout"] == "fine\n"


@one_store
async def test_a_place_is_free_again_after_a_client_that_left_before_the_first_byte(shop: Shop) -> None:
    async def send(message: dict[str, Any]) -> None:
        raise ConnectionResetError

    for _ in range(6):
        caller = Caller(shop, "echo never mind", EVENTS)
        with contextlib.suppress(ConnectionResetError):
            await shop.asgi(caller.scope, caller._receive, send)

    assert (await shop.run("echo fine"))["stdout"] == "fine\n"


@one_store
async def test_what_cannot_be_run_is_refused(shop: Shop) -> None:
    unknown = await shop.client.post("/v1/projects/unknown/exec", json={"command": "true"})
    asleep = await shop.client.post("/v1/projects/asleep/exec", json={"command": "true"}, headers=EVENTS)
    empty = await shop.client.post(EXEC, json={"command": ""})
    long = await shop.client.post(EXEC, json={"command": "x" * 2001, "timeoutSeconds": 3601})

    assert [unknown.status, asleep.status, empty.status, long.status] == [404, 409, 400, 400]
    assert set(long.error["fields"]) == {"command", "timeoutSeconds"}


@one_store
async def test_a_viewer_may_not_run_commands(shop: Shop, db: Database) -> None:
    viewer = await make_member(db, shop.org, Role.VIEWER)

    reply = await shop.client.post(EXEC, json={"command": "true"}, token=await make_token(db, viewer, shop.org.id))

    assert reply.status == 403
    assert shop.prepared == []


@one_store
async def test_the_same_key_runs_a_command_once_and_keeps_nothing_of_what_it_printed(shop: Shop, db: Database) -> None:
    key = {"idempotency-key": "migration-7"}
    first = await shop.client.post(EXEC, json={"command": "echo printed-by-it"}, headers=key)
    again = await shop.client.post(EXEC, json={"command": "echo printed-by-it"}, headers=key)
    streamed = await shop.client.post(EXEC, json={"command": "true"}, headers={"idempotency-key": "other", **EVENTS})

    assert first.data["stdout"] == "printed-by-it\n"
    assert again.status == 409
    assert len(shop.prepared) == 1
    assert '"printed-by-it' not in await texts_in_store(db)
    assert streamed.status == 400
    assert "Idempotency-Key" in streamed.error["fields"]


def test_text_is_masked_and_decoded_over_pieces_of_any_size() -> None:
    data = f"før {SECRET} og {SECRET[:-1]} – slutt".encode() + b"\xff"

    for size in (1, 2, 7, len(data)):
        text = MaskedText(Masker([SECRET]))
        said = "".join(text.feed(data[at : at + size]) for at in range(0, len(data), size)) + text.end()

        assert said == f"før **** og {SECRET[:-1]} – slutt\ufffd"


def test_the_end_of_a_text_is_never_cut_within_a_character() -> None:
    tail = Tail(limit=5)
    for letter in "abcåøæ":
        tail.add(letter)

    assert tail.text() == "øæ"
    assert tail.is_cut


def test_a_slot_released_twice_is_released_once() -> None:
    slots = CommandSlots(limit=2)
    first = slots.acquire(1)
    slots.acquire(1)

    first()
    first()
    slots.acquire(1)

    with pytest.raises(RateLimited):
        slots.acquire(1)
