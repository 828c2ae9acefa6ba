"""The threat model page: boundaries, their promises, and the tests that prove them.

Tests carry the mark `boundary(name, promise)`. The page is generated from the source of the tests, without running
them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from moorage.docs.markdown import page as join

TESTS = Path(__file__).parents[3] / "tests"

# Each boundary: its title, both of its sides, and its limits.
BOUNDARIES = {
    "code-to-host": (
        "Tenant code to host",
        "Functions, builds, apps, cronjobs and database servers run code of tenants on the machine of the operator. "
        "The sandbox separates them: namespaces, a system call filter, resource limits and an empty file system. All "
        "sandboxes share one kernel: a hole in the kernel is outside of these promises.",
    ),
    "tenant-to-tenant": (
        "Tenant to tenant",
        "Organizations share one platform. No organization reads, changes or disturbs resources of another one, "
        "through the API, through shared caches, or by using up shared resources.",
    ),
    "role-to-role": (
        "Role to role inside an organization",
        "Members of one organization have different rights, and tokens may have fewer than their maker. A member that "
        "can deploy code to an app can read everything that the app can read; roles do not separate members there.",
    ),
    "stranger-to-platform": (
        "Stranger to platform",
        "Clients without a credential reach the API, the gateway, the edge and public databases. They get an answer in "
        "bounded time and memory, and cannot lock others out. Floods that fill the network are outside of these "
        "promises.",
    ),
    "tenant-to-network": (
        "Tenant to the network of the operator",
        "The platform connects to addresses that tenants choose, and tenant code connects out of its sandbox. Neither "
        "reaches loopback, private networks, metadata services or the machine's own addresses, unless the operator "
        "allows it.",
    ),
    "supply-chain": (
        "Supply chain",
        "The platform runs dependencies of its own, and installs dependencies for tenants. Its own are pinned by hash; "
        "those of tenants are installed in a sandbox and stay inside their organization.",
    ),
    "stranger-to-user": (
        "Stranger to the machine of a user",
        "The command line reads folders and prints texts that strangers wrote. A deployment publishes the files of its "
        "folder only and starts no program, and no text steers the terminal. `moorage functions dev` runs the code of "
        "a folder without a sandbox: the code itself is outside of these promises.",
    ),
}


@dataclass(frozen=True, slots=True)
class Proof:
    boundary: str
    promise: str
    file: str  # relative to the folder of the tests
    test: str


class UnreadableMark(ValueError):
    """The arguments of a mark are not a known boundary and a text."""


def page(tests: Path = TESTS) -> str:
    proofs = sorted(read_proofs(tests), key=lambda each: (each.promise, each.file, each.test))
    blocks = [
        "# Threat model",
        "Each boundary that the platform keeps, its promises, and the tests that prove each of them. "
        "[Security](../explanation/security.md) explains how.",
    ]
    for boundary, (title, text) in BOUNDARIES.items():
        own_proofs = [each for each in proofs if each.boundary == boundary]
        blocks += [f"## {title}", text, _promises(own_proofs)]
    return join(*blocks)


def _promises(proofs: list[Proof]) -> str:
    files: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for each in proofs:
        files[each.promise][each.file].append(each.test)
    lines = []
    for promise, by_file in files.items():
        lines.append(f"- {promise}")
        for file, names in by_file.items():
            shown = ", ".join(f"`{name}`" for name in names)
            lines.append(f"  - [{file}](../../tests/{file}): {shown}")
    return "\n".join(lines)


def read_proofs(tests: Path) -> Iterator[Proof]:
    """Yield every marked test below a folder."""
    for path in sorted(tests.rglob("test_*.py")):
        if "node_modules" in path.parts:
            continue
        text = path.read_text(encoding="utf-8")
        if "mark.boundary" in text:
            yield from _proofs_of(ast.parse(text), path.relative_to(tests).as_posix())


def _proofs_of(module: ast.Module, file: str) -> Iterator[Proof]:
    texts = _constants(module)
    of_module = [
        mark
        for statement in module.body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark"
        for mark in _marks(
            statement.value.elts if isinstance(statement.value, ast.List | ast.Tuple) else [statement.value]
        )
    ]
    for statement in module.body:
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) or not statement.name.startswith("test_"):
            continue
        for mark in (*of_module, *_marks(statement.decorator_list)):
            boundary, promise = _arguments(mark, texts, file)
            yield Proof(boundary, promise, file, statement.name)


def _marks(expressions: list[ast.expr]) -> list[ast.Call]:
    return [
        each
        for each in expressions
        if isinstance(each, ast.Call) and ast.unparse(each.func) in ("pytest.mark.boundary", "mark.boundary")
    ]


def _constants(module: ast.Module) -> dict[str, str]:
    """Return the string constants of a module by name."""
    return {
        ast.unparse(statement.targets[0]): statement.value.value
        for statement in module.body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    }


def _arguments(mark: ast.Call, texts: dict[str, str], file: str) -> tuple[str, str]:
    arguments = [each.value if isinstance(each, ast.Constant) else texts.get(ast.unparse(each)) for each in mark.args]
    match arguments:
        case [str(boundary), str(promise)] if boundary in BOUNDARIES and promise.endswith("."):
            return boundary, promise
    raise UnreadableMark(
        f"tests/{file}:{mark.lineno}: boundary takes one of {', '.join(BOUNDARIES)} and a sentence that ends with a dot"
    )
