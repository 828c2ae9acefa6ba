"""Modules that are executed on first use, in a process of their own: the finder applies to a whole process."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

PROLOGUE = """
import json, sys, threading
sys.path.insert(0, sys.argv[1])
executed = []
sys.modules["trace"] = type(sys)("trace")
sys.modules["trace"].executed = executed
from moorage.core.kit import imports
imports.execute_on_first_use("harbour.", "pier")
"""


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Run a program beside a package `harbour` with modules that record their execution, and a package `pier`."""

    def run(program: str, **modules: str) -> Any:
        for package in ("harbour", "pier"):
            (tmp_path / package).mkdir()
            (tmp_path / package / "__init__.py").write_text(
                "import trace\ntrace.executed.append(__name__)\nWIDTH = 3\n"
            )
        for name, text in {"boats": "SIZE = 7", **modules}.items():
            source = f"import trace\ntrace.executed.append(__name__)\n{textwrap.dedent(text)}\n"
            (tmp_path / "harbour" / f"{name}.py").write_text(source)
        argv = [sys.executable, "-c", PROLOGUE + textwrap.dedent(program), str(tmp_path)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_a_module_is_executed_by_its_first_attribute_access_and_only_once(run: Any) -> None:
    program = """
    from harbour import boats
    before = list(executed)
    sizes = [boats.SIZE, boats.SIZE]
    print(json.dumps([before, sizes, executed, type(boats) is type(sys)]))
    """

    assert run(program) == [["harbour"], [7, 7], ["harbour", "harbour.boats"], True]


def test_a_name_of_a_module_is_imported_at_once(run: Any) -> None:
    program = """
    from harbour.boats import SIZE
    print(json.dumps([SIZE, executed]))
    """

    assert run(program) == [7, ["harbour", "harbour.boats"]]


def test_a_named_package_is_executed_on_first_use(run: Any) -> None:
    program = """
    import pier
    before = list(executed)
    print(json.dumps([before, pier.WIDTH, executed]))
    """

    assert run(program) == [[], 3, ["pier"]]


def test_an_attribute_that_is_set_first_is_not_overwritten_by_the_execution(run: Any) -> None:
    program = """
    from harbour import boats
    boats.SIZE = 9
    print(json.dumps([boats.SIZE, executed]))
    """

    assert run(program) == [9, ["harbour", "harbour.boats"]]


def test_another_thread_waits_for_the_execution(run: Any) -> None:
    program = """
    from harbour import boats
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(boats.SIZE)) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(json.dumps([seen, executed]))
    """
    slow = "import time\ntime.sleep(0.2)\nSIZE = 7"

    assert run(program, boats=slow) == [[7] * 8, ["harbour", "harbour.boats"]]


def test_modules_that_import_each_other_are_executed_like_without_it(run: Any) -> None:
    program = """
    from harbour import boats
    print(json.dumps([boats.name(), executed]))
    """
    boats = "from harbour import crews\ndef name():\n    return crews.NAME\ndef owner():\n    return 'ada'"
    crews = "from harbour import boats\nNAME = 'crew of ' + boats.owner()"

    assert run(program, boats=boats, crews=crews) == ["crew of ada", ["harbour", "harbour.boats", "harbour.crews"]]


def test_a_failed_execution_is_raised_and_tried_again(run: Any) -> None:
    program = """
    from harbour import boats
    failures = 0
    for _ in range(2):
        try:
            boats.SIZE
        except ZeroDivisionError:
            failures += 1
    print(json.dumps([failures, executed]))
    """

    assert run(program, boats="SIZE = 1 / 0") == [2, ["harbour", "harbour.boats", "harbour.boats"]]


def test_a_hidden_module_has_only_the_given_names(run: Any) -> None:
    program = """
    with imports.hidden("harbour.boats", SIZE=None):
        from harbour.boats import SIZE
    from harbour import boats
    print(json.dumps([SIZE, boats.SIZE]))
    """

    assert run(program) == [None, 7]
