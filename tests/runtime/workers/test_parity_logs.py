"""Logs per call are the same in both languages; each case runs in real workers."""

from __future__ import annotations

import time
from pathlib import Path

from tests.runtime.workers.worker_driver import DONE, MAIN, call_frame, running, started, write_code

PRINTING = {
    "python": (
        "import sys\nprint('while loading')\ndef main(params):\n    print('one', params['n'])\n"
        "    sys.stderr.write('two\\nthree')\n    print('four')\n    sys.stderr.write(' and more\\n')\n"
        "    sys.stdout.buffer.write('fünf\\n'.encode())\n"
        "    sys.stdout.write('no end')\n"
    ),
    "nodejs": (
        "console.log('while loading');\nexports.main = (params) => { console.log('one', params.n);\n"
        "  process.stderr.write('two\\nthree'); console.info('four'); process.stderr.write(' and more\\n');\n"
        "  process.stdout.write(Buffer.from('fünf\\n')); process.stdout.write('no end'); };\n"
    ),
}


def test_what_is_printed_belongs_to_its_call_in_order_and_with_its_time(language: str, tmp_path: Path) -> None:
    with started(language, write_code(tmp_path, {MAIN[language]: PRINTING[language]})) as worker:
        before = int(time.time() * 1000)
        loaded = worker.load(MAIN[language])
        worker.send(call_frame({"n": 1}) + call_frame({"n": 2}))
        replies = [worker.next_reply(), worker.next_reply()]
        after = int(time.time() * 1000)

        assert [(line.stream, line.text) for line in loaded.logs] == [("stdout", "while loading\n")]
        for number, reply in enumerate(replies, 1):
            assert reply.printed == [
                ("stdout", f"one {number}\n"),
                ("stderr", "two\n"),
                ("stdout", "four\n"),
                ("stderr", "three and more\n"),
                ("stdout", "fünf\n"),
                ("stdout", "no end"),
            ]
            assert all(before <= line.at_ms <= after for line in reply.logs)


NATIVE = {
    "python": (
        "import os, subprocess\ndef main(params):\n    print('printed')\n"
        "    subprocess.run(['/bin/echo', 'child', params['n']])\n    os.write(2, b'native\\n')\n"
    ),
    "nodejs": (
        "const { execFileSync } = require('child_process');\nexports.main = (p) => { console.log('printed');\n"
        "  execFileSync('/bin/echo', ['child', p.n], {stdio: 'inherit'}); require('fs').writeSync(2, 'native\\n'); };\n"
    ),
}


def test_the_output_of_child_processes_and_native_code_is_kept_too(language: str, tmp_path: Path) -> None:
    with running(language, tmp_path, NATIVE) as worker:
        replies = [worker.call({"n": number}) for number in "12"]

        for number, reply in enumerate(replies, 1):
            assert reply.printed == [("stdout", "printed\n"), ("stdout", f"child {number}\n"), ("stderr", "native\n")]


LATE = {
    "python": (
        "import threading, time, os, sys\n"
        "def later(path):\n    while not os.path.exists(path):\n        time.sleep(0.005)\n"
        "    sys.stderr.write('no end')\n    print('later')\n"
        "def main(params):\n    print('now')\n    if 'path' in params:\n"
        "        threading.Thread(target=later, args=[params['path']]).start()\n"
    ),
    "nodejs": (
        "const fs = require('fs');\n"
        "function later(path) { if (!fs.existsSync(path)) return setTimeout(later, 5, path);\n"
        "  process.stderr.write('no end'); console.log('later'); }\n"
        "exports.main = (p) => { console.log('now'); if (p.path) later(p.path); };\n"
    ),
}


def test_what_is_printed_after_the_answer_is_sent_for_the_call_before(language: str, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    with running(language, tmp_path, LATE) as worker:
        first = worker.call({"path": str(go_on)}, activation="1" * 32)
        go_on.touch()
        late = worker.next_late()
        worker.send(call_frame({}, activation="2" * 32))
        rest, second = worker.next_late(), worker.next_reply()

        assert first.printed == second.printed == [("stdout", "now\n")]
        assert (late.activation, [line.text for line in late.logs]) == ("1" * 32, ["later\n"])
        assert (rest.activation, [line.text for line in rest.logs]) == ("1" * 32, ["no end"])


FLOOD = {
    "python": "def main(params):\n    for _ in range(params['n']):\n        print(params['text'])\n    return 'done'\n",
    "nodejs": "exports.main = (p) => { for (let i = 0; i < p.n; i++) console.log(p.text); return 'done'; };\n",
}


def test_logs_are_cut_at_ten_megabytes_and_the_call_succeeds(language: str, tmp_path: Path) -> None:
    with running(language, tmp_path, FLOOD) as worker:
        whole = worker.call({"n": 10 * 1024, "text": "x" * 1023})
        flooded = worker.call({"n": 11 * 1024, "text": "x" * 1023})

        assert (whole.outcome, whole.json, len(whole.said("stdout"))) == (DONE, "done", 10 << 20)
        assert (flooded.outcome, flooded.json) == (DONE, "done")
        assert len(flooded.said("stdout")) == 10 << 20
        assert flooded.printed[-1] == ("stderr", "the logs were cut: more than 10 MB\n")
        assert worker.call({"n": 1, "text": "y"}).printed == [("stdout", "y\n")]


def test_logs_are_never_cut_within_a_character(language: str, tmp_path: Path) -> None:
    with running(language, tmp_path, FLOOD, log_limit=1024) as worker:
        reply = worker.call({"n": 1, "text": "x" + "é" * 600})

        assert reply.said("stdout") == "x" + "é" * 511
        assert reply.said("stderr") == "the logs were cut: more than 1 KB\n"
