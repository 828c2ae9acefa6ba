"""Route of one-off commands, with streamed or complete output."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, aclosing
from typing import cast

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.audit import service as audit
from moorage.core.audit.service import AuditTarget
from moorage.core.db.store import Database
from moorage.core.http import sse
from moorage.core.http.answer import Answer, Stream, failure
from moorage.core.http.request import Request, finish_unless_gone
from moorage.core.http.route import Router
from moorage.core.kit.events import Event
from moorage.core.kit.masking import Masker
from moorage.errors import RateLimited, bad_field
from moorage.products.apps.exec import service as commands
from moorage.products.apps.exec.schemas import CommandExit, CommandOutput, CommandResult, RunCommandInput
from moorage.products.apps.exec.service import CommandSlots, Kept, Prepare, Prepared
from moorage.runtime.engines.ports import CommandEnd

RETRY_AFTER_S = 5
AUDITED_CHARS = 200
SANDBOX_OVERHEAD_S = 60.0  # Creating and removing the sandbox add to the time of the command.


def make_router(db: Database, prepare: Prepare) -> Router:
    router = Router("Projects")
    slots = CommandSlots()

    # The output may contain secrets, so the response is not stored for idempotent repeats.
    @router.post("/projects/{name}/exec", min_role=Role.MEMBER, secret=True)
    async def run_command(caller: Caller, request: Request, name: str, body: RunCommandInput) -> CommandResult:
        """Run a command in a fresh sandbox of the live release, with its environment.

        With `Accept: text/event-stream` the answer is a stream: `output` events with `stream` and `text` while the
        command prints, and one `exit` with `exitCode` and `reason` at the end. The command is killed when the client
        disconnects.
        """
        is_streamed = "text/event-stream" in (request.header(b"accept") or "").lower()
        if is_streamed and request.header(b"idempotency-key") is not None:
            raise bad_field("Idempotency-Key", "cannot be used with a stream, which is never sent twice")
        try:
            release = slots.acquire(caller.org_id)
        except RateLimited as error:
            return cast(CommandResult, _busy(request, error))
        with ExitStack() as stack:
            stack.callback(release)
            command = await _prepare_command(db, prepare, caller, name, body)
            if not is_streamed:
                return _result(await finish_unless_gone(request, commands.finish(command)))
            stack.pop_all()  # From here on the stream holds the slot.
        # The return type documents the usual success; the dispatcher also accepts a stream.
        return cast(CommandResult, _stream(command, release))

    return router


async def _prepare_command(
    db: Database, prepare: Prepare, caller: Caller, name: str, body: RunCommandInput
) -> Prepared:
    """Prepare a command and record it in the audit log."""
    command = await prepare(caller.org_id, name, body.command, float(body.timeout_seconds))
    shown = Masker(command.hidden)(body.command)[:AUDITED_CHARS]
    actor, target = caller.as_actor, AuditTarget("project", name)
    await db.write(lambda tx: audit.record(tx, caller.org_id, actor, "project.command_run", target, command=shown))
    return command


def _result(kept: Kept) -> CommandResult:
    return CommandResult(kept.end.code, kept.end.why, kept.stdout, kept.stderr, kept.is_cut)


def _stream(command: Prepared, release: Callable[[], None]) -> Stream:
    events = _events(command, release)
    # A client may disconnect before the first event is read; then the generator's `finally` never runs.
    weakref.finalize(events, release)
    return sse.stream(events, longest_s=command.timeout_s + SANDBOX_OVERHEAD_S)


async def _events(command: Prepared, release: Callable[[], None]) -> AsyncIterator[Event]:
    try:
        async with aclosing(commands.follow(command)) as output:  # type: ignore[type-var]
            async for each in output:
                if isinstance(each, CommandEnd):
                    yield Event("exit", CommandExit(each.code, each.why))
                else:
                    yield Event("output", CommandOutput(each.stream, each.text))
    finally:
        release()


def _busy(request: Request, error: RateLimited) -> Answer:
    busy = failure(error, request.trace_id)
    busy.headers.append((b"retry-after", b"%d" % RETRY_AFTER_S))
    return busy
