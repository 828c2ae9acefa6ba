"""Words of a Dockerfile: quotes, escapes, and substitution of variables with modifiers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moorage.runtime.images.dockerfile import patterns

MAX_RESULT_CHARS = 2**20
MAX_NESTING = 20
_SPECIAL: Final = frozenset("@*#?-$!0")
_END = ""


class BadWord(ValueError):
    """A word has an open quote or an invalid substitution; the message is for the user."""


def expand(text: str, env: Mapping[str, str], escape: str = "\\") -> str:
    """Return a text without quotes and with its variables replaced; raises BadWord."""
    return _Reader(text, env, escape).read()


def expand_document(text: str, env: Mapping[str, str]) -> str:
    """Replace the variables of a heredoc, whose quotes stay."""
    return _Reader(text, env, "\\", keeps_quotes=True).read()


def unquote(text: str, escape: str) -> str:
    """Remove quotes and escapes, and leave variables as they are."""
    return _Reader(text, {}, escape, keeps_unset=True).read()


def split_raw(text: str, escape: str) -> list[str]:
    """Split at spaces outside of quotes; quotes and escapes stay in the words."""
    words: list[str] = []
    word, quote, place = "", "", 0
    while place < len(text):
        char = text[place]
        if char == escape and quote != "'" and place + 1 < len(text):
            word += text[place : place + 2]
            place += 2
            continue
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char.isspace():
            words += [word] if word else []
            word, place = "", place + 1
            continue
        word += char
        place += 1
    return [*words, word] if word else words


class _Reader:
    def __init__(
        self,
        text: str,
        env: Mapping[str, str],
        escape: str,
        *,
        keeps_unset: bool = False,
        keeps_quotes: bool = False,
    ) -> None:
        self._text = text
        self._quotes = "" if keeps_quotes else "'\""
        self._env = env
        self._escape = escape
        self._keeps_unset = keeps_unset
        self._place = 0
        self._depth = 0

    def read(self) -> str:
        result = self._until(_END)
        if len(result) > MAX_RESULT_CHARS:
            raise BadWord("the substitution of variables makes the text too long")
        return result

    def _peek(self) -> str:
        return self._text[self._place] if self._place < len(self._text) else _END

    def _next(self) -> str:
        char = self._peek()
        self._place += 1
        return char

    def _until(self, stop: str) -> str:
        pieces: list[str] = []
        while (char := self._peek()) != _END and char != stop:
            if char in self._quotes:
                pieces.append(self._single_quoted() if char == "'" else self._double_quoted())
            elif char == "$":
                pieces.append(self._variable())
            elif char == self._escape:
                self._place += 1
                pieces.append(self._next())
            else:
                pieces.append(self._next())
        if stop != _END and self._next() != stop:
            raise BadWord(f"a substitution has no closing {stop}")
        return "".join(pieces)

    def _single_quoted(self) -> str:
        end = self._text.find("'", self._place + 1)
        if end < 0:
            raise BadWord("a single quote has no closing quote")
        start, self._place = self._place + 1, end + 1
        return self._text[start:end]

    def _double_quoted(self) -> str:
        self._place += 1
        pieces: list[str] = []
        while (char := self._peek()) != '"':
            if char == _END:
                raise BadWord("a double quote has no closing quote")
            if char == "$":
                pieces.append(self._variable())
                continue
            self._place += 1
            if char == self._escape and self._peek() in ('"', "$", self._escape):
                char = self._next()
            pieces.append(char)
        self._place += 1
        return "".join(pieces)

    def _variable(self) -> str:
        self._place += 1
        if self._peek() != "{":
            name = self._name()
            return self._value(name) if name else "$"
        self._place += 1
        name = self._name()
        if not name:
            raise BadWord("a substitution has no variable name after ${")
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise BadWord(f"substitutions are nested more than {MAX_NESTING} levels deep")
        try:
            return self._modified(name)
        finally:
            self._depth -= 1

    def _name(self) -> str:
        start = self._place
        first = self._peek()
        if first.isascii() and (first.isalpha() or first == "_"):
            while (char := self._peek()) and char.isascii() and (char.isalnum() or char == "_"):
                self._place += 1
        elif first.isascii() and first.isdigit():
            while (char := self._peek()) and char.isascii() and char.isdigit():
                self._place += 1
        elif first in _SPECIAL:
            self._place += 1
        return self._text[start : self._place]

    def _value(self, name: str) -> str:
        return self._env.get(name, f"${name}" if self._keeps_unset else "")

    def _modified(self, name: str) -> str:
        operator = self._next()
        if operator == "}":
            return self._env.get(name, f"${{{name}}}" if self._keeps_unset else "")
        is_strict = operator == ":"  # An empty variable counts as unset.
        if is_strict:
            operator = self._next()
        if operator in ("-", "+", "?") and operator != _END:
            word, value = self._until("}"), self._env.get(name)
            is_set = bool(value) if is_strict else value is not None
            if operator == "?" and not is_set:
                raise BadWord(f"{name}: {word or 'the variable is not set'}")
            if operator == "+":
                return word if is_set else ""
            return (value or "") if is_set else word
        if is_strict or operator not in ("#", "%", "/"):
            raise BadWord(f"the substitution of {name} has the unsupported modifier {':' * is_strict}{operator}")
        is_double = self._peek() == operator
        self._place += is_double
        if operator == "/":
            return self._replaced(name, is_double)
        pattern = self._until_raw("}")
        return patterns.trim(self._env.get(name, ""), pattern, from_end=operator == "%", longest=is_double)

    def _replaced(self, name: str, every: bool) -> str:
        pattern = self._until_raw("/")
        return patterns.replace(self._env.get(name, ""), pattern, self._until("}"), every=every)

    def _until_raw(self, stop: str) -> str:
        """Read a pattern: a backslash before a special character of patterns stays."""
        pieces: list[str] = []
        while (char := self._peek()) != stop:
            if char == _END:
                raise BadWord(f"a substitution has no closing {stop}")
            if char == "\\" and self._place + 1 < len(self._text):
                pieces.append(self._text[self._place : self._place + 2])
                self._place += 2
            elif char == "$":
                pieces.append(self._variable())
            else:
                pieces.append(self._next())
        self._place += 1
        return "".join(pieces)
