"""Texts for which a regular expression takes longest, made from the parts of its own pattern.

A search takes quadratic time where it reads a run of characters again from each of its places: because two repeated
parts match the same characters, or because a search begins at each repetition of the text. So each text repeats a part
of the pattern, after the beginning that the pattern needs, and ends with a character that makes the match fail.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

_PARSER = importlib.import_module("re._parser")
_OP = importlib.import_module("re._constants")
_REPEATS = (_OP.MAX_REPEAT, _OP.MIN_REPEAT, _OP.POSSESSIVE_REPEAT)
_SETS = (_OP.LITERAL, _OP.NOT_LITERAL, _OP.ANY, _OP.IN)
# Characters that are tried for a part that matches several.
_PROBES = "a1 \n_-./=A,:\t\"'()[]{}@#<>*+\\$~|&;!`%^é"
_ALWAYS = ("a", "1", " ", "\n", "a-", "a.", "_", '"', "'", "(", "=", ",", "\\", "/*", "<a ", "\n-", " \n", "@a\n", "--")
_MAX_PUMPS = 12  # of a part
_MAX_ATTACKS = 400
_MAX_DEPTH = 3  # of alternatives that are followed to the end of the pattern
_BOUND = 50  # A repetition of more than so many counts as one without a bound.
_END = "\0"

Nodes = Sequence[tuple[Any, Any]]


class Attack(NamedTuple):
    start: str
    part: str  # is repeated
    end: str

    def text(self, size: int) -> str:
        """Return the text of about `size` characters."""
        return self.start + self.part * max(1, (size - len(self.start)) // len(self.part)) + self.end


def attacks(pattern: re.Pattern[Any]) -> list[Attack]:
    """Return the different texts for a pattern; of very many, some of each part."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    parsed = _PARSER.parse(text, pattern.flags if isinstance(pattern.pattern, str) else pattern.flags & ~re.UNICODE)
    walk = _Walk(parsed.state.flags)
    walk.follow(list(parsed), "")
    found = list(dict.fromkeys(each for each in walk.attacks() if each.part))
    return found[:: len(found) // _MAX_ATTACKS + 1]


class _Walk:
    """Finds the repeated parts of a pattern, each with a text that leads to it."""

    def __init__(self, flags: int) -> None:
        self._flags = flags
        self._groups: dict[int | None, str] = {}
        self._found: dict[str, list[str]] = {}  # parts to repeat, by the text before

    def attacks(self) -> Iterator[Attack]:
        lead = "\n" if self._flags & re.MULTILINE else ""
        for before, parts in self._found.items():
            start = f"{lead}{before}"
            yield from (Attack("", start, _END), Attack("", before, _END))
            for part in parts:
                yield from (Attack(start, part, _END), Attack(start, part, f"\n{_END}"))
                yield from (Attack("", part, _END), Attack("", before + part, _END))
                yield Attack("", f"{before}{part}\n", _END)
        for part in _ALWAYS:
            yield Attack("", part, _END)

    def follow(self, nodes: Nodes, before: str, depth: int = 0) -> None:
        for number, (op, value) in enumerate(nodes):
            rest = nodes[number + 1 :]
            if op in _REPEATS:
                low, high, body = value
                if high > _BOUND:
                    self._found.setdefault(before, []).extend(self._parts(list(body)))
                self.follow(list(body), before, depth + 1)
                if low == 0 and high <= _BOUND and depth < _MAX_DEPTH:
                    self.follow(rest, before + self._shortest(list(body)), depth + 2)
            elif op is _OP.BRANCH:
                for each in value[1]:
                    self.follow(list(each), before, depth + 1)
                    if depth < _MAX_DEPTH - 1:
                        self.follow(rest, before + self._shortest(list(each)), depth + 2)
            elif body := self._inner(op, value):
                self.follow(body, before, depth)
            before += self._shortest([(op, value)])
        self._found.setdefault(before, [])

    @staticmethod
    def _inner(op: Any, value: Any) -> Nodes:
        if op is _OP.SUBPATTERN:
            return list(value[3])
        if op is _OP.ATOMIC_GROUP:
            return list(value)
        return list(value[1]) if op in (_OP.ASSERT, _OP.ASSERT_NOT) and value[0] == 1 else []

    def _parts(self, body: Nodes) -> list[str]:
        """Return texts of a repeated part: its characters, or short matches of it."""
        if len(body) == 1 and body[0][0] in _SETS:
            return self._characters(*body[0])[:_MAX_PUMPS]
        if len(body) == 1 and body[0][0] is _OP.BRANCH:
            return [each for branch in body[0][1][1] for each in self._parts(list(branch))][:_MAX_PUMPS]
        if len(body) == 1 and (inner := self._inner(*body[0])):
            return self._parts(inner)
        walk = _Walk(self._flags)
        walk.follow(body, "", _MAX_DEPTH)
        longer = [f"{before}{part}" for before, parts in walk._found.items() for part in parts[:4]]
        return list(filter(None, (self._shortest(body), *longer)))[:_MAX_PUMPS]

    def _shortest(self, nodes: Nodes) -> str:
        """Return a short match."""
        return "".join(self._shortest_of(op, value) for op, value in nodes)

    def _shortest_of(self, op: Any, value: Any) -> str:
        if op in _SETS:
            return next(iter(self._characters(op, value)), "a")
        if op in _REPEATS:
            return self._shortest(list(value[2])) * int(value[0])
        if op is _OP.BRANCH:
            return self._shortest(list(value[1][0]))
        if op is _OP.GROUPREF:
            return self._groups.get(value, "")
        if op in (_OP.SUBPATTERN, _OP.ATOMIC_GROUP):
            text = self._shortest(self._inner(op, value))
            if op is _OP.SUBPATTERN:
                self._groups[value[0]] = text
            return text
        return ""

    def _characters(self, op: Any, value: Any) -> list[str]:
        if op is _OP.LITERAL:
            return [chr(value)]
        found = [each for each in _PROBES if self._matches(op, value, each)]
        others = (
            [chr(low if isinstance(low, int) else low[0]) for kind, low in value if kind in (_OP.LITERAL, _OP.RANGE)]
            if op is _OP.IN
            else []
        )
        return found or others

    def _matches(self, op: Any, value: Any, char: str) -> bool:
        if op is _OP.ANY:
            return char != "\n" or bool(self._flags & re.DOTALL)
        if op is _OP.NOT_LITERAL:
            return bool(chr(value) != char)
        is_in = any(_is_in(kind, each, char) for kind, each in value)
        return is_in is not any(kind is _OP.NEGATE for kind, _ in value)


def _is_in(kind: Any, value: Any, char: str) -> bool:
    if kind is _OP.LITERAL:
        return bool(chr(value) == char)
    if kind is _OP.RANGE:
        return bool(value[0] <= ord(char) <= value[1])
    if kind is not _OP.CATEGORY:
        return False
    name = str(value)
    is_one = char.isdigit() if name.endswith("DIGIT") else char.isspace() if name.endswith("SPACE") else _is_word(char)
    return is_one is not ("_NOT_" in name)


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"
