"""Asynchronous transport: the same rules as the blocking one, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, aclosing
from typing import Any, TypeVar, overload

import httpx2 as httpx

from moorage.client.blocking import common_headers, may_retry, opened, reason_of
from moorage.client.errors import Unreachable
from moorage.client.exchange import (
    DEFAULT_TIMEOUT_S,
    RETRIED_STATUSES,
    RETRIES,
    Call,
    back_off_s,
    decode,
    to_error,
)
from moorage.client.streams import MAX_LOST_CONNECTIONS, Event, Parser, Progress

T = TypeVar("T")


class AsyncTransport:
    """One connection pool to one platform."""

    def __init__(
        self, url: str, token: str | None, organization: str | None, *, retries: int = RETRIES, **options: Any
    ) -> None:
        self.url = url.rstrip("/")
        self._retries = retries
        self._http = httpx.AsyncClient(
            base_url=self.url, headers=common_headers(token, organization), timeout=DEFAULT_TIMEOUT_S, **options
        )

    async def close(self) -> None:
        await self._http.aclose()

    @overload
    async def call(self, call: Call, kind: type[T], *, has_envelope: bool = True) -> T: ...
    @overload
    async def call(self, call: Call, kind: Any, *, has_envelope: bool = True) -> Any: ...
    async def call(self, call: Call, kind: Any, *, has_envelope: bool = True) -> Any:
        """Send a call and return its decoded data; raises ApiError, Unreachable or UnexpectedAnswer."""
        response = await self._send(call)
        return decode(response.content, kind, has_envelope=has_envelope)

    async def iterate_cursors(self, fetch: Callable[[str | None], Awaitable[Any]]) -> AsyncIterator[Any]:
        """Yield the items of all pages of a list with cursors."""
        cursor: str | None = None
        while True:
            page = await fetch(cursor)
            for item in page.items:
                yield item
            cursor = page.next_cursor
            if cursor is None:
                return

    async def iterate_pages(self, fetch: Callable[[int], Awaitable[Any]]) -> AsyncIterator[Any]:
        """Yield the items of all pages of a list with numbered pages."""
        number, seen = 1, 0
        while True:
            page = await fetch(number)
            for item in page.items:
                yield item
            seen += len(page.items)
            if not page.items or seen >= page.total:
                return
            number += 1

    async def follow(self, call: Call, *, last_id: str | None = None) -> AsyncIterator[Event]:
        """Yield the events of a stream until its last one; a lost connection is resumed after the last event.

        With `last_id` the stream begins after that event, where the server keeps older ones.
        """
        progress = Progress(last_id)
        while not progress.is_over:
            try:
                async with aclosing(self._events(call, progress.headers())) as events:
                    async for event in events:
                        yield progress.take(event)
            except (httpx.TransportError, Unreachable) as error:
                progress.lost += 1
                if progress.lost > MAX_LOST_CONNECTIONS or not call.is_read:
                    raise Unreachable(self.url, reason_of(error)) from error
                await asyncio.sleep(back_off_s(progress.lost))
            if not call.is_read:
                return
            if not progress.is_over:  # The server ends a long stream; this pause bounds the reconnects.
                await asyncio.sleep(back_off_s(0))

    async def _events(self, call: Call, headers: dict[str, str]) -> AsyncGenerator[Event, None]:
        request = self._http.build_request(
            call.method,
            call.path,
            params=call.parameters(),
            content=call.content(),
            headers=call.headers(is_stream=True) | headers,
            timeout=httpx.Timeout(DEFAULT_TIMEOUT_S, read=2 * DEFAULT_TIMEOUT_S),  # heartbeats come every 15 s
        )
        response = await self._http.send(request, stream=True)
        try:
            if response.status_code in RETRIED_STATUSES and response.status_code != 429:
                raise Unreachable(self.url, f"the server answered {response.status_code}")
            if response.status_code >= 400:
                trace_id = response.headers.get("x-request-id", "")
                raise to_error(response.status_code, await response.aread(), trace_id)
            parser = Parser()
            async for chunk in response.aiter_bytes():
                for event in parser.feed(chunk):
                    yield event
        finally:
            await response.aclose()

    async def _send(self, call: Call) -> httpx.Response:
        headers = call.headers()
        for attempt in range(self._retries + 1):
            is_last = attempt == self._retries
            try:
                response = await self._send_once(call, headers)
            except httpx.TransportError as error:
                if is_last or not may_retry(call, error):
                    raise Unreachable(self.url, reason_of(error)) from error
                await asyncio.sleep(back_off_s(attempt))
                continue
            if response.is_success:
                return response
            if is_last or response.status_code not in RETRIED_STATUSES:
                raise to_error(response.status_code, response.content, response.headers.get("x-request-id", ""))
            await asyncio.sleep(back_off_s(attempt, response.headers.get("retry-after")))
        raise AssertionError("unreachable")

    async def _send_once(self, call: Call, headers: dict[str, str]) -> httpx.Response:
        with ExitStack() as stack:
            files = None
            if call.upload is not None:
                upload = opened(call.upload, stack)
                files = {call.upload_field: ("upload.zip", upload, "application/zip")}
            return await self._http.request(
                call.method,
                call.path,
                params=call.parameters() or None,
                content=call.content(),
                data=call.fields() if call.form is not None else None,
                files=files,
                headers=headers,
                timeout=httpx.Timeout(call.timeout_s(), connect=DEFAULT_TIMEOUT_S),
            )
