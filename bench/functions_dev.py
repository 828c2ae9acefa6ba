"""`moorage functions dev`: from the save of a file to the first response of the new code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from bench.figures import Figure, at_most, median, percentile

RELOAD_BAR = at_most(300)  # milliseconds
PAUSE_S = 0.6  # between two saves, as a person makes them
WAIT_S = 30.0
CODE = {
    "nodejs": ("index.js", "exports.main = () => ({{ statusCode: 200, body: 'r{number}' }});\n"),
    "python": ("main.py", "def main(params):\n    return {{'statusCode': 200, 'body': 'r{number}'}}\n"),
}


@dataclass(frozen=True)
class Sizes:
    saves: int


FULL = Sizes(saves=30)
TINY = Sizes(saves=2)


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    return [figure for language in CODE for figure in _measure(folder / language, language, sizes)]


def _measure(folder: Path, language: str, sizes: Sizes) -> list[Figure]:
    folder.mkdir(parents=True)
    _save(folder, language, 0)
    taken, cpu = [], 0.0
    with _served(folder) as (port, pid):
        _wait_for(port, "r0")
        for number in range(1, sizes.saves + 1):
            time.sleep(PAUSE_S)
            started = time.perf_counter()
            _save(folder, language, number)
            _wait_for(port, f"r{number}")
            taken.append((time.perf_counter() - started) * 1000)
        before, since = _cpu_s(pid), time.perf_counter()
        time.sleep(2)
        cpu = (_cpu_s(pid) - before) / (time.perf_counter() - since) * 100
    return [
        Figure(f"functions dev: {language}, save to new response, median", median(taken), "ms", bar=RELOAD_BAR),
        Figure(f"functions dev: {language}, save to new response, p95", percentile(taken, 0.95), "ms"),
        Figure(f"functions dev: {language}, CPU of the idle server", cpu, "%"),
    ]


def _save(folder: Path, language: str, number: int) -> None:
    """Replace the file as editors do."""
    name, code = CODE[language]
    new = folder / f".{name}.tmp"
    new.write_text(code.format(number=number))
    new.replace(folder / name)


@contextmanager
def _served(folder: Path) -> Iterator[tuple[int, int]]:
    command = [sys.executable, "-m", "moorage.cli.main", "functions", "dev", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        match = re.search(r"localhost:(\d+)", process.stdout.readline())
        assert match is not None
        yield int(match[1]), process.pid
    finally:
        process.terminate()
        process.wait(WAIT_S)


def _wait_for(port: int, text: str) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    ends_at = time.perf_counter() + WAIT_S
    while time.perf_counter() < ends_at:
        connection.request("GET", "/")
        if connection.getresponse().read().decode() == text:
            connection.close()
            return
        time.sleep(0.005)
    raise AssertionError(f"the server did not answer {text}")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
