"""The rules of this package, compiled once, and what they find in a file.

A rule's metadata holds its `id` and `why`. The rules see a file's name through two variables, `path` and `extension`.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import yara_x

FIRST = "kinds.yar"  # The rules of the other files build upon it.
_compiling = threading.Lock()


class Match(NamedTuple):
    rule: str
    why: str


class TooSlow(Exception):
    """A file took longer than it was given."""


def sources() -> dict[str, str]:
    """Return the texts of all rule files by their names, in the order they have to be compiled in."""
    folder = resources.files("moorage.runtime.scan") / "rules"
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".yar")]
    found.sort(key=lambda entry: (entry.name != FIRST, entry.name))
    return {entry.name: entry.read_text(encoding="utf-8") for entry in found}


def rules() -> yara_x.Rules:
    """Return the compiled rules; the first call compiles them, and calls beside it wait for that."""
    with _compiling:
        return _compile()


@lru_cache(maxsize=1)
def _compile() -> yara_x.Rules:
    import yara_x  # Its megabytes are loaded by who scans.

    compiler = yara_x.Compiler(error_on_slow_pattern=True)
    compiler.define_global("path", "")
    compiler.define_global("extension", "")
    for name, text in sources().items():
        compiler.add_source(text, origin=name)
    return compiler.build()


class Matcher:
    """Looks at one file after another. It belongs to one thread."""

    def __init__(self) -> None:
        import yara_x

        self._scanner = yara_x.Scanner(rules())
        self._timed_out = yara_x.TimeoutError

    def find(self, file: Path, name: str, *, timeout_s: int, skip: tuple[str, ...] = ()) -> Match | None:
        """Return the first rule that matches and whose id does not begin with a text of `skip`; raises TooSlow."""
        self._scanner.set_timeout(timeout_s)
        # Rules see only text. A byte that is none is of no importance to them.
        path = name.lower().encode(errors="replace").decode()
        self._scanner.set_global("path", path)
        self._scanner.set_global("extension", Path(path).suffix[1:])
        try:
            matching = self._scanner.scan_file(str(file)).matching_rules
        except self._timed_out:
            raise TooSlow from None
        for rule in matching:
            meta = dict(rule.metadata)
            if not str(meta["id"]).startswith(skip):
                return Match(str(meta["id"]), str(meta["why"]))
        return None
