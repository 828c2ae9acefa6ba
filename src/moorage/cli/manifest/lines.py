"""Line numbers of the keys in a TOML file, for error messages; the parsers do not keep them."""

from __future__ import annotations

import re
from collections.abc import Iterator

Path = tuple[str | int, ...]

_HEADER = re.compile(r"[ \t]*(\[\[?)([^\]\n]+)\]")
_NAME = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_KEY = re.compile(rf"[ \t]*({_NAME}(?:[ \t]*\.[ \t]*{_NAME})*)[ \t]*=")
_PART = re.compile(_NAME)
_PIECE = re.compile(r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}\n]', re.S)


class Lines:
    """Lines of a valid TOML text by path, such as `("monitors", 0, "url")`."""

    def __init__(self, text: str = "") -> None:
        self._by_path: dict[Path, int] = {}
        counts: dict[Path, int] = {}
        table: Path = ()
        for line, header, keys in _statements(text):
            if header:
                table = self._table(keys, counts, is_array=header == "[[")
                for length in range(1, len(table) + 1):
                    self._by_path.setdefault(table[:length], line)
            else:
                for length in range(1, len(keys) + 1):
                    self._by_path.setdefault((*table, *keys[:length]), line)

    def of(self, path: Path) -> int:
        """Return the line of a path, or of the closest path above it."""
        while path and path not in self._by_path:
            path = path[:-1]
        return self._by_path.get(path, 1)

    @staticmethod
    def _table(keys: Path, counts: dict[Path, int], *, is_array: bool) -> Path:
        path: Path = ()
        for number, key in enumerate(keys):
            path = (*path, key)
            if is_array and number == len(keys) - 1:
                counts[path] = counts.get(path, -1) + 1
            if path in counts:
                path = (*path, counts[path])
        return path


def _statements(text: str) -> Iterator[tuple[int, str, Path]]:
    """Yield line, `[`, `[[` or nothing, and the names, for each header and each key outside of inline tables."""
    position = 0
    while position < len(text):
        line = text.count("\n", 0, position) + 1
        header = _HEADER.match(text, position)
        key = None if header else _KEY.match(text, position)
        if header:
            yield line, header[1], _names(header[2])
        elif key:
            yield line, "", _names(key[1])
        position = _end(text, (header or key).end() if header or key else position)  # type: ignore[union-attr]


def _names(text: str) -> Path:
    return tuple(each.strip("\"'") for each in _PART.findall(text))


def _end(text: str, position: int) -> int:
    """Return the position after the line break that ends a statement."""
    depth = 0
    for piece in _PIECE.finditer(text, position):
        if piece[0] in ("[", "{"):
            depth += 1
        elif piece[0] in ("]", "}"):
            depth = max(depth - 1, 0)
        elif piece[0] == "\n" and depth == 0:
            return piece.end()
    return len(text)
