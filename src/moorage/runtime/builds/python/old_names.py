"""Repair pinned packages that are older than the Python they run with.

Flask 0.12, Jinja2 2.9, Django 1.11 and their contemporaries use names that Python 3.10 removed from `collections` and
Python 3.11 from `inspect`, and tutorials pin them. The step searches the installed packages, and changes nothing where
none of them uses such a name.
"""

from __future__ import annotations

from pathlib import Path

MODULE = "moorage_old_names"
LABEL = "definition of removed names"
_SOURCE = Path(__file__).with_name(f"{MODULE}.py")
# Arguments: the name of the module, and its text. A file `*.pth` with an import runs at each start of Python.
_PROGRAM = r"""
import collections, collections.abc, pathlib, re, sys, sysconfig
name, text = sys.argv[1:]
home = pathlib.Path(sysconfig.get_paths()["purelib"])
removed = "|".join(each for each in collections.abc.__all__ if not hasattr(collections, each))
old = re.compile(
    rf"\binspect\.(?:get|format)argspec\b|import getargspec\b|set_output_charset\("
    rf"|\basyncio\.coroutine\b|\bcollections\.(?:{removed})\b"
    rf"|from collections import [^\n]*\b(?:{removed})\b".encode()
)
uses = removed and any(
    old.search(path.read_bytes()) for path in home.rglob("*.py") if path.is_file() and "setuptools" not in path.parts
)
if uses:
    (home / f"{name}.py").write_text(text)
    (home / f"{name}.pth").write_text(f"import {name}\n")
    print("a package uses names that this version of Python no longer has: they are defined for it; raise the versions "
          "of the packages to do without")
widgets = home / "django/contrib/admin/widgets.py"  # up to Django 1.11.16 with an error of syntax since Python 3.7
if widgets.is_file():
    widgets.write_bytes(re.sub(rb"(for k, v in params\.items\(\)),(\s*\))", rb"\1\2", widgets.read_bytes()))
"""


def argv(python: str) -> list[str]:
    """Return the command that repairs the packages of an environment, by its Python."""
    return [python, "-c", _PROGRAM, MODULE, _SOURCE.read_text()]
