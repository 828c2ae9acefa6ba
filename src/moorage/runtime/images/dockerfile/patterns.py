"""Wildcard patterns, matched in time proportional to text x pattern.

Patterns come from tenants, and `re` needs exponential time for some of them.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.core.kit.records import dataclass

MAX_WORK = 20_000_000  # characters of a text x characters of a pattern


@dataclass(frozen=True, slots=True)
class Token:
    """One position of a pattern."""

    accepts: Callable[[str], bool]
    repeats: bool = False  # matches any number of accepted characters
    jump: int = 0  # matches no character: continues at the next token, or so many tokens later


def _is(char: str) -> Callable[[str], bool]:
    return lambda other: other == char


def _any(_: str) -> bool:
    return True


def _none(_: str) -> bool:
    return False


def _inner(char: str) -> bool:
    return char != "/"


def parse(pattern: str, *, is_path: bool) -> list[Token]:
    """Return the tokens of a pattern; in a path `*` and `?` stop at a slash, and `[a-z]` is a class."""
    accepts = _inner if is_path else _any
    tokens: list[Token] = []
    place = 0
    while place < len(pattern):
        char = pattern[place]
        place += 1
        if char == "\\" and place < len(pattern):
            tokens.append(Token(_is(pattern[place])))
            place += 1
        elif char == "*" and is_path and pattern[place : place + 1] == "*":
            place += 1
            if pattern[place : place + 1] == "/":  # `**/` also matches no folder at all.
                place += 1
                tokens += [Token(_none, jump=3), Token(_any, repeats=True), Token(_is("/"))]
            else:
                tokens.append(Token(_any, repeats=True))
        elif char == "*":
            tokens.append(Token(accepts, repeats=True))
        elif char == "?":
            tokens.append(Token(accepts))
        elif char == "[" and is_path:
            end = pattern.find("]", place + 1)
            if end < 0:
                raise ValueError(f"the pattern {pattern[:200]!r} has a [ without ]")
            tokens.append(Token(_char_class(pattern[place:end])))
            place = end + 1
        else:
            tokens.append(Token(_is(char)))
    return tokens


def _char_class(text: str) -> Callable[[str], bool]:
    negated = text[0] == "^"
    body = text[1:] if negated else text
    ranges: list[tuple[str, str]] = []
    place = 0
    while place < len(body):
        if body[place + 1 : place + 2] == "-" and place + 2 < len(body):
            ranges.append((body[place], body[place + 2]))
            place += 3
        else:
            ranges.append((body[place], body[place]))
            place += 1
    return lambda char: char != "/" and any(low <= char <= high for low, high in ranges) is not negated


def match_ends(tokens: list[Token], text: str) -> list[int]:
    """Return the lengths of all prefixes of a text that a pattern matches."""
    if len(tokens) * len(text) > MAX_WORK:
        raise ValueError("the text and the pattern are too long")
    states = _skip(tokens, {0})
    ends = [0] if len(tokens) in states else []
    for place, char in enumerate(text):
        following: set[int] = set()
        for state in states:
            if state < len(tokens) and tokens[state].accepts(char):
                following.add(state if tokens[state].repeats else state + 1)
        if not following:
            break
        states = _skip(tokens, following)
        if len(tokens) in states:
            ends.append(place + 1)
    return ends


def _skip(tokens: list[Token], states: set[int]) -> set[int]:
    """Add the states that are reached without a character."""
    found, pending = set(states), list(states)
    while pending:
        state = pending.pop()
        if state == len(tokens) or not (tokens[state].repeats or tokens[state].jump):
            continue
        for following in (state + 1, state + (tokens[state].jump or 1)):
            if following not in found:
                found.add(following)
                pending.append(following)
    return found


def matches(tokens: list[Token], text: str) -> bool:
    return len(text) in match_ends(tokens, text)[-1:]


def trim(value: str, pattern: str, *, from_end: bool, longest: bool) -> str:
    """Remove the shortest or longest part that matches from an end of a value."""
    tokens = parse(pattern, is_path=False)
    text = value[::-1] if from_end else value
    ends = match_ends(tokens[::-1] if from_end else tokens, text)
    if not ends:
        return value
    rest = text[ends[-1] if longest else ends[0] :]
    return rest[::-1] if from_end else rest


def replace(value: str, pattern: str, new: str, *, every: bool) -> str:
    """Replace the first longest match of a pattern, or every one."""
    tokens = parse(pattern, is_path=False)
    if len(tokens) * len(value) * len(value) > MAX_WORK:
        raise ValueError("the text and the pattern are too long")
    pieces: list[str] = []
    place = 0
    while place < len(value):
        end = (match_ends(tokens, value[place:]) or [0])[-1]
        if end:
            pieces.append(new)
            place += end
            if not every:
                break
        else:
            pieces.append(value[place])
            place += 1
    return "".join(pieces) + value[place:]
