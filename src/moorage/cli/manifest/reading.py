"""Reads and checks moorage.toml; reports all problems at once, each with its line."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from moorage.cli.manifest import lines
from moorage.cli.manifest.fields import Field, Shape
from moorage.cli.manifest.lines import Lines
from moorage.cli.manifest.resources import BY_SECTION, PROJECT, REMOVABLE, SECTIONS, Resource
from moorage.core.kit.decoding import convert

FILE_NAME = "moorage.toml"
MAX_BYTES = 1_000_000
REMOVED = "removed"

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Problem:
    path: lines.Path
    text: str


class ManifestError(Exception):
    """moorage.toml cannot be used; the message has one line for each problem."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(slots=True)
class Manifest:
    """A checked moorage.toml. `sections` has those that the file has; a missing section is not managed."""

    path: Path
    project: Entry | None = None
    sections: dict[str, list[Entry]] = field(default_factory=dict)
    removed: dict[str, list[str]] = field(default_factory=dict)
    lines: Lines = field(default_factory=Lines)

    @property
    def project_name(self) -> str | None:
        return self.project["name"] if self.project is not None else None

    def where(self, *path: str | int) -> str:
        """Return file and line of a key, for a message."""
        return f"{self.path.name}:{self.lines.of(path)}"


def load(folder: Path) -> Manifest | None:
    """Return the settings of a folder, or of a file; None without the file. Raises ManifestError."""
    path = folder / FILE_NAME if folder.is_dir() or folder.suffix != ".toml" else folder
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ManifestError([f"cannot read {path}: {error.strerror}"]) from error
    if len(content) > MAX_BYTES:
        raise ManifestError([f"{path.name} has more than {MAX_BYTES // 1_000_000} MB"])
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ManifestError([f"{path.name} is not UTF-8 ({error.reason} at byte {error.start})"]) from error
    return parse(text, path)


