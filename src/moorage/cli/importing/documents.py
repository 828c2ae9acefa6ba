"""Reads files of other platforms: YAML, JSON and TOML that others wrote, with limits and errors that name the place."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 1_000_000
MAX_NODES = 100_000  # of a YAML document with its aliases expanded


class CannotImport(Exception):
    """A file cannot be read; the message names it, the place and the reason."""


def read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CannotImport(f"cannot read {path}: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise CannotImport(f"{path.name} has more than {MAX_BYTES // 1_000_000} MB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CannotImport(f"{path.name} is not UTF-8 ({error.reason} at byte {error.start})") from error


def read(path: Path) -> Node:
    """Return the document of a file by its suffix."""
    parsers = {".json": _json, ".toml": _toml, ".yml": _yaml, ".yaml": _yaml}
    value = parsers[path.suffix](path.name, read_text(path))
    node = Node(value, path.name)
    node.table()  # raises unless the file is a table
    return node


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise CannotImport(f"{name}:{error.lineno}: is not valid JSON: {error.msg}") from error
    except RecursionError as error:
        raise CannotImport(f"{name} is nested too deeply") from error


def _toml(name: str, text: str) -> Any:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CannotImport(f"{name} is not valid TOML: {error}") from error


def _yaml(name: str, text: str) -> Any:
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise CannotImport(f"{name}{line}: is not valid YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise CannotImport(f"{name} is not valid YAML: {error}") from error
    except RecursionError as error:
        raise CannotImport(f"{name} is nested too deeply") from error
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):  # type: ignore[misc] # PyYAML has no types
    """YAML without numbers and without the words of version 1.1: `010`, `1.10`, `on` and `12:30` stay as written.

    Aliases count as often as they are used, so that a few lines cannot stand for a billion.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = 0
        self._sizes: dict[str, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        is_alias = isinstance(event, yaml.AliasEvent)
        before = self._nodes
        self._nodes += self._sizes.get(event.anchor, 1) if is_alias else 1
        if self._nodes > MAX_NODES:
            raise yaml.MarkedYAMLError(problem="the aliases expand to too much", problem_mark=event.start_mark)
        node = super().compose_node(parent, index)
        if not is_alias and event.anchor is not None:
            self._sizes[event.anchor] = self._nodes - before
        return node


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a document with its place. Readers return nothing for a missing value and raise for a wrong type."""

    value: Any
    file: str
    path: str = ""

    def __getitem__(self, key: str) -> Node:
        value = self.table_value().get(key)
        return Node(value, self.file, f"{self.path}.{key}" if self.path else key)

    def __bool__(self) -> bool:
        return self.value is not None

    def wrong(self, words: str) -> CannotImport:
        kinds = {dict: "a table", list: "a list", str: "a text", bool: "true or false"}
        kind = kinds.get(type(self.value), f"{self.value!r:.40}")
        return CannotImport(f"{self.file}: {self.path or 'the file'} should be {words}, not {kind}")

    def table_value(self) -> dict[str, Any]:
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            raise self.wrong("a table")
        return {str(key): value for key, value in self.value.items()}

    def table(self) -> dict[str, Node]:
        return {key: self[key] for key in self.table_value()}

    def items(self) -> Iterator[Node]:
        if self.value is None:
            return
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        for number, value in enumerate(self.value):
            yield Node(value, self.file, f"{self.path}[{number + 1}]")

    def text(self, default: str = "") -> str:
        """Return a text; numbers and booleans as they are written."""
        if self.value is None:
            return default
        if isinstance(self.value, bool):
            return str(self.value).lower()
        if isinstance(self.value, str | int | float):
            return str(self.value)
        raise self.wrong("a text")

    def number(self) -> float | None:
        if self.value is None:
            return None
        try:
            return float(self.text())
        except ValueError:
            raise self.wrong("a number") from None

    def flag(self, default: bool = False) -> bool:
        if self.value is None:
            return default
        if not isinstance(self.value, bool):
            raise self.wrong("true or false")
        return self.value

    def words(self) -> str:
        """Return a command: a text, or a list of arguments joined for a shell."""
        if isinstance(self.value, list):
            return shlex.join(each.text() for each in self.items())
        return self.text()

    @property
    def is_table(self) -> bool:
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, list)
