"""Reads the first word of a statement, and hides passwords of statements for the audit log."""

from __future__ import annotations

import re

from moorage.runtime.database_servers.queries.model import StatementFailed

MAX_AUDIT_CHARS = 2_000
# The platform begins and ends the transaction of a statement itself.
TRANSACTION_CONTROL = frozenset(
    ("abort", "begin", "commit", "end", "release", "rollback", "savepoint", "start", "xa", "chain")
)
# First words of statements that may not write. MariaDB and MySQL commit before many others, such as SET PASSWORD, and
# are not in a read-only transaction any more then; a DO block of PostgreSQL runs statements of any kind.
READS = frozenset(("explain", "select", "show", "table", "values", "with"))
MYSQL_READS = READS | {"desc", "describe"}
_LINE_COMMENT = re.compile(r"(?:--|#)[^\n]*(?:\n|$)")
_WORD = re.compile(r"[a-z_]+", re.IGNORECASE)
_HAS_PASSWORD = re.compile(r"\b(?:password|identified|secret|credential|token)", re.IGNORECASE)
_LITERAL = re.compile(r"'(?:[^'\\]|''|\\.)*'?|\"(?:[^\"\\]|\"\"|\\.)*\"?|\$(\w*)\$.*?(?:\$\1\$|$)", re.DOTALL)


def check_first_word(word: str, reads: frozenset[str], *, may_write: bool) -> None:
    """Raise StatementFailed for transaction control, and for a write where none is allowed."""
    if word in TRANSACTION_CONTROL:
        raise StatementFailed(f"{word.upper()} is not available: each statement is a transaction of its own")
    if not may_write and word not in reads:
        kinds = ", ".join(sorted(each.upper() for each in reads))
        raise StatementFailed(f"a statement that may not write begins with one of {kinds}")


def first_word(sql: str, *, is_mysql: bool) -> str:
    """Return the first word in lower case, without comments and opening brackets.

    `/*! ... */` of MySQL and MariaDB is code and not a comment, so the word of a statement that begins with one is "".
    PostgreSQL has nested comments and no `#`.
    """
    at = 0
    while at < len(sql):
        if sql[at].isspace() or sql[at] in "(;":
            at += 1
        elif sql.startswith("--", at) or (is_mysql and sql[at] == "#"):
            comment = _LINE_COMMENT.match(sql, at)
            assert comment is not None
            at = comment.end()
        elif sql.startswith("/*", at):
            if is_mysql and sql.startswith(("/*!", "/*M!", "/*m!", "/*+"), at):
                return ""
            at = _end_of_comment(sql, at, nests=not is_mysql)
        else:
            break
    word = _WORD.match(sql, at)
    return word.group().lower() if word else ""


def _end_of_comment(sql: str, at: int, *, nests: bool) -> int:
    depth = 1
    at += 2
    while at < len(sql) and depth:
        if sql.startswith("*/", at):
            depth, at = depth - 1, at + 2
        elif nests and sql.startswith("/*", at):
            depth, at = depth + 1, at + 2
        else:
            at += 1
    return at


def for_audit(sql: str) -> str:
    """Return a statement for the audit log: shortened, and without literals if it may set a password."""
    shown = _LITERAL.sub("'***'", sql) if _HAS_PASSWORD.search(sql) else sql
    return shown if len(shown) <= MAX_AUDIT_CHARS else shown[:MAX_AUDIT_CHARS] + "…"
