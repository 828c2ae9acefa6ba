"""Rules that keep the product safe by construction, checked on its source."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.architecture.source import ROOT, SRC, calls, functions, modules, name_of

pytestmark = pytest.mark.group("architecture")  # one process reads the source, and not each of them

SPAWNERS = {"Popen", "run", "call", "check_call", "check_output", "create_subprocess_exec", "execv", "execve", "spawnv"}


def test_nothing_runs_a_shell() -> None:
    wrong = []
    for path in modules():
        for call in calls(path):
            name = ast.unparse(call.func)
            if name in ("os.system", "os.popen", "subprocess.getoutput", "asyncio.create_subprocess_shell"):
                wrong.append(f"{path.relative_to(SRC)}:{call.lineno} {name}")
            # `ImageConfig(shell=…)` is the instruction of a Dockerfile.
            if name != "ImageConfig" and any(keyword.arg == "shell" for keyword in call.keywords):
                wrong.append(f"{path.relative_to(SRC)}:{call.lineno} shell=")

    assert wrong == []


def test_a_program_is_started_with_a_list_and_never_with_a_text() -> None:
    wrong = []
    for path in modules():
        for call in calls(path):
            name = ast.unparse(call.func)
            is_spawn = (
                name.startswith(("subprocess.", "asyncio.create_subprocess")) and name.rpartition(".")[2] in SPAWNERS
            )
            if is_spawn and call.args and isinstance(call.args[0], ast.Constant | ast.JoinedStr | ast.BinOp):
                wrong.append(f"{path.relative_to(SRC)}:{call.lineno}")

    assert wrong == []


def test_typed_json_is_decoded_by_the_module_that_is_safe_in_threads() -> None:
    """Only `core.kit.decoding` describes types to msgspec: two threads at once would end the process."""
    wrong = []
    for path in modules():
        if name_of(path) == "moorage.core.kit.decoding":
            continue
        for call in calls(path):
            name = ast.unparse(call.func)
            has_type = bool(call.args[1:]) or any(keyword.arg == "type" for keyword in call.keywords)
            is_typed = (name == "msgspec.json.decode" and has_type) or (name == "msgspec.json.Decoder" and call.args)
            if is_typed or name == "msgspec.convert":
                wrong.append(f"{path.relative_to(SRC)}:{call.lineno} {name}")

    assert wrong == []


def test_every_function_that_takes_a_transaction_takes_the_organization_or_says_why_not() -> None:
    """Route handlers and job handlers are given theirs by the caller and the payload."""
    wrong = []
    for path in modules():
        module = name_of(path)
        if module.startswith(("moorage.core.db", "moorage.core.http", "moorage.docs")) or module.endswith(
            ("routes", ".jobs", ".app", ".opening", ".admin", ".chores")
        ):
            continue
        for function in functions(path):
            names = [argument.arg for argument in function.args.args if argument.arg != "self"]
            if names[:1] != ["tx"] or names[1:2] == ["org_id"]:
                continue
            marked = any("across_organizations" in ast.unparse(mark) for mark in function.decorator_list)
            if not marked and not _only_delegates(module, function.name) and not _is_nested(path, function):
                wrong.append(f"{path.relative_to(SRC)}:{function.lineno} {function.name}({', '.join(names)})")

    assert wrong == []


# Functions that touch no table of an organization: the fence of a job, moves by row, and the platform's own key.
_NEUTRAL = {
    "moorage.core.worker.run": {"hold"},
    "moorage.core.audit.service": {"ensure_key", "_key"},
    "moorage.accounts.identity.gate": {"_check_standing"},
}


def _only_delegates(module: str, function: str) -> bool:
    return function in _NEUTRAL.get(module, set())


def _is_nested(path: Path, function: ast.AST) -> bool:
    return any(inner is function for outer in functions(path) if outer is not function for inner in ast.walk(outer))


def test_catching_everything_stands_only_at_the_edges_and_says_so() -> None:
    wrong = []
    for path in modules():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"except (Base)?Exception\b", line) and "noqa: BLE001 - " not in line:
                following = path.read_text().splitlines()[number : number + 8]
                if not any("raise" in text for text in following):
                    wrong.append(f"{path.relative_to(SRC)}:{number}")

    assert wrong == []


def test_no_file_names_a_package_registry_or_a_path_of_a_machine() -> None:
    hosts = ["pypi" + ".org", "npmjs" + ".org", "npmjs" + ".com", "pythonhosted" + ".org", "deb.debian" + ".org"]
    wrong = []
    for path in _files():
        content = path.read_bytes()
        wrong += [f"{path.relative_to(ROOT)}: {host}" for host in hosts if host.encode() in content]

    assert wrong == []


def _files() -> Iterator[Path]:
    """Yield the files of the repository, without the folders of tools."""
    tools = {".git", ".venv", ".bench", ".hypothesis"}
    for folder, names, files in os.walk(ROOT):
        is_top = Path(folder) == ROOT
        names[:] = [
            name
            for name in names
            if name not in ("node_modules", "__pycache__")
            and not (name.startswith(".") and name.endswith("_cache"))
            and not (is_top and name in tools)
        ]
        yield from (path for name in files if (path := Path(folder, name)).is_file() and not (is_top and name in tools))
