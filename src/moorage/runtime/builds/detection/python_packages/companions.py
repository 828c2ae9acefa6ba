"""Versions of Python packages that fit to the old ones that a project pins, to its code, and to its version of Python.

A tutorial that pins `Flask==1.1.2` alone gets the newest Werkzeug, with which that Flask cannot be imported; one that
names no version of FastAPI calls functions that the newest Starlette does not have; one that pins `pillow==8.3.2` would
have to compile it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from moorage.runtime.builds.detection.reading import Folder


class Companion(NamedTuple):
    package: str
    below: tuple[int, ...]  # versions of the package that are affected
    bounds: tuple[str, ...]  # requirements on other packages


TABLE = (
    Companion("flask", (2, 0), ("werkzeug<2.1", "jinja2<3.1", "itsdangerous<2.1", "markupsafe<2.1")),
    Companion("flask-login", (0, 6), ("werkzeug<2.1",)),
    Companion("flask", (2, 3), ("werkzeug<3",)),
    Companion("jinja2", (3, 0), ("markupsafe<2.1",)),
    Companion("flask-login", (0, 6, 3), ("werkzeug<3",)),
    Companion("flask-sqlalchemy", (3, 0), ("sqlalchemy<2", "flask<2.3", "werkzeug<3")),
    Companion("dash", (2, 4), ("werkzeug<2.1", "flask<2.3")),
    Companion("dash", (2, 10), ("flask<2.3", "werkzeug<3")),
    Companion("pandas", (2, 2, 2), ("numpy<2",)),
    Companion("scikit-learn", (1, 4, 2), ("numpy<2",)),
    Companion("matplotlib", (3, 8, 4), ("numpy<2",)),
    Companion("streamlit", (1, 12), ("protobuf<4", "altair<5")),
    Companion("streamlit", (1, 23), ("altair<5",)),
    Companion("gradio", (5,), ("huggingface-hub<1", "pydantic<2.11")),
    Companion("python-fasthtml", (0, 12, 30), ("starlette<1",)),
    Companion("passlib", (2,), ("bcrypt<4.1",)),
)


class OldCode(NamedTuple):
    pattern: str  # in a Python file: a call or import that newer versions do not have
    bounds: tuple[str, ...]


OLD_CODE = (
    OldCode(r"\.TemplateResponse\(\s*(?:name\s*=\s*)?[fr]?['\"]", ("starlette<1",)),
    OldCode(r"\.TemplateResponse\(\s*(?!req)\w{1,50}\s*,\s*(?:context\b|\{)", ("starlette<1",)),
    OldCode(r"\bStarlette\([^)]{0,500}\bon_(?:startup|shutdown)\s*=", ("starlette<1",)),
    OldCode(r"\.before_first_request\b|^from flask\.json import [^\n]*\bJSONEncoder\b", ("flask<2.3", "werkzeug<3")),
    OldCode(r"^from flask import [^\n]*\b(?:Markup|escape)\b", ("flask<3", "werkzeug<3")),
    OldCode(r"^from werkzeug\.urls import [^\n]*\burl_\w+", ("werkzeug<3", "flask<3")),
    OldCode(r"^from pydantic import [^\n]*\bBaseSettings\b", ("pydantic<2",)),
    OldCode(r"\b(?:Timed)?JSONWebSignatureSerializer\b", ("itsdangerous<2.1", "flask<2.3", "werkzeug<3")),
    OldCode(r"\bengine\.execute\(", ("sqlalchemy<2",)),
    OldCode(r"\bnp\.(?:float|int|object)\b(?!_)", ("numpy<1.24",)),
    OldCode(
        r"^from django\.conf\.urls import [^\n]*\burl\b|^from django\.utils\.\w+ import [^\n]*\b(?:"
        r"ugettext\w*|force_text|smart_text|is_safe_url)\b",
        ("django<4",),
    ),
)
_NAME = r"\s{0,100}([A-Za-z0-9][A-Za-z0-9._-]{0,200})(?:\s{0,20}\[[^\]]{0,1000}\])?\s{0,20}"
_PIN = re.compile(rf"{_NAME}(?:==|~=|<=|<)\s*(\d{{1,9}}(?:\.\d{{1,9}})*)")
_EXACT = re.compile(rf"{_NAME}==\s*(\d{{1,9}}(?:\.\d{{1,9}})*)")
# Packages whose old versions have no wheels for newer versions of Python, and whose builds take minutes or need
# libraries of the machine: by how many major versions a pinned one may be raised instead.
COMPILED = {
    **dict.fromkeys(("numpy", "pandas", "scipy", "scikit-learn", "scikit-image", "matplotlib", "statsmodels"), 1),
    **dict.fromkeys(("psycopg2-binary", "grpcio", "h5py", "aiohttp", "cffi", "spacy", "uvloop", "httptools"), 1),
    **dict.fromkeys(("opencv-python", "opencv-python-headless", "tensorflow", "orjson", "yarl", "frozenlist"), 1),
    **dict.fromkeys(("pillow", "lxml", "shapely", "reportlab", "ujson", "multidict"), 2),
    **dict.fromkeys(("greenlet", "pyarrow", "cryptography", "gevent", "pyyaml", "regex"), 99),
    **dict.fromkeys(("asyncpg", "markupsafe", "hiredis", "bcrypt", "mysqlclient"), 1),
    # pydantic is listed because it needs exactly one version of pydantic-core.
    **dict.fromkeys(("pydantic", "pydantic-core", "watchfiles", "rpds-py", "tiktoken", "tokenizers"), 1),
}
SMALL = frozenset({"markupsafe"})  # compiled in a second, also without a compiler
_NEXT_MAJOR = {"pillow": 10}  # which removed names that older code uses, and whose predecessor has wheels
_LIMITED = re.compile(rf"{_NAME}[^#;]{{0,200}}?(?:==|~=|<|@)")
_LAST = {"passlib": (1, 7, 4)}  # packages without newer versions need no pin


def bounds(folder: Folder) -> tuple[str, ...]:
    """Return requirements on packages that the project does not limit, for the versions that it pins and its code."""
    pins: dict[str, tuple[int, ...]] = {
        name: version for name, version in _LAST.items() if name in folder.python_packages
    }
    for match in filter(None, map(_PIN.match, folder.dependency_lines)):
        pins[_normal(match[1])] = tuple(map(int, match[2].split(".")))
    requirements: dict[str, str] = {}
    for package, below, needed in TABLE:
        if package in pins and pins[package] < below:
            for bound in needed:
                requirements.setdefault(bound.partition("<")[0], bound)
    own = tuple(bound for name, bound in sorted(requirements.items()) if name not in folder.python_packages)
    return (*own, *(bound for bound in _of_old_code(folder) if bound.partition("<")[0] not in requirements))


def _of_old_code(folder: Folder) -> list[str]:
    """Return the upper bounds that the code needs, of packages that the project does not limit."""
    limited = {_normal(match[1]) for match in filter(None, map(_LIMITED.match, folder.dependency_lines))}
    upper_bounds: dict[str, str] = {}
    for pattern, needed in OLD_CODE:
        search = re.compile(pattern, re.MULTILINE).search
        # A project that limits one of them has chosen the others too.
        if not limited.isdisjoint(bound.partition("<")[0] for bound in needed):
            continue
        if any(search(text) for text in folder.python_files.values()):
            for bound in needed:
                upper_bounds.setdefault(bound.partition("<")[0], bound)
    return [bound for _, bound in sorted(upper_bounds.items())]


def _normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def has_old_psycopg2(folder: Folder) -> bool:
    """Return whether the project pins a psycopg2 that compiles and cannot be imported with Python 3.11 and newer."""
    is_hashed = any("--hash" in line for line in folder.dependency_lines)
    return not is_hashed and _pins(folder).get("psycopg2", (99,)) < (2, 9, 5)


class Fix(NamedTuple):
    package: str
    since: tuple[int, ...]  # versions that cannot be imported: from this one
    below: tuple[int, ...]  # to this one
    instead: tuple[str, ...]


# Python 3.8 refuses the classes of models in Django before 1.11, and Python 3.7 the syntax of its widgets. Python 3.11
# refuses the signatures of Pydantic before 1.10, which needs a newer typing-extensions than old locks have.
FIXES = (
    Fix("django", (1, 8), (1, 11, 17), ("django==1.11.29",)),
    Fix("pydantic", (1,), (1, 10, 2), ("pydantic>=1.10.13,<2", "typing-extensions>=4.2")),
)


def fixed(folder: Folder) -> tuple[str, ...]:
    """Return requirements that replace pinned versions which no current Python can import."""
    if any("--hash" in line for line in folder.dependency_lines):
        return ()
    return _fixes(_pins(folder))


def fixed_lock(lock: str) -> str:
    """Return the requirements of a lock without versions that no current Python can import."""
    matches = filter(None, map(_EXACT.match, lock.splitlines()))
    fixes = {
        re.split("[<>=]", each)[0]: each
        for each in _fixes({_normal(match[1]): tuple(map(int, match[2].split("."))) for match in matches})
    }
    lines = []
    for line in lock.splitlines():
        match = _EXACT.match(line)
        lines.append(fixes.get(_normal(match[1]) if match else "", line))
    return "".join(f"{line}\n" for line in lines) if fixes else lock


def _fixes(pins: dict[str, tuple[int, ...]]) -> tuple[str, ...]:
    fixes = [fix for fix in FIXES if fix.since <= pins.get(fix.package, ()) < fix.below]
    return tuple(each for fix in fixes for each in fix.instead if re.split("[<>=]", each)[0] in {fix.package, *pins})


def raised(folder: Folder) -> tuple[str, ...]:
    """Return newer versions of the compiled packages that a project pins, for a Python that the pinned ones lack."""
    if any("--hash" in line for line in folder.dependency_lines):
        return ()
    requirements = []
    for name, version in sorted(_pins(folder).items()):
        if name in COMPILED:
            requirements.append(f"{name}>={'.'.join(map(str, version))},<{_bound(name, version[0])}")
    return tuple(requirements)


def loosened(lock: str) -> str:
    """Return the requirements of a lock in which newer versions of the compiled packages are allowed."""
    lines = []
    for line in lock.splitlines():
        match = _EXACT.match(line)
        name = _normal(match[1]) if match else ""
        if match and name in COMPILED:
            marker = re.search(r";(?:(?!--hash).)*", line)
            version = match[2]
            line = f"{name}>={version},<{_bound(name, int(version.partition('.')[0]))} {marker[0] if marker else ''}"
        lines.append(line.rstrip())
    return "".join(f"{line}\n" for line in lines)


def _bound(name: str, major: int) -> int:
    """Return the first major version that a pinned, compiled package may not be raised to."""
    return max(major + COMPILED[name], _NEXT_MAJOR.get(name, 0) if major < _NEXT_MAJOR.get(name, 0) else 0)


def _pins(folder: Folder) -> dict[str, tuple[int, ...]]:
    matches = filter(None, map(_EXACT.match, folder.dependency_lines))
    return {_normal(match[1]): tuple(map(int, match[2].split("."))) for match in matches}
