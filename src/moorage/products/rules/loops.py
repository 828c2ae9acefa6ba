"""Detection of redirect loops before the rules are stored.

Each rule is followed from a sample path, through the first matching rule of each path, until no rule matches, the
destination is another site, or a path repeats. Sample paths replace wildcards with text that no rule contains, so that
a refused rule loops for every path, not only for a special one such as `/b/b` where `/:x/b` redirects to `/b/:x`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Generic, TypeVar

from moorage.core.kit.records import dataclass
from moorage.products.rules.destinations import QUERY_MARKS, OwnAddresses, Redirect
from moorage.products.rules.patterns import Part, Wild

MAX_HOPS = 1_001  # Each rule once; a longer chain has applied one rule twice.
MAX_PATH = 8_000  # A longer path keeps growing without end.
MAX_STEPS = 500_000  # About 0.5 s; 1,000 ordinary rules take a tenth of it.
MAX_REPORTED_LOOPS = 20
_SHOWN_PATHS = 6
_SHOWN_CHARS = 80
T = TypeVar("T")


class TooManySteps(Exception):
    """The rules have too many combinations to follow within MAX_STEPS."""


class _Wildcards(Generic[T]):
    """The wildcards of one tree node, indexed by the text before them."""

    def __init__(self) -> None:
        self._by_length: dict[int, dict[str, dict[tuple[Part, bool], T]]] = {}

    def add(self, part: Part, in_query: bool, value: T) -> T:
        """Return the value of a wildcard; adds it unless the wildcard is already there."""
        nameless = Part(part.before, part.wild, "", part.after)
        by_text = self._by_length.setdefault(len(part.before), {})
        return by_text.setdefault(part.before, {}).setdefault((nameless, in_query), value)

    def find(self, text: str) -> Iterator[T | None]:
        """Yield the value of each matching wildcard, and None for each failed step."""
        for length, by_text in self._by_length.items():
            for (part, in_query), value in by_text.get(text[:length], {}).items():
                match = part.find(text)
                fits = match is not None and not (in_query and any(mark in match for mark in QUERY_MARKS))
                yield value if fits else None
            yield None


class _Node:
    """A node of the rule tree: the path segments that may follow."""

    __slots__ = ("ones", "rests", "rule", "texts")

    def __init__(self) -> None:
        self.texts: dict[str, _Node] = {}
        self.ones = _Wildcards[_Node]()
        self.rests = _Wildcards[int]()
        self.rule: int | None = None  # the first rule that ends at this node


class RuleTree:
    """Finds the first matching rule of a path without trying every rule."""

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
        """Return the index of the first rule matching a decoded path; raises TooManySteps."""
        segments = path.split("/")[1:]
        rules: list[int] = []
        pending = [(self._root, 0)]
        while pending:
            node, at = pending.pop()
            self._count_step()
            if at == len(segments):
                rules += [] if node.rule is None else [node.rule]
                continue
            rules += self._matching(node.rests, "/".join(segments[at:]))
            pending += ((child, at + 1) for child in self._matching(node.ones, segments[at]))
            if segments[at] in node.texts:
                pending.append((node.texts[segments[at]], at + 1))
        return min(rules, default=None)

    def _matching(self, wildcards: _Wildcards[T], text: str) -> Iterator[T]:
        for value in wildcards.find(text):
            self._count_step()
            if value is not None:
                yield value

    def _count_step(self) -> None:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise TooManySteps


def find_loops(redirects: Sequence[Redirect], own: OwnAddresses, *, most_steps: int = MAX_STEPS) -> dict[int, str]:
    """Return a message for each looping rule, by its index; raises TooManySteps."""
    walk = _Walk(redirects, own, RuleTree(redirects, most_steps=most_steps))
    loops: dict[int, str] = {}
    for number, redirect in enumerate(redirects):
        for start in _samples(redirect):
            problem = walk.follow(number, start)
            if problem is not None:
                loops[number] = problem
                break
        if len(loops) == MAX_REPORTED_LOOPS:
            break
    return loops


@dataclass(slots=True)
class _Walk:
    redirects: Sequence[Redirect]
    own: OwnAddresses
    tree: RuleTree
    terminating: set[str] = field(default_factory=set)  # paths from which the redirects are known to end

    def follow(self, number: int, start: str) -> str | None:
        """Follow a rule from a sample path; return a message if it loops, else None."""
        at = self.tree.find(start)
        if at != number:
            return None  # An earlier rule matches this path, and is followed on its own.
        chain, seen = [start], {start}
        while at is not None and (path := self._redirect(at, chain[-1])) is not None and path not in self.terminating:
            chain.append(path)
            if path in seen:
                return f"leads in a circle: {_format_chain(chain)}"
            if len(chain) > MAX_HOPS or len(path) > MAX_PATH:
                return f"leads on without an end: {_format_chain(chain)}"
            seen.add(path)
            at = self.tree.find(path)
        self.terminating |= seen
        return None

    def _redirect(self, number: int, path: str) -> str | None:
        """Return the path that a matching rule redirects to, or None for another site."""
        values = self.redirects[number].match(path)
        assert values is not None
        return self.redirects[number].leads_to(values, self.own)


def _samples(redirect: Redirect) -> Iterator[str]:
    """Yield matching paths of a rule, with one, no and two segments for a final `*`."""
    values = [f"part-{number}" for number in range(1, len(redirect.source.wildcards) + 1)]
    yield redirect.source.path(*values)
    if redirect.source.ends_open:
        yield redirect.source.path(*values[:-1], "")
        yield redirect.source.path(*values[:-1], f"{values[-1]}/more")


def _format_chain(chain: list[str]) -> str:
    paths = [path if len(path) <= _SHOWN_CHARS else path[:_SHOWN_CHARS] + "…" for path in chain]
    if len(paths) > _SHOWN_PATHS:
        paths[_SHOWN_PATHS - 1 : -1] = ["…"]
    return " → ".join(paths)
