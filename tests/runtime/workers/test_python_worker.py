"""Python worker only: handlers, paths, streams, threads and imported modules."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from tests.runtime.workers.worker_driver import ACTIVATION, WORKERS, Reply, call_frame, started, write_code

DONE, FAILED, ENDED = 0, 1, 2
PARTS = sorted(path.name for path in (WORKERS / "python").glob("*.py"))


def answer(folder: Path, source: str, **files: str) -> Reply:
    """Load a function and call it once."""
    with started("python", write_code(folder, {"main.py": source, **files})) as worker:
        loaded = worker.load("main.py")
        assert loaded.ok, loaded
        return worker.call({"a": 1})


@pytest.mark.parametrize("part", PARTS)
def test_the_worker_is_written_for_the_oldest_python_with_nothing_but_the_standard_library(part: str) -> None:
    tree = ast.parse((WORKERS / "python" / part).read_text(), feature_version=(3, 9))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}

    own = {
        "moorage.runtime.workers.python",
        *(f"moorage.runtime.workers.python.{name.removesuffix('.py')}" for name in PARTS),
    }
    assert {name.partition(".")[0] for name in imported - own} <= sys.stdlib_module_names


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def main():\n    return 'none'\n", "none"),
        ("def main(params):\n    return params['a']\n", 1),
        ("def main(*args):\n    return len(args)\n", 1),
        ("def main(params, verbose=False):\n    return verbose\n", False),
        ("def main(params, context=None):\n    return context.namespace\n", "org-12"),
        ("import functools\nmain = functools.partial(lambda x, params: [x, params['a']], 5)\n", [5, 1]),
        ("class Main:\n    def __call__(self, params):\n        return params['a']\nmain = Main()\n", 1),
        ("class Main:\n    async def __call__(self, params):\n        return params['a']\nmain = Main()\n", 1),
        ("class Later:\n    def __await__(self):\n        return iter(())\ndef main(_):\n    return Later()\n", None),
        ("main = dict\n", 1),
    ],
)
def test_a_handler_may_be_anything_that_can_be_called(tmp_path: Path, source: str, expected: object) -> None:
    reply = answer(tmp_path, source)

    result = reply.json
    assert (reply.outcome, result["a"] if isinstance(result, dict) else result) == (DONE, expected)


def test_a_second_parameter_is_the_context_of_the_call(tmp_path: Path) -> None:
    source = (
        "def main(params, c):\n    left = c.get_remaining_time_in_millis()\n"
        "    return [c.activation_id, c.deadline, left, c.function_name, c.function_version, c.namespace, c.api_host]\n"
    )
    with started("python", write_code(tmp_path, {"main.py": source})) as worker:
        worker.load("main.py")
        result = worker.call(deadline_ms=1999999999999).json
        past = worker.call(deadline_ms=1000000000000).json

        assert result[:2] == [ACTIVATION, 1999999999999]
        assert 0 < result[2] < 1999999999999
        assert result[3:] == ["/org-12/default/hello", "3", "org-12", "http://api.test"]
        assert past[2] == 0


def test_libraries_are_found_beside_the_code_and_in_the_folders_that_tools_make(tmp_path: Path) -> None:
    names = {
        "beside": "beside.py",
        "packed": "packages/packed.py",
        "whisk": "virtualenv/lib/python3.7/site-packages/whisk.py",
        "dotted": ".venv/lib/python3.11/site-packages/dotted/__init__.py",
        "target": "lib/python3.12/site-packages/target.py",
    }
    source = f"import {', '.join(names)}\ndef main(params):\n    return [m.x for m in ({', '.join(names)})]\n"

    reply = answer(tmp_path, source, **{path: f"x = {name!r}\n" for name, path in names.items()})

    assert reply.json == list(names)


def test_the_module_is_called_main_and_the_platform_cannot_be_imported_by_accident(tmp_path: Path) -> None:
    source = (
        "import sys\nran = __name__ == '__main__'\n"
        "def main(params):\n    try:\n        import moorage\n    except ImportError:\n        moorage = None\n"
        "    return [ran, __name__, sys.modules['main'] is sys.modules['__main__'], moorage is None, sys.argv]\n"
    )

    reply = answer(tmp_path, source)

    assert reply.json == [False, "main", True, True, [str(tmp_path / "main.py")]]


def test_the_main_file_of_openwhisk_is_loaded_too(tmp_path: Path) -> None:
    with started("python", write_code(tmp_path, {"__main__.py": "def main(args):\n    return args['a']\n"})) as worker:
        loaded = worker.load("__main__.py")

        assert loaded.ok
        assert worker.call({"a": 5}).json == 5


@pytest.mark.parametrize(
    ("value", "blamed"),
    [
        ("{'data': [b'x']}", "bytes at result.data[0]"),
        ("{1, 2}", "set at result"),
        ("{'a': {'when': datetime.datetime(2024, 1, 1)}}", "datetime at result.a.when"),
        ("{'price': decimal.Decimal('1')}", "Decimal at result.price"),
        ("{(1, 2): 3}", "a key of type tuple at result"),
        ("main", "function at result"),
        ("(x for x in [])", "generator at result"),
        ("deep()", "it is nested too deeply"),
    ],
)
def test_python_values_without_json_are_named(tmp_path: Path, value: str, blamed: str) -> None:
    source = (
        "import datetime, decimal\ndef deep():\n    value = []\n    for _ in range(100000):\n        value = [value]\n"
        f"    return value\ndef main(params):\n    return {value}\n"
    )

    reply = answer(tmp_path, source)

    assert (reply.outcome, reply.text) == (FAILED, f"the function returned a value that is not JSON: {blamed}")


def test_a_value_that_failed_does_not_spoil_the_next(tmp_path: Path) -> None:
    source = "inner = {'a': [1]}\ndef main(params):\n    return {'inner': inner, 'bad': {1} if params['bad'] else 0}\n"
    with started("python", write_code(tmp_path, {"main.py": source})) as worker:
        worker.load("main.py")
        replies = [worker.call({"bad": bad}) for bad in (True, False, True, False)]

        assert [reply.outcome for reply in replies] == [FAILED, DONE, FAILED, DONE]
        assert replies[3].json == {"inner": {"a": [1]}, "bad": 0}


def test_the_streams_behave_like_real_ones(tmp_path: Path) -> None:
    source = (
        "import sys, logging, warnings\nlogging.basicConfig(level='INFO', format='%(levelname)s %(message)s')\n"
        "def main(params):\n    logging.info('logged')\n    warnings.warn('warned')\n"
        "    sys.stdout.reconfigure(encoding='utf-8')\n    sys.stdout.writelines(['a', 'b\\n'])\n"
        "    print('c', flush=True, file=sys.__stdout__)\n"
        "    for half in ('ü'.encode()[:1], 'ü'.encode()[1:] + b'\\n'):\n        sys.stdout.buffer.write(half)\n"
        "    try:\n        sys.stdout.write(b'bytes')\n    except TypeError as error:\n        print(error)\n"
        "    print('\\ud800')\n"
        "    return [sys.stdout.fileno(), sys.stderr.fileno(), sys.stdout.isatty(), sys.stdout.encoding]\n"
    )

    reply = answer(tmp_path, source)

    assert reply.json == [1, 2, False, "utf-8"]
    assert reply.said("stdout") == "ab\nc\nü\nwrite() argument must be str, not bytes\n\\ud800\n"
    assert reply.said("stderr").startswith("INFO logged\n")
    assert "UserWarning: warned" in reply.said("stderr")


def test_an_exception_in_a_thread_only_goes_to_the_logs(tmp_path: Path) -> None:
    source = (
        "import threading\ndef work():\n    raise ValueError('in a thread')\n"
        "def main(params):\n    t = threading.Thread(target=work)\n    t.start()\n    t.join()\n    return 'fine'\n"
    )

    reply = answer(tmp_path, source)

    assert (reply.outcome, reply.json) == (DONE, "fine")
    assert "ValueError: in a thread" in reply.said("stderr")


def test_lines_of_many_threads_are_whole(tmp_path: Path) -> None:
    source = (
        "import threading\ndef work(n):\n    for i in range(200):\n        print(f'{n} {i}\\n', end='')\n"
        "def main(params):\n    threads = [threading.Thread(target=work, args=[n]) for n in range(5)]\n"
        "    [t.start() for t in threads]\n    [t.join() for t in threads]\n"
    )

    reply = answer(tmp_path, source)

    assert sorted(line.text for line in reply.logs) == sorted(f"{n} {i}\n" for n in range(5) for i in range(200))


def test_the_event_loop_stays_and_leftover_tasks_go_on_in_a_later_call(tmp_path: Path) -> None:
    source = (
        "import asyncio\nseen, tasks = [], []\n"
        "async def later():\n    await asyncio.sleep(0.001)\n    seen.append('later')\n"
        "async def main(params):\n    before = list(seen)\n    if not tasks:\n"
        "        tasks.append(asyncio.ensure_future(later()))\n"
        "    elif not seen:\n        await tasks[0]\n"
        "    return [before, list(seen), id(asyncio.get_running_loop())]\n"
    )
    with started("python", write_code(tmp_path, {"main.py": source})) as worker:
        worker.load("main.py")
        first, second = worker.call().json, worker.call().json

        assert first[:2] == [[], []]
        assert second[:2] == [[], ["later"]]
        assert first[2] == second[2]


def test_a_call_may_use_asyncio_run_itself_between_calls_of_the_worker(tmp_path: Path) -> None:
    source = (
        "import asyncio\nasync def work(n):\n    await asyncio.sleep(0)\n    return n\n"
        "def main(params):\n    return work(1) if params.get('wait') else asyncio.run(work(2))\n"
    )
    with started("python", write_code(tmp_path, {"main.py": source})) as worker:
        worker.load("main.py")

        assert [worker.call({"wait": wait}).json for wait in (0, 1, 0, 1)] == [2, 1, 2, 1]


@pytest.mark.parametrize(
    ("statement", "code", "printed"),
    [
        ("sys.exit('a reason')", 1, "a reason\n"),
        ("raise SystemExit", 0, ""),
        ("os._exit(7)", 7, ""),
        ("quit(300)", 300, ""),
    ],
)
def test_every_way_to_leave_has_an_answer(tmp_path: Path, statement: str, code: int, printed: str) -> None:
    source = f"import os, sys\ndef main(params):\n    {statement}\n"
    with started("python", write_code(tmp_path, {"main.py": source})) as worker:
        worker.load("main.py")
        reply = worker.call()

        assert (reply.outcome, reply.text) == (ENDED, f"the function called exit (code {code})")
        assert reply.said("stderr") == printed
        assert worker.ended() == code & 0xFF


def test_an_exit_inside_a_coroutine_ends_the_instance_too(tmp_path: Path) -> None:
    source = "import asyncio, sys\nasync def main(params):\n    await asyncio.sleep(0)\n    sys.exit(5)\n"
    with started("python", write_code(tmp_path, {"main.py": source})) as worker:
        worker.load("main.py")

        assert worker.call().text == "the function called exit (code 5)"
        assert worker.ended() == 5


def test_a_process_that_the_function_forks_cannot_answer_in_its_place(tmp_path: Path) -> None:
    source = (
        "import os\ndef main(params):\n    child = os.fork()\n    print('child' if child == 0 else 'parent')\n"
        "    if child:\n        os.waitpid(child, 0)\n    return 'child' if child == 0 else 'parent'\n"
    )
    with started("python", write_code(tmp_path, {"main.py": source})) as worker:
        worker.load("main.py")
        worker.send(call_frame({}, ident=1) + call_frame({}, ident=2))
        replies = [worker.next_reply(), worker.next_reply()]

        assert [(reply.id, reply.json) for reply in replies] == [(1, "parent"), (2, "parent")]
        assert all(sorted(reply.printed) == [("stdout", "child\n"), ("stdout", "parent\n")] for reply in replies)


def test_a_pool_of_processes_works(tmp_path: Path) -> None:
    source = (
        "import multiprocessing\ndef square(n):\n    return n * n\n"
        "def main(params):\n    with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "        return pool.map(square, range(5))\n"
    )

    reply = answer(tmp_path, source)

    assert (reply.outcome, reply.json) == (DONE, [0, 1, 4, 9, 16])


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        ("MemoryError", "MemoryError: the function ran out of memory"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
        ("StopIteration('x')", "StopIteration: x"),
        ("Bad()", "Bad"),
    ],
)
def test_unusual_exceptions_are_failures_of_the_call(tmp_path: Path, raised: str, message: str) -> None:
    source = (
        "class Bad(Exception):\n    def __str__(self):\n        raise ValueError\n"
        f"def main(params):\n    if params.get('ok'):\n        return 'fine'\n    raise {raised}\n"
    )
    with started("python", write_code(tmp_path, {"main.py": source})) as worker:
        worker.load("main.py")
        reply = worker.call()

        assert (reply.outcome, reply.text) == (FAILED, message)
        assert worker.call({"ok": 1}).json == "fine"


def test_a_time_zone_of_the_function_is_in_force(tmp_path: Path) -> None:
    source = "import time\ndef main(params):\n    return time.localtime(0).tm_hour\n"
    with started("python", write_code(tmp_path, {"main.py": source})) as worker:
        worker.load("main.py", {"TZ": "UTC-5"})

        assert worker.call().json == 5
