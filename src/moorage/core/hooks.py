"""Hooks: a product runs functions of other products without importing them.

A module declares a `Hook` for each moment at which others may act. The wiring of a product adds functions to the
`Hooks` of the application, which every transaction carries in its `Env`. Functions run in the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Hook(Generic[P, R]):
    """A moment at which functions with these parameters run."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Hook({self.name!r})"


class Hooks:
    """The functions of one application, by hook and by name."""

    def __init__(self) -> None:
        self._functions: dict[Hook[..., Any], dict[str, Callable[..., Any]]] = {}

    def add(self, hook: Hook[P, R], name: str, function: Callable[P, R]) -> None:
        """Add a function, or replace the one of that name."""
        self._functions.setdefault(hook, {})[name] = function

    def remove(self, hook: Hook[P, R], name: str) -> None:
        del self._functions[hook][name]

    def of(self, hook: Hook[P, R]) -> Mapping[str, Callable[P, R]]:
        return MappingProxyType(self._functions.get(hook, {}))

    def call(self, hook: Hook[P, R], *args: P.args, **kwargs: P.kwargs) -> list[R]:
        """Call every function in the order of their addition, and return their results."""
        return [function(*args, **kwargs) for function in self.of(hook).values()]
