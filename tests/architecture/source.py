"""The product's source, as the architecture tests see it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "moorage"


def modules() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def name_of(path: Path) -> str:
    """Return `moorage.core.http.route` for its file."""
    parts = path.relative_to(SRC.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree(path)))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the full name of everything of ours that a module imports, wherever the import stands."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.startswith("moorage"))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("moorage"):
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def calls(path: Path) -> Iterator[ast.Call]:
    for node in nodes(path):
        if isinstance(node, ast.Call):
            yield node
