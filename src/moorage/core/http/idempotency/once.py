"""Writes under an idempotency key: the effect, the claim of the key and the stored answer are one transaction.

A sync handler is one transaction anyway. An async handler waits for uploads, DNS or the gateway outside of any
transaction, and takes effect in one call of `write`, which it declares as a parameter:

    async def rename(caller: Caller, name: str, body: RenameInput, write: Write) -> ProjectDetail:
        renamed = await write(partial(service.rename, ...))  # the unit returns the route's answer
        await settle()
        return renamed

A process that is killed before the COMMIT leaves neither effect nor claim, so that a repeat does the work. One that is
killed after it leaves both, so that a repeat gets the answer.

A handler without `write` takes effect outside of the store: it runs a function or a command. No transaction covers
that, so its claim is committed first, under a lease that is renewed while the handler runs.
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

RENEW_S = idempotency.LEASE_MS / 1000 / 3


class Replay(Exception):
    """The key has an answer already; raised out of `write`, and through the handler."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("the request was answered before")
        self.answer = answer


class _Committed(NamedTuple):
    """A committed claim with its stored answer, and what the unit returned or raised."""

    claim_id: int
    answer: Answer
    result: Any
    error: MoorageError | None


class Write:
    """The transaction in which a request takes effect; a handler calls it at most once."""

    def __init__(self, db: Database, request: Request, route: Route, claim: Claim | None = None) -> None:
        self._db = db
        self._request = request
        self._route = route
        self._claim = claim
        self._is_spent = False
        self._committed: _Committed | None = None

    async def __call__(self, unit: Callable[[Tx], T], answer: Callable[[T], Any] | None = None) -> T:
        """Run a unit and return its result once it is durable.

        `answer` makes the route's answer of the result; without it, the result is the answer. Both are stored under
        the request's idempotency key, where it has one. Raises Replay where another process was first.
        """
        if self._is_spent:
            raise RuntimeError(f"{self._route.operation} writes twice: a crash between the two would leave a half")
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
        """Run an async handler under the key and return its answer, or the stored one where there is one."""
        assert self._claim is not None
        stored = await self._db.peek(partial(idempotency.find, claim=self._claim))
        if stored is not None:
            return again(self._request, stored)
        try:
            answer = await handle()
        except Replay as replay:
            return again(self._request, replay.answer)
        except MoorageError as error:
            if self._took_effect or not idempotency.is_kept_error(error):
                raise
            answer = failure(error, self._request.trace_id)
        return await self._keep(answer)

    async def run_outside(self, handle: Callable[[], Awaitable[Answer]]) -> Answer:
        """Run a handler whose effect is outside of the store: at most one at a time, in any process."""
        assert self._claim is not None
        begun = await self._db.write(partial(idempotency.begin, claim=self._claim))
        if isinstance(begun, Answer):
            return again(self._request, begun)
        is_kept = False
        try:
            async with _renewed(self._db, begun):
                try:
                    answer = await handle()
                except MoorageError as error:
                    if not idempotency.is_kept_error(error):
                        raise
                    answer = failure(error, self._request.trace_id)
            await self._db.write(lambda tx: idempotency.finish(tx, begun, answer, secret=self._route.secret))
            is_kept = True
            return answer
        finally:
            if not is_kept:
                await self._db.write(lambda tx: idempotency.forget(tx, begun))

    @property
    def _took_effect(self) -> bool:
        return self._committed is not None and self._committed.error is None

    def _traced(self, unit: Callable[[Tx], T], tx: Tx) -> T:
        tx.trace_id = self._request.trace_id
        return unit(tx)

    def _claimed(
        self, claim: Claim, unit: Callable[[Tx], T], answer_of: Callable[[T], Any] | None, tx: Tx
    ) -> _Committed:
        """Claim the key, take effect and store the answer. A refusal that would come again is stored too."""
        begun = idempotency.begin(tx, claim)
        if isinstance(begun, Answer):
            raise Replay(begun)
        result, refusal = None, None
        try:
            with tx.savepoint():
                result = self._traced(unit, tx)
                answer = encode(self._route, result if answer_of is None else answer_of(result))
        except MoorageError as error:
            if not idempotency.is_kept_error(error):
                raise
            refusal, answer = error, failure(error, self._request.trace_id)
        idempotency.finish(tx, begun, answer, secret=self._route.secret)
        return _Committed(begun, answer, result, refusal)

    async def _keep(self, answer: Answer) -> Answer:
        """Store the answer of a handler that wrote nothing, or said more in the end than when it wrote."""
        committed = self._committed
        if committed is not None and (committed.answer.status, committed.answer.body) == (answer.status, answer.body):
            return answer

        def keep(tx: Tx) -> Answer:
            assert self._claim is not None
            begun = committed.claim_id if committed is not None else idempotency.begin(tx, self._claim)
            if isinstance(begun, Answer):
                return again(self._request, begun)
            idempotency.finish(tx, begun, answer, secret=self._route.secret)
            return answer

        return await self._db.write(keep)


@contextlib.asynccontextmanager
async def _renewed(db: Database, claim_id: int) -> AsyncIterator[None]:
    """Renew the lease of a claim until the block ends."""

    async def renew() -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            # A store that is away for a moment may be back before the lease expires.
            with contextlib.suppress(Exception):
                await db.write(partial(idempotency.renew, claim_id=claim_id))

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def again(request: Request, stored: Answer) -> Answer:
    """Give a stored answer once more; a failure is traced under the id that its body names."""
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
