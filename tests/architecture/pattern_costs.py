"""Find the regular expressions that take quadratic time, as a process of its own: `python -m` with packages.

Prints one JSON object for each slow pattern: its place, the pattern, the text and the CPU time in seconds.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import re
import sys
import time
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.architecture.hostile_texts import Attack, attacks
from tests.architecture.source import SRC, modules, name_of, nodes
from tests.cpu_limits import cpu_time, limit_process

# A pattern that reads each run of 16 KB once takes 1 to 30 ms, one that reads it from each of its places over 500 ms.
MAX_S = 0.2
SIZE = 16 * 1024
MAX_GROWTH = 2.5  # of the CPU time for each character, from SIZE to four times SIZE; quadratic patterns grow 4 times
GROWN_S = 0.15
_SCREENED_SIZE = 1024
_MEASURED = 3  # texts of a pattern
_LIMIT_S = 3.0  # of one search, and of all small ones for a pattern
_PROCESS_LIMIT_S = 120
_MATCHERS = frozenset({"search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"})
_NAME = "NAME"  # stands for values that are known only when the code runs
_MAX_DEPTH = 8


class Found(NamedTuple):
    pattern: re.Pattern[Any]
    place: str
    method: str  # with which the code uses it; "finditer" for several


def collect(packages: list[str]) -> list[Found]:
    """Return the patterns of packages, in the values of modules and in the calls of functions, each once."""
    paths = [path for path in modules() if name_of(path).startswith(tuple(packages))]
    paths = [path for path in paths if "re." in path.read_text() and "django" not in path.relative_to(SRC).parts]
    uses = _uses(paths)
    found: dict[tuple[Any, int], Found] = {}
    for path in (each for each in paths if "\nimport re\n" in each.read_text()):
        name = name_of(path)
        module = importlib.import_module(name)
        for variable, value in list(vars(module).items()):
            for pattern in _patterns(value):
                method = _method(uses[f"{name}.{variable}"])
                found.setdefault((pattern.pattern, pattern.flags), Found(pattern, f"{name}: {variable}", method))
        for each in _calls(path, module):
            found.setdefault((each.pattern.pattern, each.pattern.flags), each)
    return list(found.values())


def _uses(paths: list[Path]) -> Mapping[str, set[str]]:
    """Return the methods that the code calls, by the full names of variables; "" for any other use of a variable."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        froms = [node for node in nodes(path) if isinstance(node, ast.ImportFrom)]
        known = {alias.asname or alias.name: f"{node.module}.{alias.name}" for node in froms for alias in node.names}
        for text, methods in _own_uses(path).items():
            first, dot, rest = text.partition(".")
            found[f"{known.get(first, f'{name_of(path)}.{first}')}{dot}{rest}"] |= methods
    return found


@cache
def _own_uses(path: Path) -> Mapping[str, set[str]]:
    """Return the methods that a module calls, by the expressions of variables."""
    found: dict[str, set[str]] = defaultdict(set)
    parents = {child: node for node in nodes(path) for child in ast.iter_child_nodes(node)}
    for node in nodes(path):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            parent = parents[node]
            method = parent.attr if isinstance(parent, ast.Attribute) and parent.attr in _MATCHERS else ""
            found[ast.unparse(node)].add(method)
    return found


def _method(methods: set[str]) -> str:
    if not methods or not methods <= {"search", "match", "fullmatch"}:
        return "finditer"
    return next(each for each in ("search", "match", "fullmatch") if each in methods)


