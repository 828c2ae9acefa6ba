"""Files of the build context that `.dockerignore` excludes."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from moorage.core.kit.records import dataclass
from moorage.runtime.images.dockerfile import patterns

MAX_RULES = 2_000
_PLAIN = re.compile(r"[^*?\[\\]+")
_SUFFIX = re.compile(r"\*\*/\*([^*?\[\\/]+)")


@dataclass(frozen=True, slots=True)
class _Rule:
    tokens: list[patterns.Token]
    plain: str  # the whole pattern if it has no wildcard
    suffix: str  # for patterns such as **/*.log
    is_exception: bool

    def matches(self, path: str) -> bool:
        if self.plain:
            return path == self.plain
        if self.suffix:
            return path.endswith(self.suffix)
        return patterns.matches(self.tokens, path)


class Ignored:
    """Rules of a `.dockerignore`; the last one that matches a path or a folder above it decides."""

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._rules = rules
        self.has_exceptions = any(rule.is_exception for rule in rules)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def is_ignored(self, path: str) -> bool:
        parts = path.split("/")
        prefixes = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        ignored = False
        for rule in self._rules:
            if rule.is_exception is ignored and any(rule.matches(prefix) for prefix in prefixes):
                ignored = not ignored
        return ignored


def parse(text: str) -> Ignored:
    """Parse a `.dockerignore`; raises ValueError with the number of a bad line."""
    rules: list[_Rule] = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        if line.startswith("#") or not line.strip():
            continue
        try:
            rule = _rule(line.strip())
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        rules += [rule] if rule is not None else []
        if len(rules) > MAX_RULES:
            raise ValueError(f"it has more than {MAX_RULES:,} rules")
    return Ignored(rules)


def compile_all(lines: Sequence[str]) -> Ignored:
    """Return the rules of `COPY --exclude`."""
    return Ignored([rule for line in lines if (rule := _rule(line.strip())) is not None])


def _rule(line: str) -> _Rule | None:
    is_exception = line.startswith("!")
    pattern = line.removeprefix("!").strip()
    if not pattern:
        raise ValueError(f"{line!r} has no pattern")
    pattern = posixpath.normpath(pattern).lstrip("/")
    if pattern in ("", "."):
        return None
    suffix = _SUFFIX.fullmatch(pattern)
    return _Rule(
        patterns.parse(pattern, is_path=True),
        pattern if _PLAIN.fullmatch(pattern) else "",
        suffix[1] if suffix else "",
        is_exception,
    )