def parse(text: str, path: Path) -> Manifest:
    """Return the settings of a text. Raises ManifestError."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ManifestError([f"{path.name} is not valid TOML: {error}"]) from error
    manifest = Manifest(path, lines=Lines(text))
    problems = _Checker(manifest).run(document)
    if problems:
        ordered = sorted(problems, key=lambda each: manifest.lines.of(each.path))
        raise ManifestError([f"{manifest.where(*each.path)}: {dotted(each.path)}{each.text}" for each in ordered])
    return manifest


def dotted(path: lines.Path) -> str:
    """Return a path as in the file: `monitors.alerts.threshold`; entries of a list have a number from 1 on."""
    text = ""
    for each in path:
        text += f"[{each + 1}]" if isinstance(each, int) else f".{each}" if text else each
    return f"{text} " if text else ""


class _Checker:
    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._problems: list[Problem] = []

    def run(self, document: Mapping[str, Any]) -> list[Problem]:
        known = (PROJECT.section, *BY_SECTION, REMOVED)
        for key, value in document.items():
            if key == PROJECT.section:
                self._manifest.project = self._entry(PROJECT, value, (key,))
            elif key in BY_SECTION:
                self._manifest.sections[key] = self._section(BY_SECTION[key], value, (key,))
            elif key == REMOVED:
                self._removed(value)
            else:
                self._unknown((key,), key, known)
        for resource in SECTIONS:
            if resource.is_of_project and self._manifest.project is None and resource.section in document:
                self._add((resource.section,), f"needs the table [{PROJECT.section}]: it belongs to a project")
        return self._problems

    def _add(self, path: lines.Path, text: str) -> None:
        self._problems.append(Problem(path, text))

    def _unknown(self, path: lines.Path, key: str, known: tuple[str, ...]) -> None:
        near = get_close_matches(_kebab(key), known, n=1, cutoff=0.6)
        advice = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(sorted(known))}"
        self._add(path, f"is not a key of moorage.toml; {advice}")

    def _section(self, resource: Resource, value: Any, path: lines.Path) -> list[Entry]:
        if not isinstance(value, list):
            self._add(path, f"should be a list of tables, written [[{'.'.join(map(str, path))}]]")
            return []
        entries = [self._entry(resource, each, (*path, number)) for number, each in enumerate(value)]
        seen: dict[str, int] = {}
        for number, entry in enumerate(entries):
            name = resource.name_of(entry)
            if name and seen.setdefault(name, number) != number:
                self._add((*path, number), f"has the same {' and '.join(resource.identity)} as entry {seen[name] + 1}")
        return entries

    def _entry(self, resource: Resource, value: Any, path: lines.Path) -> Entry:
        if not isinstance(value, dict):
            self._add(path, "should be a table")
            return {}
        children = {each.section: each for each in resource.children}
        entry = self._table(resource.fields, {k: v for k, v in value.items() if k not in children}, path, (*children,))
        for key, child in children.items():
            if key in value:
                entry[key] = self._section(child, value[key], (*path, key))
        return entry

    def _table(
        self, fields: Mapping[str, Field], value: Mapping[str, Any], path: lines.Path, also: tuple[str, ...] = ()
    ) -> Entry:
        entry: Entry = {}
        for key, each in value.items():
            if key not in fields:
                self._unknown((*path, key), key, (*fields, *also))
            elif fields[key].shape is Shape.TABLE and isinstance(each, dict):
                entry[key] = self._table(fields[key].table, each, (*path, key))
            elif (problem := problem_of(fields[key], each)) is None:
                entry[key] = each
            else:
                self._add((*path, key), problem)
        for key, each in fields.items():
            if each.is_required and key not in value:
                self._add(path, f"needs the key {key}")
        return entry

    def _removed(self, value: Any) -> None:
        if not isinstance(value, dict):
            self._add((REMOVED,), "should be a table")
            return
        for key, names in value.items():
            if key not in REMOVABLE:
                self._unknown((REMOVED, key), key, REMOVABLE)
            elif not _is_names(names):
                self._add((REMOVED, key), "should be a list of names")
            else:
                kept = {entry.get("name") for entry in self._manifest.sections.get(key, [])}
                for name in kept & set(names):
                    self._add((REMOVED, key), f"has {name}, which is also in [[{key}]]")
                self._manifest.removed[key] = names


def _kebab(key: str) -> str:
    """Return a key of another style, such as `baseDir` or `base_dir`, in the style of the file."""
    return "".join(f"-{each.lower()}" if each.isupper() else each for each in key).replace("_", "-").strip("-")


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) and each for each in value)


def problem_of(field: Field, value: Any) -> str | None:
    """Return the problem of a value, as the end of a sentence about its key; None where it fits."""
    if field.shape is Shape.HIDDEN:
        return _hidden_problem(value)
    if field.shape is Shape.NAMES:
        return None if _is_names(value) else f'should be a list of names, such as ["API_KEY"], not {_toml(value)}'
    if field.shape is Shape.PAIRS:
        return _pairs_problem(value)
    if field.shape is Shape.TABLE:
        return f"should be a table, not {_toml(value)}"
    try:
        convert(value, field.kind, strict=True)
    except msgspec.ValidationError:
        return f"should be {words_of(field.kind)}, not {_toml(value)}"
    return None


def _hidden_problem(value: Any) -> str | None:
    if isinstance(value, dict) and set(value) == {"env"} and isinstance(value["env"], str) and value["env"]:
        return None
    return 'is a secret, whose value is not written here; name a variable: { env = "NAME" }'


def _pairs_problem(value: Any) -> str | None:
    if not isinstance(value, dict):
        return f'should be a table of texts, such as {{ NAME = "value" }}, not {_toml(value)}'
    for name, text in value.items():
        if not isinstance(text, str):
            return (
                f'needs texts: write {name} = "{_toml(text)}"'
                if not isinstance(text, dict | list)
                else (f"needs texts: {name} is {_toml(text)}")
            )
    return None


def words_of(kind: Any) -> str:
    """Return a type in words."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) is list:
        return "a list of texts"
    if get_origin(kind) is Union or "|" in str(kind):
        return " or ".join(words_of(each) for each in get_args(kind))
    simple = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
    return simple.get(kind, "a table")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'the text "{value[:60]}"'
    return "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else str(value)
