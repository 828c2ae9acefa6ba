"""What an app prints, read as it comes. One that prints without end costs the shim little, and only itself time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from moorage.runtime.shim.logs.logfile import Stream

Print = Callable[[Stream, bytes], None]

CHUNK = 65536
MOST_PER_TURN = 8  # chunks: about 25 MB/s at most, which takes a few percent of a processor.
PAUSE_S = 0.02
MOST_AT_END = 64  # chunks: what a pipe can hold at most


class Output:
    """One stream of an app. The pipe becomes its own."""

    def __init__(self, pipe: int, stream: Stream, print_: Print) -> None:
        self._pipe = pipe
        self._stream = stream
        self._print = print_
        self._loop = asyncio.get_running_loop()
        self._read_in_turn = 0
        os.set_blocking(pipe, False)
        self._loop.add_reader(pipe, self._ready)

    def finish(self) -> None:
        """Take what is left, and close the pipe."""
        if self._pipe < 0:
            return
        self._loop.remove_reader(self._pipe)
        for _ in range(MOST_AT_END):
            if not self._copy():
                break
        self._close()

    def _ready(self) -> None:
        if self._copy() == 0:
            self._close()
            return
        self._read_in_turn += 1
        if self._read_in_turn == 1:
            self._loop.call_later(PAUSE_S, self._resume)
        if self._read_in_turn >= MOST_PER_TURN:
            self._loop.remove_reader(self._pipe)

    def _resume(self) -> None:
        is_paused = self._read_in_turn >= MOST_PER_TURN
        self._read_in_turn = 0
        if is_paused and self._pipe >= 0:
            self._loop.add_reader(self._pipe, self._ready)

    def _copy(self) -> int | None:
        """Pass on what is there, and return how much; 0 when nobody can print any more, None where nothing is there."""
        try:
            data = os.read(self._pipe, CHUNK)
        except BlockingIOError:
            return None
        if data:
            self._print(self._stream, data)
        return len(data)

    def _close(self) -> None:
        if self._pipe >= 0:
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = -1
