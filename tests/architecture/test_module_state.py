"""Modules hold no state but caches: objects reach each other in `wiring.py`, not through dictionaries of modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.architecture.source import SRC, modules, nodes, tree

pytestmark = pytest.mark.group("architecture")  # one process reads the source, and not each of them

CACHES = {
    "cli/session/names.py:_given": "names that the user gave in this command, for messages of errors",
    "core/audit/service.py:_keys": "the key of the audit chain, by store",
    "core/kit/decoding.py:_decoders": "decoders by type",
    "core/kit/records.py:_COMPARED": "fields of records by class",
    "products/monitors/probing/certificates.py:_CACHE": "parsed certificates by fingerprint",
    "runtime/database_servers/software/system.py:_version_outputs": "outputs of --version by program",
    "runtime/images/store.py:_LOCKS": "locks by folder",
    "runtime/sandbox/cgroups/policies.py:_idle": "whether this user may leave the idle class",
    "runtime/workers/python/worker.py:_OWN_MODULES": "modules of the worker itself, which it hides from functions",
}
CHANGES = {"add", "append", "appendleft", "clear", "extend", "insert", "pop", "remove", "setdefault", "update"}


def containers(path: Path) -> set[str]:
    """Return the names of the containers that a module makes when it is imported."""
    found = set()
    for node in tree(path).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            name, value = node.target.id, node.value
        else:
            continue
        is_made = isinstance(value, ast.Call) and ast.unparse(value.func).split("[")[0].rpartition(".")[2] in (
            *("dict", "list", "set", "deque", "defaultdict", "Counter", "OrderedDict"),
            *("WeakKeyDictionary", "WeakSet", "WeakValueDictionary"),
        )
        if is_made or isinstance(value, ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp | ast.SetComp):
            found.add(name)
    return found


def changed_names(path: Path) -> Iterator[str]:
    """Yield the names, and `module.name`, whose value functions of a module change."""
    for function in nodes(path):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        own = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        own |= {argument.arg for argument in ast.walk(function) if isinstance(argument, ast.arg)}
        for node in ast.walk(function):
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
                target = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
                target = node.func.value
            else:
                continue
            if isinstance(target, ast.Name) and target.id not in own:
                yield target.id
            elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                yield f"{target.value.id}.{target.attr}"


def test_containers_of_modules_are_constants_or_caches() -> None:
    made = {path: containers(path) for path in modules()}
    by_module = {(path.stem, name) for path, names in made.items() for name in names}
    changed = set()
    for path in modules():
        inside = path.relative_to(SRC).as_posix()
        for name in changed_names(path):
            module, _, attribute = name.rpartition(".")
            if (name in made[path]) if not module else (module, attribute) in by_module:
                changed.add(f"{inside}:{name}")

    assert changed <= CACHES.keys(), sorted(changed - CACHES.keys())