def _patterns(value: Any, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    """Yield the patterns in a value, those of its parts and of the functions in it included."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth > _MAX_DEPTH or isinstance(value, str | bytes | int | type | types.ModuleType):
        return
    elif isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            inner = cell.cell_contents
            yield from (
                [re.compile(inner, re.M)]
                if name == "pattern" and isinstance(inner, str)
                else _patterns(inner, depth + 1)
            )
    elif isinstance(value, Mapping):
        yield from (each for inner in value.values() for each in _patterns(inner, depth + 1))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from (each for inner in value for each in _patterns(inner, depth + 1))
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _patterns(getattr(value, field.name, None), depth + 1)


def _calls(path: Path, module: types.ModuleType) -> Iterator[Found]:
    """Yield the patterns that functions compile or use when they run."""
    for node in nodes(path):
        if not isinstance(node, ast.Call) or not node.args or not isinstance(node.func, ast.Attribute):
            continue
        method = node.func.attr
        if ast.unparse(node.func.value) != "re" or method not in {*_MATCHERS, "compile"}:
            continue
        text = _value(node.args[0], module)
        flags = [each.value for each in node.keywords if each.arg == "flags"]
        flags += node.args[1 if method == "compile" else 2 :] if method not in ("sub", "subn", "split") else []
        if text is not None:
            pattern = re.compile(text, *(_value(each, module) for each in flags[:1]))
            method = _method({method}) if method != "compile" else _method(_uses_of(path, node))
            yield Found(pattern, f"{module.__name__}: line {node.lineno}", method)


def _uses_of(path: Path, call: ast.Call) -> set[str]:
    """Return the methods of a compiled pattern, or of the variable that gets it."""
    own = {each.attr for each in nodes(path) if isinstance(each, ast.Attribute) and each.value is call}
    assigned = [each for each in nodes(path) if isinstance(each, ast.Assign) and each.value is call]
    return own | {
        method for each in assigned for target in each.targets for method in _own_uses(path)[ast.unparse(target)]
    }


def _value(node: ast.expr, module: types.ModuleType) -> Any:
    """Return the value of an expression, as far as it is known; None for others."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(_value(each, module) or _NAME) for each in node.values)
    if isinstance(node, ast.FormattedValue):
        return _value(node.value, module)
    try:
        return eval(compile(ast.Expression(node), "pattern", "eval"), dict(vars(module)))
    except (NameError, AttributeError):
        return None


def measure(found: Found) -> dict[str, Any] | None:
    """Return the text for which a pattern is too slow, or None."""
    for attack in _slowest(found):
        cpu_s = cpu_time(_work(found, attack, SIZE), _LIMIT_S)
        if cpu_s > MAX_S or _grows(found, attack, cpu_s):
            text = [attack.start, attack.part, attack.end]
            return {"place": found.place, "pattern": str(found.pattern.pattern), "text": text, "cpu_s": cpu_s}
    return None


def _slowest(found: Found) -> list[Attack]:
    """Return the few texts that are worth measuring, by the time for a small one."""
    times: dict[Attack, float] = {}

    def try_all() -> None:
        for attack in attacks(found.pattern):
            times[attack] = _LIMIT_S  # remains where the search is interrupted
            work, began = _work(found, attack, _SCREENED_SIZE), time.perf_counter()
            work()
            times[attack] = time.perf_counter() - began

    cpu_time(try_all, _LIMIT_S)
    return sorted(times, key=times.__getitem__, reverse=True)[:_MEASURED]


def _grows(found: Found, attack: Attack, cpu_s: float) -> bool:
    """Return whether a text of four times the size takes much longer than four texts."""
    if cpu_s < GROWN_S / 16:
        return False
    large_s = cpu_time(_work(found, attack, 4 * SIZE), _LIMIT_S)
    if large_s < GROWN_S:
        return False
    small = _work(found, attack, SIZE)
    return large_s > MAX_GROWTH * cpu_time(lambda: [small() for _ in range(4)], _LIMIT_S)


def _work(found: Found, attack: Attack, size: int) -> Callable[[], object]:
    text = attack.text(size)
    given = text if isinstance(found.pattern.pattern, str) else text.encode("latin-1", "replace")
    if found.method != "finditer":
        return partial(getattr(found.pattern, found.method), given)
    return lambda: sum(1 for _ in found.pattern.finditer(given))


if __name__ == "__main__":
    limit_process(_PROCESS_LIMIT_S)
    for each in collect(sys.argv[1:]):
        if slow := measure(each):
            print(json.dumps(slow), flush=True)
