"""Reader of an app's output, rate-limited: a flood blocks the app, not the shim."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from moorage.runtime.logs.logfile import Stream

OutputHandler = Callable[[Stream, bytes], None]

CHUNK_BYTES = 65536
MAX_CHUNKS_PER_PERIOD = 8  # at most about 25 MB/s, which takes a few percent of a CPU
PERIOD_S = 0.02
MAX_CHUNKS_AT_EXIT = 64  # the capacity of a pipe


class OutputReader:
    """Reads one output stream of an app. Owns the pipe."""

    def __init__(self, pipe: int, stream: Stream, on_output: OutputHandler) -> None:
        self._pipe = pipe
        self._stream = stream
        self._on_output = on_output
        self._loop = asyncio.get_running_loop()
        self._chunks_in_period = 0
        os.set_blocking(pipe, False)
        self._loop.add_reader(pipe, self._ready)

    def finish(self) -> None:
        """Read the rest and close the pipe."""
        if self._pipe < 0:
            return
        self._loop.remove_reader(self._pipe)
        for _ in range(MAX_CHUNKS_AT_EXIT):
            if not self._read_chunk():
                break
        self._close()

    def _ready(self) -> None:
        if self._read_chunk() == 0:
            self._close()
            return
        self._chunks_in_period += 1
        if self._chunks_in_period == 1:
            self._loop.call_later(PERIOD_S, self._begin_period)
        if self._chunks_in_period >= MAX_CHUNKS_PER_PERIOD:
            self._loop.remove_reader(self._pipe)

    def _begin_period(self) -> None:
        is_paused = self._chunks_in_period >= MAX_CHUNKS_PER_PERIOD
        self._chunks_in_period = 0
        if is_paused and self._pipe >= 0:
            self._loop.add_reader(self._pipe, self._ready)

    def _read_chunk(self) -> int | None:
        """Read a chunk and return its size; 0 at end of file, None if the pipe is empty."""
        try:
            data = os.read(self._pipe, CHUNK_BYTES)
        except BlockingIOError:
            return None
        if data:
            self._on_output(self._stream, data)
        return len(data)

    def _close(self) -> None:
        if self._pipe >= 0:
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = -1
