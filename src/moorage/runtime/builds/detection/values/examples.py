"""Files that the code reads and that a repository has only as an example, such as `config.example.json`.

Their values are private, so `.gitignore` keeps them out, and the instructions for a clone say to copy the example.
"""

from __future__ import annotations

import re
import shlex

from moorage.runtime.builds.detection.reading import Folder

PLACES = ("", "config", "src")
MAX_FILES = 400  # that are searched for the name
_WORDS = "(?:example|sample|dist|template)"
_ENDINGS = r"(?:json|[cm]?[jt]s|py|ya?ml|toml|ini)"
_INNER = re.compile(rf"([\w-]+)[.-]{_WORDS}\.({_ENDINGS})")  # config.example.json
_OUTER = re.compile(rf"([\w-]+)\.({_ENDINGS})\.{_WORDS}")  # config.json.example


def copies(folder: Folder) -> dict[str, str]:
    """Return the examples of files that are missing and that the code names: example -> file."""
    targets: dict[str, str] = {}
    for place in PLACES:
        for example in folder.glob(f"{place}/*".lstrip("/")):
            match = _INNER.fullmatch(example.rpartition("/")[2]) or _OUTER.fullmatch(example.rpartition("/")[2])
            target = f"{place}/{match[1]}.{match[2]}".lstrip("/") if match else ""
            if match and not folder.has(target) and _is_named(folder, match[1], match[2]):
                targets.setdefault(example, target)
    return targets


def command(folder: Folder) -> str:
    """Return the command that copies the examples, or ""."""
    return " && ".join(f"cp {shlex.quote(each)} {shlex.quote(target)}" for each, target in copies(folder).items())


def _is_named(folder: Folder, stem: str, ending: str) -> bool:
    """Return whether the code imports or opens a file of this name, and does not do without it where it is missing."""
    name = re.escape(stem)
    pattern = re.compile(
        rf"['\"](?:[^'\"\n]*/)?{name}(?:\.{ending})['\"]|(?:require\(|from )\s*['\"]\.{{1,2}}/(?:[\w/-]+/)?{name}['\"]"
        + (rf"|^[ \t]*(?:import|from)[ \t]+(?:[\w.]+\.)?{name}\b" if ending == "py" else ""),
        re.MULTILINE,
    )
    optional = re.compile(
        rf"(?:isfile|exists|existsSync|is_file)\([^\n]{{0,80}}['\"/]{name}\.{ending}['\"]"
        rf"|\btry\s*\{{[^{{}}]{{0,200}}require\(\s*['\"]\.{{1,2}}/(?:[\w/-]+/)?{name}(?:\.{ending})?['\"]"
    )
    texts = [*folder.python_files.values(), *([] if ending == "py" else _scripts(folder))]
    return any(pattern.search(text) for text in texts) and not any(optional.search(text) for text in texts)


def _scripts(folder: Folder) -> list[str]:
    places = ("", *folder.folders(), *(inner for outer in folder.folders() for inner in folder.folders(outer)))
    names = [each for place in places for each in folder.glob(f"{place}/*.*s".lstrip("/"))]
    names = [each for each in names if re.search(r"\.[cm]?[jt]s$", each)][:MAX_FILES]
    return [folder.find_text(each) or "" for each in names]
