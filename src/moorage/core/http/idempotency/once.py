"""Writes under an idempotency key, in one transaction with claim and answer.

A sync handler is one transaction by itself. An async handler waits for uploads, DNS or the gateway outside of any
transaction, and takes effect in one call of `write`, which it declares as a parameter:

    async def rename(caller: Caller, name: str, body: RenameInput, write: Write) -> ProjectDetail:
        renamed = await write(partial(service.rename, ...))  # the unit returns the route's answer
        await sync_routes()
        return renamed

A crash before the COMMIT leaves neither effect nor claim, so a repeated request does the work. A crash after it leaves
both, so a repeated request gets the stored answer.

A handler without `write` has its effect outside of the database, such as running a function or a command. No
transaction covers that, so its claim is committed first, with a lease that is renewed while the handler runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.answer import DEPRECATED, Answer, failure, plain_json, success
from moorage.core.http.idempotency import keys as idempotency
from moorage.core.http.idempotency.keys import Claim
from moorage.core.http.request import Request
from moorage.core.http.route import Route
from moorage.errors import MoorageError

T = TypeVar("T")

LEASE_RENEWAL_INTERVAL_S = idempotency.LEASE_MS / 1000 / 3


class Replay(Exception):
    """The key already has an answer; `write` raises this through the handler."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("the request was answered before")
        self.answer = answer


class _Committed(NamedTuple):
    """A committed claim with its stored answer, and the result or error."""

    claim_id: int
    answer: Answer
    result: Any
    error: MoorageError | None


class Write:
    """The transaction of a request's effect; a handler calls it at most once."""

    def __init__(self, db: Database, request: Request, route: Route, claim: Claim | None = None) -> None:
        self._db = db
        self._request = request
        self._route = route
        self._claim = claim
        self._is_spent = False
        self.is_replay = False  # the answer is a stored one
        self._committed: _Committed | None = None

    async def __call__(self, unit: Callable[[Tx], T], answer: Callable[[T], Any] | None = None) -> T:
        """Run a unit of work and return its result after the commit.

        `answer` converts the result to the route's answer; without it, the result is the answer. The answer is stored
        under the request's idempotency key, if it has one. Raises Replay if another process stored one before.
        """
        if self._is_spent:
            raise RuntimeError(f"{self._route.operation} writes twice: a crash in between would leave half of it")
        self._is_spent = True
        if self._claim is None:
            return await self._db.write(partial(self._traced, unit))
        committed = await self._db.write(partial(self._claimed, self._claim, unit, answer))
        self._committed = committed
        if committed.error is not None:
            raise committed.error
        result: T = committed.result
        return result

    async def run(self, handle: Callable[[], Awaitable[Answer]]) -> Answer:
        """Run an async handler under the key and return its answer, or the stored one."""
        assert self._claim is not None
        stored = await self._db.peek(partial(idempotency.find, claim=self._claim))
        if stored is not None:
            self.is_replay = True
            return again(self._request, stored)
        try:
            answer = await handle()
        except Replay as replay:
            self.is_replay = True
            return again(self._request, replay.answer)
        except MoorageError as error:
            if self._took_effect or not idempotency.is_kept_error(error):
                raise
            answer = failure(error, self._request.trace_id)
        return await self.keep(answer)

    async def run_outside(self, handle: Callable[[], Awaitable[Answer]]) -> Answer:
        """Run a handler with an external effect, one at a time over all processes."""
        assert self._claim is not None
        claim_or_answer = await self._db.write(partial(idempotency.begin, claim=self._claim))
        if isinstance(claim_or_answer, Answer):
            return again(self._request, claim_or_answer)
        is_kept = False
        try:
            async with _renewed(self._db, claim_or_answer):
                try:
                    answer = await handle()
                except MoorageError as error:
                    if not idempotency.is_kept_error(error):
                        raise
                    answer = failure(error, self._request.trace_id)
            await self._db.write(lambda tx: idempotency.finish(tx, claim_or_answer, answer, secret=self._route.secret))
            is_kept = True
            return answer
        finally:
            if not is_kept:
                await self._db.write(lambda tx: idempotency.forget(tx, claim_or_answer))

    @property
    def _took_effect(self) -> bool:
        return self._committed is not None and self._committed.error is None

    def _traced(self, unit: Callable[[Tx], T], tx: Tx) -> T:
        tx.trace_id = self._request.trace_id
        return unit(tx)

    def _claimed(
        self, claim: Claim, unit: Callable[[Tx], T], answer_of: Callable[[T], Any] | None, tx: Tx
    ) -> _Committed:
        """Claim the key, run the unit, store the answer or a permanent refusal."""
        claim_or_answer = idempotency.begin(tx, claim)
        if isinstance(claim_or_answer, Answer):
            raise Replay(claim_or_answer)
        result, refusal = None, None
        try:
            with tx.savepoint():
                result = self._traced(unit, tx)
                answer = encode(self._route, result if answer_of is None else answer_of(result))
        except MoorageError as error:
            if not idempotency.is_kept_error(error):
                raise
            refusal, answer = error, failure(error, self._request.trace_id)
        idempotency.finish(tx, claim_or_answer, answer, secret=self._route.secret)
        return _Committed(claim_or_answer, answer, result, refusal)

    async def keep(self, answer: Answer) -> Answer:
        """Store the final answer under the key, unless the same one is already stored."""
        committed = self._committed
        if self._claim is None:
            return answer
        if committed is not None and (committed.answer.status, committed.answer.body) == (answer.status, answer.body):
            return answer

        def store(tx: Tx) -> Answer:
            assert self._claim is not None
            claim_or_answer = committed.claim_id if committed is not None else idempotency.begin(tx, self._claim)
            if isinstance(claim_or_answer, Answer):
                return again(self._request, claim_or_answer)
            idempotency.finish(tx, claim_or_answer, answer, secret=self._route.secret)
            return answer

        return await self._db.write(store)


@contextlib.asynccontextmanager
async def _renewed(db: Database, claim_id: int) -> AsyncIterator[None]:
    """Renew the lease of a claim until the block ends."""

    async def renew() -> None:
        while True:
            await asyncio.sleep(LEASE_RENEWAL_INTERVAL_S)
            # A database that is briefly unreachable may be back before the lease expires.
            with contextlib.suppress(Exception):
                await db.write(partial(idempotency.renew, claim_id=claim_id))

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def again(request: Request, stored: Answer) -> Answer:
    """Return a stored answer; a failure keeps the trace id in its body."""
    request.trace_id = idempotency.trace_of(stored) or request.trace_id
    return stored


def encode(route: Route, result: Any) -> Answer:
    if isinstance(result, Answer):
        return result
    if route.raw:
        return plain_json(result, route.status)
    answer = success(result, route.status)
    if route.deprecated:
        answer.headers.append(DEPRECATED)
    return answer
