"""Finding redirects that never arrive, before a visitor does.

Each rule is followed from a path that it applies to, through whichever rule comes first there, until a path is left
alone, leads elsewhere, or comes again. Wildcards get names that no rule has: what is refused goes in circles for
everybody, and not just for a visitor who asks for `/b/b` where `/:x/b` leads to `/b/:x`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from moorage.products.rules.destinations import QUERY_MARKS, Own, Redirect
from moorage.products.rules.patterns import Part, Wild

MAX_HOPS = 1_001  # Every rule once; a way with more of them has met one twice and got longer.
MAX_PATH = 8_000  # A path that grows past this grows for ever.
MAX_STEPS = 500_000  # About half a second; a thousand ordinary rules take a tenth of it.
MAX_FOUND = 20
_SHOWN_PATHS = 6
_SHOWN_CHARS = 80
T = TypeVar("T")


class TooManySteps(Exception):
    """The rules lead through each other in so many ways that following them all would take too long."""


class _Wildcards(Generic[T]):
    """What follows the wildcards at one place, found by the text before them and not one after the other."""

    def __init__(self) -> None:
        self._by_length: dict[int, dict[str, dict[tuple[Part, bool], T]]] = {}

    def add(self, part: Part, in_query: bool, value: T) -> T:
        """Add what follows a wildcard and return it, or what was there first."""
        nameless = Part(part.before, part.wild, "", part.after)
        by_text = self._by_length.setdefault(len(part.before), {})
        return by_text.setdefault(part.before, {}).setdefault((nameless, in_query), value)

    def find(self, text: str) -> Iterator[T | None]:
        """Yield what follows each wildcard that fits a text, and None for each step that led to nothing."""
        for length, by_text in self._by_length.items():
            for (part, in_query), value in by_text.get(text[:length], {}).items():
                found = part.find(text)
                fits = found is not None and not (in_query and any(mark in found for mark in QUERY_MARKS))
                yield value if fits else None
            yield None


class _Node:
    """What may follow after the parts that lead here."""

    __slots__ = ("ones", "rests", "rule", "texts")

    def __init__(self) -> None:
        self.texts: dict[str, _Node] = {}
        self.ones = _Wildcards[_Node]()
        self.rests = _Wildcards[int]()
        self.rule: int | None = None  # the first that ends here


class RuleTree:
    """Finds the first rule for a path without trying each of them."""

    def __init__(self, redirects: Sequence[Redirect], *, most_steps: int = MAX_STEPS) -> None:
        self._root = _Node()
        self._steps_left = most_steps
        for number, redirect in enumerate(redirects):
            self._add(number, redirect)

    def _add(self, number: int, redirect: Redirect) -> None:
        node, wildcard = self._root, 0
        for part in redirect.source.parts:
            if part.wild is None:
                node = node.texts.setdefault(part.before, _Node())
                continue
            in_query = wildcard in redirect.in_query
            wildcard += 1
            if part.wild is Wild.REST:
                node.rests.add(part, in_query, number)
                return
            node = node.ones.add(part, in_query, _Node())
        if node.rule is None:
            node.rule = number

    def find(self, path: str) -> int | None:
        """Return the number of the first rule that applies to a decoded path; raises TooManySteps."""
        found = path.split("/")[1:]
        rules: list[int] = []
        waiting = [(self._root, 0)]
        while waiting:
            node, at = waiting.pop()
            self._count_step()
            if at == len(found):
                rules += [] if node.rule is None else [node.rule]
                continue
            rules += self._fitting(node.rests, "/".join(found[at:]))
            waiting += ((child, at + 1) for child in self._fitting(node.ones, found[at]))
            if found[at] in node.texts:
                waiting.append((node.texts[found[at]], at + 1))
        return min(rules, default=None)

    def _fitting(self, wildcards: _Wildcards[T], text: str) -> Iterator[T]:
        for value in wildcards.find(text):
            self._count_step()
            if value is not None:
                yield value

    def _count_step(self) -> None:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise TooManySteps


def find_loops(redirects: Sequence[Redirect], own: Own, *, most_steps: int = MAX_STEPS) -> dict[int, str]:
    """Return the numbers of rules that lead nowhere, each with the way it goes; raises TooManySteps."""
    walk = _Walk(redirects, own, RuleTree(redirects, most_steps=most_steps))
    loops: dict[int, str] = {}
    for number, redirect in enumerate(redirects):
        for start in _samples(redirect):
            problem = walk.follow(number, start)
            if problem is not None:
                loops[number] = problem
                break
        if len(loops) == MAX_FOUND:
            break
    return loops


@dataclass(slots=True)
class _Walk:
    redirects: Sequence[Redirect]
    own: Own
    tree: RuleTree
    arrives: set[str] = field(default_factory=set)  # paths from which every way is known to end

    def follow(self, number: int, start: str) -> str | None:
        """Follow a rule from a path of its own; say how it never ends, or None."""
        at = self.tree.find(start)
        if at != number:
            return None  # An earlier rule takes this path, and is followed by itself.
        way, seen = [start], {start}
        while at is not None and (path := self._leave(at, way[-1])) is not None and path not in self.arrives:
            way.append(path)
            if path in seen:
                return f"leads in a circle: {_shown(way)}"
            if len(way) > MAX_HOPS or len(path) > MAX_PATH:
                return f"leads on without an end: {_shown(way)}"
            seen.add(path)
            at = self.tree.find(path)
        self.arrives |= seen
        return None

    def _leave(self, number: int, path: str) -> str | None:
        """Return where a rule leads from a path that it applies to, or None where that is elsewhere."""
        values = self.redirects[number].match(path)
        assert values is not None
        return self.redirects[number].leads_to(values, self.own)


def _samples(redirect: Redirect) -> Iterator[str]:
    """Yield paths that a rule applies to; of what `*` may stand for, nothing, one part, and two."""
    values = [f"part-{number}" for number in range(1, len(redirect.source.wildcards) + 1)]
    yield redirect.source.path(*values)
    if redirect.source.ends_open:
        yield redirect.source.path(*values[:-1], "")
        yield redirect.source.path(*values[:-1], f"{values[-1]}/more")


def _shown(way: list[str]) -> str:
    paths = [path if len(path) <= _SHOWN_CHARS else path[:_SHOWN_CHARS] + "…" for path in way]
    if len(paths) > _SHOWN_PATHS:
        paths[_SHOWN_PATHS - 1 : -1] = ["…"]
    return " → ".join(paths)
