"""Read comments of the code: meanings of enum values, headings over fields."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize


def meanings(cls: type) -> dict[str, str]:
    """Return the trailing comment of each assignment in a class, by name."""
    text = textwrap.dedent(inspect.getsource(cls))
    comments = _comments(text)
    meanings = {}
    for node in _body(text):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            meanings[node.targets[0].id] = comments.get(node.end_lineno or node.lineno, "")
    return meanings


def headings(cls: type) -> dict[str, str]:
    """Return the comment right above a field of a class, by the field's name."""
    text = textwrap.dedent(inspect.getsource(cls))
    comments = _comments(text)
    titles = {}
    for node in _body(text):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.lineno - 1 in comments:
            titles[node.target.id] = comments[node.lineno - 1].rstrip(".")
    return titles


def _body(text: str) -> list[ast.stmt]:
    statement = ast.parse(text).body[0]
    return statement.body if isinstance(statement, ast.ClassDef) else []


def _comments(text: str) -> dict[int, str]:
    """Return the comments of a source by line, without comments for tools."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    return {line: comment for line, comment in comments.items() if not comment.startswith(("noqa", "type:"))}
