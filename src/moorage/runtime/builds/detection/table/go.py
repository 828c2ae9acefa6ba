"""Rows for Go: modules, and programs from the time before modules, which have no go.mod."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.table.row import Row, Sign, file

MAX_PROGRAMS = 50  # folders of a level, and files of each, that are searched for a main package
MAX_SHOWN = 10
DEPTH = 4  # folders below the base folder in which a main package is searched where upper folders have none
_PACKAGE = re.compile(r"^package main\b", re.MULTILINE)
_MAIN = re.compile(r"^func main\(\s*\)", re.MULTILINE)
_IGNORED = re.compile(r"^//\s*(?:go:build|\+build)\s+ignore\b", re.MULTILINE)
_NAMED = re.compile(r"/(?:server|web|api|app|http|main)$")
_SERVES = re.compile(
    r"\bListenAndServe(?:TLS)?\(|\bhttp\.(?:Serve|Server)\b|\b(?:gin|echo|fiber|iris|chi|martini)\.(?:New|Default|Classic)"
    r"|\bmux\.NewRouter\(|\bbeego\.Run\("
)
_BUILDS = re.compile(r"\bgo (?:build|run|install)\b([^\n&|;]*)")
_PATH = re.compile(r"\./[\w./-]+")
_MODULE = re.compile(r"^module\s+\"?([\w.~/-]+)", re.MULTILINE)
_IMPORT = re.compile(r"^[^\S\n]*(?:import[^\S\n]+)?(?:[\w.]+[^\S\n]+)?\"([\w.-]+\.[a-z]{2,}/[\w./~-]+)\"", re.MULTILINE)


def packages(folder: Folder) -> list[str]:
    """Return the main packages: the base folder, else folders below `cmd`, else other folders, the upper ones first."""
    if _has_main(folder, ""):
        return ["."]
    if programs := [f"./{each}" for each in folder.folders("cmd")[:MAX_PROGRAMS] if _has_main(folder, each)]:
        return programs
    level = folder.folders()[:MAX_PROGRAMS]
    for _ in range(DEPTH):
        if programs := [f"./{each}" for each in level if _has_main(folder, each)]:
            return programs
        level = [inner for each in level for inner in folder.folders(each) if not each.startswith("vendor")]
        level = level[:MAX_PROGRAMS]
    return []


def texts(folder: Folder) -> dict[str, str]:
    """Return the texts of the Go files of a module by name, those of upper folders first."""
    files, level = _texts(folder, ""), folder.folders()[:MAX_PROGRAMS]
    for _ in range(DEPTH):
        for place in level:
            files |= _texts(folder, place)
        level = [inner for each in level for inner in folder.folders(each) if not each.startswith("vendor")]
        level = level[:MAX_PROGRAMS]
    return files


def _texts(folder: Folder, place: str) -> dict[str, str]:
    names = [name for name in folder.glob(f"{place}/*.go".lstrip("/")) if not name.endswith("_test.go")]
    return {name: folder.find_text(name) or "" for name in names[:MAX_PROGRAMS]}


def _has_main(folder: Folder, place: str) -> bool:
    return any(_PACKAGE.search(text) for text in _texts(folder, place).values())


def _package(folder: Folder) -> str:
    """Return the package to build; "" where several are equal.

    Of several, the package that the Dockerfile or the Makefile builds, that is named as a server or as the module, or
    that alone serves HTTP.
    """
    programs = packages(folder)
    if len(programs) <= 1:
        return next(iter(programs), "")
    texts = [folder.find_text(name) or "" for name in ("Dockerfile", "Makefile")]
    built = [[each for each in dict.fromkeys(_built(text)) if each in programs] for text in texts]
    own = re.sub(r"/v\d+$", "", _module(folder)).rpartition("/")[2]
    named = [
        [each for each in programs if _NAMED.search(each)][:1],
        [each for each in programs if each.endswith(f"/{own}")],
    ]
    serving = [each for each in programs if any(map(_SERVES.search, _texts(folder, each[2:]).values()))]
    choices = (built[0], *named, built[1], serving)
    return next((each[0] for each in choices if len(each) == 1), "")


def _built(text: str) -> Iterator[str]:
    """Yield the folder of the first path in each command that builds a program."""
    for command in _BUILDS.finditer(text):
        words = re.findall(r"[^\s\"]+", command[1])
        if path := next((word for word in words if _PATH.fullmatch(word)), ""):
            yield (path.rpartition("/")[0] if path.endswith(".go") else path).removesuffix("/")


def _module(folder: Folder) -> str:
    match = _MODULE.search(folder.find_text("go.mod") or "")
    return match[1] if match else ""


def _refusal(folder: Folder) -> str:
    if programs := packages(folder):
        return (
            f"go.mod has several programs ({', '.join(programs[:MAX_SHOWN])}): set buildCmd to `go build -o app "
            f"{programs[0]}` with the one to start"
        )
    return "go.mod has no program: there is no file with `package main` in the base folder or below cmd"


# Without go.mod.


def _file(folder: Folder) -> str | None:
    """Return the file with the function main in the base folder: main.go, or the only one."""
    texts = {name: text for name, text in _texts(folder, "").items() if _PACKAGE.search(text)}
    names = [name for name, text in texts.items() if _MAIN.search(text) and not _IGNORED.search(text)]
    return "main.go" if "main.go" in texts else names[0] if len(names) == 1 else None


def _file_build(folder: Folder) -> str:
    """Return the commands that build the program, with the sources in `vendor`, else as a new module."""
    name = _file(folder) or ""
    texts = _texts(folder, "")
    mains = [each for each, text in texts.items() if _MAIN.search(text) and not _IGNORED.search(text)]
    package = "." if len(mains) <= 1 else name
    imports = sorted({each for text in texts.values() for each in _IMPORT.findall(text)})
    path = _own_path(folder, imports)
    build = f"go build -o app {shlex.quote(package)}"
    if folder.has_folder("vendor"):
        path = path or "local/app"
        place = shlex.quote(path)
        above = shlex.quote(path.rpartition("/")[0])
        # The module mode reads `vendor` only with a go.mod and a list of modules.
        return (
            f"export GO111MODULE=off GOPATH=$(mktemp -d) && mkdir -p $GOPATH/src/{above} && "
            f"ln -s $PWD $GOPATH/src/{place} && cd $GOPATH/src/{place} && {build}"
        )
    if not imports:
        return f"GO111MODULE=off {build}"
    return f"go mod init {shlex.quote(path or 'app')} && go mod tidy && {build}"


def _own_path(folder: Folder, imports: list[str]) -> str:
    """Return the import path of the base folder, by an import of one of its folders; or ""."""
    for path in imports:
        parts = path.split("/")
        at = next((at for at in range(2, len(parts)) if folder.has_folder("/".join(parts[at:]))), 0)
        if at and parts[at] != "vendor":
            return "/".join(parts[:at])
    return ""


_GO = file("go.mod")
ROWS = (
    Row("Go", "container", "go", _GO & Sign("one main package", lambda folder: _package(folder) or None),
        build=lambda folder: f"go build -o app {_package(folder)}", start="./app"),
    Row("Go with several programs", "container", "go", _GO, refusal=_refusal),
    Row("Go file", "container", "go", Sign("`main.go`, or the only file with `func main` in the base folder", _file),
        build=_file_build, start="./app"),
)  # fmt: skip
