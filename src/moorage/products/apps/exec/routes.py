"""The route of one-off commands, which answers with a stream of events, or once when all is over."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, aclosing
from dataclasses import replace
from typing import cast

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.audit import service as audit
from moorage.core.audit.service import Target
from moorage.core.db.store import Database
from moorage.core.http import sse
from moorage.core.http.answer import Answer, Stream, failure
from moorage.core.http.request import ClientGone, Request
from moorage.core.http.route import Router
from moorage.core.http.sse import Event
from moorage.core.kit.masking import Masker
from moorage.errors import RateLimited, bad_field
from moorage.products.apps.exec import service as commands
from moorage.products.apps.exec.schemas import CommandExit, CommandOutput, CommandResult, RunCommandInput
from moorage.products.apps.exec.service import Kept, Places, Prepare, Prepared
from moorage.runtime.sandbox.runs.main import Finished

BUSY_S = 5
RECORDED_CHARS = 200
CLEAR_UP_S = 60.0  # A stream outlives its command by this: making the sandbox and taking it down come on top.


def make_router(db: Database, prepare: Prepare) -> Router:
    router = Router("Projects")
    places = Places()

    # What it prints may be anything, so it is not kept for whoever sends the same key again.
    @router.post("/projects/{name}/exec", floor=Role.MEMBER, secret=True)
    async def run_command(caller: Caller, request: Request, name: str, body: RunCommandInput) -> CommandResult:
        """Run a command in a fresh sandbox of the live release, with its environment.

        With `Accept: text/event-stream` the answer is a stream: `output` with `stream` and `text` as it is printed,
        and `exit` with `exitCode` and `reason` at the end. A client that goes away ends the command.
        """
        is_followed = "text/event-stream" in (request.header(b"accept") or "").lower()
        if is_followed and request.header(b"idempotency-key") is not None:
            raise bad_field("Idempotency-Key", "cannot be used with a stream, which is never sent twice")
        try:
            give_back = places.take(caller.org_id)
        except RateLimited as error:
            return cast(CommandResult, _busy(request, error))
        with ExitStack() as stack:
            stack.callback(give_back)
            command = await _prepared(db, prepare, caller, name, body)
            if not is_followed:
                return _result(await _finish(request, command))
            stack.pop_all()  # From here on the stream holds the place.
        # A handler's type documents its usual success; the dispatcher passes a stream on as it is.
        return cast(CommandResult, _stream(command, give_back))

    return router


async def _prepared(db: Database, prepare: Prepare, caller: Caller, name: str, body: RunCommandInput) -> Prepared:
    """Get a command ready, and record who runs it."""
    job, hidden = await prepare(caller.org_id, name, body.command)
    shown = Masker(hidden)(body.command)[:RECORDED_CHARS]
    actor, target = caller.as_actor, Target("project", name)
    await db.write(lambda tx: audit.record(tx, caller.org_id, actor, "project.command_run", target, command=shown))
    return Prepared(replace(job, timeout_s=float(body.timeout_seconds)), hidden)


async def _finish(request: Request, command: Prepared) -> Kept:
    """Run a command to its end, unless the client goes away before; raises ClientGone."""
    running = asyncio.ensure_future(commands.finish(command))
    gone = asyncio.ensure_future(request.disconnected())
    try:
        await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise ClientGone
        return running.result()
    finally:
        for task in (running, gone):
            task.cancel()
        await asyncio.wait({running, gone})


def _result(kept: Kept) -> CommandResult:
    finished = kept.finished
    return CommandResult(finished.code, finished.why, kept.stdout, kept.stderr, kept.is_cut)


def _stream(command: Prepared, give_back: Callable[[], None]) -> Stream:
    events = _events(command, give_back)
    # A client may be gone before the first event is asked for, and then nothing in there ever runs.
    weakref.finalize(events, give_back)
    return sse.stream(events, longest_s=command.job.timeout_s + CLEAR_UP_S)


async def _events(command: Prepared, give_back: Callable[[], None]) -> AsyncIterator[Event]:
    try:
        async with aclosing(commands.follow(command)) as said:  # type: ignore[type-var]
            async for each in said:
                if isinstance(each, Finished):
                    yield Event("exit", CommandExit(each.code, each.why))
                else:
                    yield Event("output", CommandOutput(each.stream, each.text))
    finally:
        give_back()


def _busy(request: Request, error: RateLimited) -> Answer:
    busy = failure(error, request.trace_id)
    busy.headers.append((b"retry-after", b"%d" % BUSY_S))
    return busy
