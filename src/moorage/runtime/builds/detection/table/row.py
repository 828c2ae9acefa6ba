"""A row of the table of detectors, and the signs by which a row recognises a repository.

A sign returns the files or packages that it found, for the log and for `moorage detect`, or None. Signs combine with
`&`, `|` and `~`; `words` describes a sign in the documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from moorage.core.kit.records import dataclass
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import Kind

_SCRIPT = re.compile(r"\.[cm]?[jt]s$")
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|(?<![:'\"`])//[^\n]*", re.DOTALL)
# Extensions such as flask-smorest bring their framework along, so requirements may name the extension alone.
_FRAMEWORKS = frozenset(
    {
        *("chainlit", "dash", "django", "falcon", "fastapi", "flask", "gradio", "litestar", "nicegui", "panel"),
        *("python-fasthtml", "quart", "reflex", "sanic", "shiny", "streamlit"),
    }
)
_LIBRARY = ("setup.py", "setup.cfg", "mkdocs.yml", "mkdocs.yaml")
Value = str | Callable[[Folder], str]


@dataclass(frozen=True, slots=True)
class Sign:
    words: str
    find: Callable[[Folder], str | None]

    def __and__(self, other: Sign) -> Sign:
        def find(folder: Folder) -> str | None:
            first = self.find(folder)
            second = other.find(folder) if first is not None else None
            return None if first is None or second is None else f"{first}, {second}"

        return Sign(f"{self.words}, {other.words}", find)

    def __or__(self, other: Sign) -> Sign:
        def find(folder: Folder) -> str | None:
            first = self.find(folder)
            return first if first is not None else other.find(folder)

        return Sign(f"{self.words} or {other.words}", find)

    def __invert__(self) -> Sign:
        words = f"no {self.words.removeprefix('a ')}"
        return Sign(words, lambda folder: words if self.find(folder) is None else None)


@dataclass(frozen=True, slots=True)
class Row:
    """How to recognise, build and start one kind of project."""

    name: str
    kind: Kind
    language: str  # whose packages are installed: "nodejs", "python", "go", or "" for plain files
    sign: Sign
    scripts: tuple[str, ...] = ()  # scripts of package.json that build it, in order of preference
    build: Value = ""  # command where package.json has none of `scripts`
    output: Value = ""  # published folder of a static site
    start: Value = ""  # a container row that finds no start does not match
    server: Value = ""  # packages that the commands need; those that the project lists are not added
    after: Value = ""  # command after the build, whichever script that is
    keys: tuple[str, ...] = ()  # variables with random values that the framework does not start without
    note: Value = ""  # sentence for the log
    refusal: Value = ""  # the project cannot be deployed: the missing part, and an alternative
    is_asked: bool = False  # considered only where the user chose the kind

    def text(self, field: Value, folder: Folder) -> str:
        return field if isinstance(field, str) else field(folder)


def npm(*names: str) -> Sign:
    """A package of package.json, for development or not."""

    def find(folder: Folder) -> str | None:
        return next((f"{name} in package.json" for name in names if name in folder.node_packages), None)

    return Sign(f"npm package {_either(names)}", find)


def pip(name: str) -> Sign:
    """A dependency of a Python project, or an import where its requirements name no framework."""
    imports = re.compile(rf"^[ \t]*(?:import|from)\s+{re.escape(name.removeprefix('python-'))}\b", re.MULTILINE)

    def find(folder: Folder) -> str | None:
        if name in folder.python_packages:
            return f"dependency {name}"
        if folder.has(*_LIBRARY) or not _FRAMEWORKS.isdisjoint(folder.python_packages):
            return None
        if folder.python_packages and not folder.has("requirements.txt", "Pipfile"):
            return None
        return next(
            (f"an import in {file}" for file, text in folder.python_files.items() if imports.search(text)), None
        )

    return Sign(f"Python package `{name}`", find)


def file(*names: str) -> Sign:
    """A regular file; `*` stands for any name in the last part of the path."""
    return Sign(_either(names), lambda folder: next((each for name in names for each in folder.glob(name)), None))


def subfolder(*names: str) -> Sign:
    return Sign(
        f"folder {_either(names)}", lambda folder: next((f"{each}/" for each in names if folder.has_folder(each)), None)
    )


def contains(pattern: str, *names: str, words: str) -> Sign:
    """A file whose text matches."""

    def find(folder: Folder) -> str | None:
        for name in names:
            for each in folder.glob(name):
                text = folder.find_text(each) or ""
                if re.search(pattern, _COMMENT.sub("", text) if _SCRIPT.search(each) else text, re.MULTILINE):
                    return f"{words} in {each}"
        return None

    return Sign(f"{words} in {_either(names)}", find)


def script(pattern: str, *names: str, words: str) -> Sign:
    """A script of package.json whose command matches."""

    def find(folder: Folder) -> str | None:
        scripts = (name for name in names if re.search(pattern, folder.scripts.get(name, "")))
        return next((f"script `{name}` of package.json" for name in scripts), None)

    return Sign(words, find)


def _either(names: tuple[str, ...]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
