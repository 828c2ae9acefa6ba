"""The programs of the contract: a real one in Python for engines that run processes, and one for the memory engine.

`serve` answers at its port: each path is an order, such as `/env/NAME` or `/exit/7`. `exit N` prints a line on each
stream and ends. `sleep` runs until it is terminated, and `stubborn` until it is killed. `crash` ends at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

SOURCE = """
import os, signal, socket, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

def say(text, stream=1):
    os.write(stream, f"{text}\\n".encode())  # A signal handler may interrupt a print.

def leave(*_):
    say("goodbye")
    os._exit(0)

def connect(port):
    try:
        with socket.create_connection(("127.0.0.1", int(port)), 5):
            return "connected"
    except OSError:
        return "refused"

def put(name, text):
    with open(f"/data/{name}", "w") as file:
        file.write(text)
    return "done"

ORDERS = {
    "hello": lambda: "hello",
    "env": lambda name: os.environ.get(name, ""),
    "exit": lambda code: os._exit(int(code)),
    "print": lambda text: say(text) or "done",
    "write": put,
    "read": lambda name: open(f"/data/{name}").read() if os.path.exists(f"/data/{name}") else "",
    "connect": connect,
}

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        order, *words = [unquote(word) for word in self.path[1:].split("/")]
        body = ORDERS[order](*words).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

program, *words = sys.argv[1:]
if program == "exit":
    say("out")
    say("err", 2)
    say(f"port={os.environ.get('PORT', '')}")
    sys.exit(int(words[0]))
if program == "crash":
    sys.exit(7)
signal.signal(signal.SIGTERM, signal.SIG_IGN if program == "stubborn" else leave)
say("up")
if program == "serve":
    ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Handler).serve_forever()
while True:
    time.sleep(1)
"""


class Exit(Exception):
    """The program calls exit."""

    def __init__(self, code: int) -> None:
        super().__init__(str(code))
        self.code = code


@dataclass
class Process:
    """A program of the memory engine, as it sees its machine."""

    env: dict[str, str]
    say: Callable[[str, str], None]  # stream and text
    files: dict[str, str]  # of its volume
    may_connect: Callable[[int], bool]
    on_listening: Callable[[], None]
    port: int
    exit: asyncio.Future[int] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    terminated: asyncio.Event = field(default_factory=asyncio.Event)
    connections: int = 0
    server: asyncio.Server | None = None

    async def run(self, program: str, words: list[str]) -> int:
        """Run a program; return its exit code."""
        try:
            if program == "exit":
                self.say("stdout", "out")
                self.say("stderr", "err")
                self.say("stdout", f"port={self.env.get('PORT', '')}")
                return int(words[0])
            if program == "crash":
                return 7
            return await self._until_terminated(program)
        finally:
            if self.server is not None:
                self.server.close()

    async def _until_terminated(self, program: str) -> int:
        self.say("stdout", "up")
        if program == "serve":
            self.server = await asyncio.start_server(self._answer, "127.0.0.1", self.port)
            self.on_listening()
        terminated = asyncio.create_task(self.terminated.wait())
        waits: list[asyncio.Future[Any]] = [self.exit] if program == "stubborn" else [self.exit, terminated]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            terminated.cancel()
        if self.exit.done():
            return self.exit.result()
        self.say("stdout", "goodbye")
        return 0

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                head = await reader.readuntil(b"\r\n\r\n")
                order, *words = [unquote(word) for word in head.split(b" ")[1].decode()[1:].split("/")]
                body = (await self._obey(order, words)).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
                await writer.drain()
        except Exit as leave:
            if not self.exit.done():
                self.exit.set_result(leave.code)
        finally:
            self.connections -= 1
            writer.close()

    async def _obey(self, order: str, words: list[str]) -> str:
        orders: dict[str, Callable[..., str | Awaitable[str]]] = {
            "hello": lambda: "hello",
            "env": lambda name: self.env.get(name, ""),
            "exit": self._leave,
            "print": self._print,
            "write": self._write,
            "read": lambda name: self.files.get(name, ""),
            "connect": lambda port: "connected" if self.may_connect(int(port)) else "refused",
        }
        answer = orders[order](*words)
        return answer if isinstance(answer, str) else await answer

    def _leave(self, code: str) -> str:
        raise Exit(int(code))

    def _print(self, text: str) -> str:
        self.say("stdout", text)
        return "done"

    def _write(self, name: str, text: str) -> str:
        self.files[name] = text
        return "done"
