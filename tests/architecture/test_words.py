"""Docstrings and comments name their subject: words that stand for one are rare."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.architecture.source import SRC, modules, nodes

pytestmark = pytest.mark.group("architecture")

VAGUE = {"what", "who", "whoever", "whom", "somebody", "nobody", "whatever"}
MAX_PER_THOUSAND = 3


def texts(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    source = path.read_text()
    for token in tokenize.generate_tokens(io.StringIO(source).readline) if "#" in source else ():
        if token.type == tokenize.COMMENT:
            yield token.string


def test_docstrings_and_comments_name_their_subject() -> None:
    total, vague = 0, dict[str, int]()
    for path in modules():
        words = [word.lower() for text in texts(path) for word in re.findall(r"[A-Za-z']+", text)]
        total += len(words)
        if count := sum(word in VAGUE for word in words):
            vague[str(path.relative_to(SRC))] = count

    worst = sorted(vague.items(), key=lambda item: -item[1])[:10]
    assert sum(vague.values()) * 1000 < MAX_PER_THOUSAND * total, worst
