"""YARA rules of this package: compiled once, matched against files.

The metadata of a rule has its `id` and `why`. Rules read the file's name from the variables `path` and `extension`.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import yara_x

FIRST = "kinds.yar"  # Rules in the other files refer to rules in this one.
_compiling = threading.Lock()


class Match(NamedTuple):
    rule: str
    why: str


class TooSlow(Exception):
    """Scanning a file took longer than its timeout."""


def sources() -> dict[str, str]:
    """Return the texts of all rule files by name, in compilation order."""
    folder = resources.files("moorage.runtime.scan") / "rules"
    files = [entry for entry in folder.iterdir() if entry.name.endswith(".yar")]
    files.sort(key=lambda entry: (entry.name != FIRST, entry.name))
    return {entry.name: entry.read_text(encoding="utf-8") for entry in files}


def rules() -> yara_x.Rules:
    """Return the rules; the first call compiles them, concurrent calls wait."""
    with _compiling:
        return _compile()


@lru_cache(maxsize=1)
def _compile() -> yara_x.Rules:
    import yara_x  # Imported here: it takes megabytes, and only processes that scan need it.

    compiler = yara_x.Compiler(error_on_slow_pattern=True)
    compiler.define_global("path", "")
    compiler.define_global("extension", "")
    for name, text in sources().items():
        compiler.add_source(text, origin=name)
    return compiler.build()


class Matcher:
    """Matches one file after another. Not thread-safe."""

    def __init__(self) -> None:
        import yara_x

        self._scanner = yara_x.Scanner(rules())
        self._timed_out = yara_x.TimeoutError

    def find(self, file: Path, name: str, *, timeout_s: int, skip: tuple[str, ...] = ()) -> Match | None:
        """Return the first match without a prefix of `skip`, or None; raises TooSlow."""
        self._scanner.set_timeout(timeout_s)
        # The variables of rules are UTF-8 text; no rule depends on other bytes of a name.
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
