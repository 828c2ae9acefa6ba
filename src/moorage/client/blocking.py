"""Blocking transport: sends calls with retries, and follows event streams over lost connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, overload

import httpx2 as httpx

from moorage.client.errors import Unreachable
from moorage.client.exchange import (
    DEFAULT_TIMEOUT_S,
    RETRIED_STATUSES,
    RETRIES,
    USER_AGENT,
    Call,
    back_off_s,
    decode,
    to_error,
)
from moorage.client.streams import MAX_LOST_CONNECTIONS, Event, Parser, Progress

T = TypeVar("T")


class BlockingTransport:
    """One connection pool to one platform."""

    def __init__(
        self, url: str, token: str | None, organization: str | None, *, retries: int = RETRIES, **options: Any
    ) -> None:
        self.url = url.rstrip("/")
        self._retries = retries
        self._http = httpx.Client(
            base_url=self.url, headers=common_headers(token, organization), timeout=DEFAULT_TIMEOUT_S, **options
        )

    def close(self) -> None:
        self._http.close()

    @overload
    def call(self, call: Call, kind: type[T], *, has_envelope: bool = True) -> T: ...
    @overload
    def call(self, call: Call, kind: Any, *, has_envelope: bool = True) -> Any: ...
    def call(self, call: Call, kind: Any, *, has_envelope: bool = True) -> Any:
        """Send a call and return its decoded data; raises ApiError, Unreachable or UnexpectedAnswer."""
        response = self._send(call)
        return decode(response.content, kind, has_envelope=has_envelope)

    def iterate_cursors(self, fetch: Callable[[str | None], Any]) -> Iterator[Any]:
        """Yield the items of all pages of a list with cursors."""
        cursor: str | None = None
        while True:
            page = fetch(cursor)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def iterate_pages(self, fetch: Callable[[int], Any]) -> Iterator[Any]:
        """Yield the items of all pages of a list with numbered pages."""
        number, seen = 1, 0
        while True:
            page = fetch(number)
            yield from page.items
            seen += len(page.items)
            if not page.items or seen >= page.total:
                return
            number += 1

    def follow(self, call: Call, *, last_id: str | None = None) -> Iterator[Event]:
        """Yield the events of a stream until its last one; a lost connection is resumed after the last event.

        With `last_id` the stream begins after that event, where the server keeps older ones.
        """
        progress = Progress(last_id)
        while not progress.is_over:
            try:
                for event in self._events(call, progress.headers()):
                    yield progress.take(event)
            except (httpx.TransportError, Unreachable) as error:
                progress.lost += 1
                if progress.lost > MAX_LOST_CONNECTIONS or not call.is_read:
                    raise Unreachable(self.url, reason_of(error)) from error
                time.sleep(back_off_s(progress.lost))
            if not call.is_read:
                return
            if not progress.is_over:  # The server ends a long stream; this pause bounds the reconnects.
                time.sleep(back_off_s(0))

    def _events(self, call: Call, headers: dict[str, str]) -> Iterator[Event]:
        request = self._http.build_request(
            call.method,
            call.path,
            params=call.parameters(),
            content=call.content(),
            headers=call.headers(is_stream=True) | headers,
            timeout=httpx.Timeout(DEFAULT_TIMEOUT_S, read=2 * DEFAULT_TIMEOUT_S),  # heartbeats come every 15 s
        )
        response = self._http.send(request, stream=True)
        try:
            if response.status_code in RETRIED_STATUSES and response.status_code != 429:
                raise Unreachable(self.url, f"the server answered {response.status_code}")
            if response.status_code >= 400:
                raise to_error(response.status_code, response.read(), response.headers.get("x-request-id", ""))
            parser = Parser()
            for chunk in response.iter_bytes():
                yield from parser.feed(chunk)
        finally:
            response.close()

    def _send(self, call: Call) -> httpx.Response:
        headers = call.headers()
        for attempt in range(self._retries + 1):
            is_last = attempt == self._retries
            try:
                response = self._send_once(call, headers)
            except httpx.TransportError as error:
                if is_last or not may_retry(call, error):
                    raise Unreachable(self.url, reason_of(error)) from error
                time.sleep(back_off_s(attempt))
                continue
            if response.is_success:
                return response
            if is_last or response.status_code not in RETRIED_STATUSES:
                raise to_error(response.status_code, response.content, response.headers.get("x-request-id", ""))
            time.sleep(back_off_s(attempt, response.headers.get("retry-after")))
        raise AssertionError("unreachable")

    def _send_once(self, call: Call, headers: dict[str, str]) -> httpx.Response:
        with ExitStack() as stack:
            files = None
            if call.upload is not None:
                upload = opened(call.upload, stack)
                files = {call.upload_field: ("upload.zip", upload, "application/zip")}
            return self._http.request(
                call.method,
                call.path,
                params=call.parameters() or None,
                content=call.content(),
                data=call.fields() if call.form is not None else None,
                files=files,
                headers=headers,
                timeout=httpx.Timeout(call.timeout_s(), connect=DEFAULT_TIMEOUT_S),
            )


def common_headers(token: str | None, organization: str | None) -> dict[str, str]:
    headers = {"user-agent": USER_AGENT}
    if token:
        headers["authorization"] = f"Bearer {token}"
    if organization:
        headers["x-organization-id"] = organization
    return headers


def may_retry(call: Call, error: httpx.TransportError) -> bool:
    """Report whether a failed request may be sent again: a write that timed out may still be running."""
    return call.is_read or not isinstance(error, httpx.TimeoutException) or isinstance(error, httpx.ConnectTimeout)


def reason_of(error: Exception) -> str:
    return str(error) or type(error).__name__


def opened(upload: bytes | Path | BinaryIO, stack: ExitStack) -> bytes | BinaryIO:
    """Return an upload from its beginning, as each attempt needs it."""
    if isinstance(upload, Path):
        return stack.enter_context(upload.open("rb"))
    if not isinstance(upload, bytes):
        upload.seek(0)
    return upload
