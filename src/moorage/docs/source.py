"""Reads what the code says in comments: the meaning of an enum's values, the headings over a class's fields."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize


def meanings(cls: type) -> dict[str, str]:
    """Return the comment at the end of each assignment in a class, by the name assigned."""
    text = textwrap.dedent(inspect.getsource(cls))
    comments = _comments(text)
    found = {}
    for node in _body(text):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = comments.get(node.end_lineno or node.lineno, "")
    return found


def headings(cls: type) -> dict[str, str]:
    """Return the comment right above a field of a class, by the field's name."""
    text = textwrap.dedent(inspect.getsource(cls))
    comments = _comments(text)
    found = {}
    for node in _body(text):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.lineno - 1 in comments:
            found[node.target.id] = comments[node.lineno - 1].rstrip(".")
    return found


def _body(text: str) -> list[ast.stmt]:
    statement = ast.parse(text).body[0]
    return statement.body if isinstance(statement, ast.ClassDef) else []


def _comments(text: str) -> dict[int, str]:
    """Return the comments of a source by line; notes to tools say nothing to a reader."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    said = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    return {line: comment for line, comment in said.items() if not comment.startswith(("noqa", "type:"))}
