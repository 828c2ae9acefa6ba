"""Splits the text of a Dockerfile into instructions: directives, comments, continuation lines, heredocs."""

from __future__ import annotations

import re

from moorage.core.kit.records import dataclass
from moorage.runtime.images.dockerfile import words
from moorage.runtime.images.dockerfile.errors import DockerfileError

MAX_CHARS = 2**20
MAX_INSTRUCTIONS = 1_000
DIRECTIVES = frozenset({"syntax", "escape", "check"})
WITH_HEREDOCS = frozenset({"RUN", "COPY", "ADD"})
_DIRECTIVE = re.compile(r"#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.*)")
_SYNTAX = re.compile(r"(?:docker\.io/)?docker/dockerfile(?:-upstream)?(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?")
_HEREDOC = re.compile(r"\d*<<(-?)([^<]+)")


@dataclass(frozen=True, slots=True)
class Heredoc:
    name: str
    body: str  # the lines between the instruction and the terminator, each with its newline
    expands: bool  # False if the name was quoted

    def script(self, text: str) -> str:
        return f"{text}\n{self.body}{self.name}"


@dataclass(frozen=True, slots=True)
class Line:
    """One instruction with its continuation lines."""

    number: int  # of the first physical line
    keyword: str  # upper case
    rest: str
    heredocs: tuple[Heredoc, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    escape: str
    lines: tuple[Line, ...]


def split(text: str) -> Document:
    """Return the instructions of a Dockerfile; raises DockerfileError."""
    if len(text) > MAX_CHARS:
        raise DockerfileError(1, f"the file has more than {MAX_CHARS:,} characters")
    if "\0" in text:
        raise DockerfileError(text[: text.index("\0")].count("\n") + 1, "the file has a NUL character")
    physical = text.removeprefix("\ufeff").split("\n")
    physical = [line.removesuffix("\r") for line in physical]
    escape, start = _directives(physical)
    lines = tuple(_Splitter(physical, start, escape).lines())
    if not lines:
        raise DockerfileError(1, "the file has no instructions")
    return Document(escape, lines)


def _directives(physical: list[str]) -> tuple[str, int]:
    """Return the escape character, and the number of leading lines that are directives."""
    escape, seen = "\\", set()
    for number, line in enumerate(physical):
        match = _DIRECTIVE.fullmatch(line.strip())
        name = match[1].lower() if match else ""
        if match is None or name not in DIRECTIVES:
            return escape, number
        if name in seen:
            raise DockerfileError(number + 1, f"the directive {name!r} is given twice")
        seen.add(name)
        if name == "syntax" and not _SYNTAX.fullmatch(match[2]):
            raise DockerfileError(number + 1, f"the syntax {match[2][:80]!r} is not supported: use docker/dockerfile:1")
        if name == "escape":
            if match[2] not in ("\\", "`"):
                raise DockerfileError(number + 1, f"the escape character {match[2]!r} should be \\ or `")
            escape = match[2]
    return escape, len(physical)


class _Splitter:
    def __init__(self, physical: list[str], start: int, escape: str) -> None:
        self._physical = physical
        self._next = start
        self._escape = escape
        mark = re.escape(escape)
        self._continued = re.compile(rf"(.*[^{mark}])?{mark}[ \t]*", re.DOTALL)

    def lines(self) -> list[Line]:
        instructions: list[Line] = []
        while self._next < len(self._physical):
            number = self._next + 1
            first = self._take().lstrip()
            if not first or first.startswith("#"):
                continue
            instructions.append(self._instruction(number, self._join(first)))
            if len(instructions) > MAX_INSTRUCTIONS:
                raise DockerfileError(number, f"the file has more than {MAX_INSTRUCTIONS:,} instructions")
        return instructions

    def _take(self) -> str:
        self._next += 1
        return self._physical[self._next - 1]

    def _join(self, line: str) -> str:
        """Append the continuation lines; comments and empty lines between them are dropped."""
        pieces: list[str] = []
        while (match := self._continued.fullmatch(line)) is not None:
            pieces.append(match[1] or "")
            line = ""
            while self._next < len(self._physical):
                line = self._take()
                if line.strip() and not line.lstrip().startswith("#"):
                    break
                line = ""
        return "".join((*pieces, line))

    def _instruction(self, number: int, text: str) -> Line:
        keyword, _, rest = text.strip().replace("\t", " ", 1).partition(" ") if "\t" in text else _cut(text)
        keyword, rest = keyword.upper(), rest.strip()
        inner = rest.split(None, 1)[0].upper() if keyword == "ONBUILD" and rest else keyword
        heredocs = self._heredocs(number, rest) if inner in WITH_HEREDOCS else ()
        return Line(number, keyword, rest, heredocs)

    def _heredocs(self, number: int, rest: str) -> tuple[Heredoc, ...]:
        return tuple(self._body(number, *each) for each in find_heredocs(rest))

    def _body(self, number: int, name: str, expands: bool, strips: bool) -> Heredoc:
        body: list[str] = []
        while self._next < len(self._physical):
            line = self._take()
            line = line.lstrip("\t") if strips else line
            if line == name:
                return Heredoc(name, "".join(f"{each}\n" for each in body), expands)
            body.append(line)
        raise DockerfileError(number, f"the heredoc {name} has no end: add a line with {name} alone")


def _cut(text: str) -> tuple[str, str, str]:
    keyword, *rest = text.strip().split(None, 1)
    return keyword, " ", rest[0] if rest else ""


def find_heredocs(rest: str) -> list[tuple[str, bool, bool]]:
    """Return name, expansion and removal of tabs of each heredoc that the arguments open."""
    if rest.startswith("["):
        return []
    return [heredoc for word in words.split_raw(rest, "\\") if (heredoc := parse_heredoc(word)) is not None]


def parse_heredoc(word: str) -> tuple[str, bool, bool] | None:
    match = _HEREDOC.fullmatch(word)
    if match is None:
        return None
    name = words.unquote(match[2], "\\")
    return (name, name == match[2], match[1] == "-") if name and not re.search(r"\s", name) else None
