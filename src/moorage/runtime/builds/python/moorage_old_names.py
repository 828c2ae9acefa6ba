"""Define the names of the standard library that Python 3.10 and 3.11 removed, for packages that still use them.

A file `*.pth` of the virtual environment imports this module at each start of its Python. It runs in tenants' apps, so
it uses the standard library only.
"""

import asyncio
import collections
import collections.abc
import gettext
import inspect
import time
import types
from collections.abc import Callable
from typing import Any, NamedTuple


class ArgSpec(NamedTuple):
    args: list[str]
    varargs: str | None
    keywords: str | None
    defaults: tuple[Any, ...] | None


def getargspec(function: Any) -> ArgSpec:
    spec = inspect.getfullargspec(function)
    return ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)


def formatargspec(
    args: list[str],
    varargs: str | None = None,
    varkw: str | None = None,
    defaults: tuple[Any, ...] | None = None,
    *_: Any,
    formatvalue: Callable[[Any], str] = lambda value: f"={value!r}",
    **__: Any,
) -> str:
    """Return a signature as text; annotations and keyword-only arguments are left out."""
    first = len(args) - len(defaults or ())
    parts = [name + (formatvalue((defaults or ())[at - first]) if at >= first else "") for at, name in enumerate(args)]
    parts += [f"*{varargs}"] if varargs else []
    parts += [f"**{varkw}"] if varkw else []
    return f"({', '.join(parts)})"


def ignore_charset(self: gettext.NullTranslations, charset: str) -> None:
    """Do nothing: translations are text, and no bytes in a character set."""


def accept_codeset() -> None:
    """Let `gettext.translation` ignore the argument `codeset`, which has had no effect since Python 3.8."""
    translation: Any = gettext.translation
    if "codeset" in inspect.signature(translation).parameters:
        return

    def accepting(*args: Any, codeset: Any = None, **more: Any) -> Any:
        return translation(*args, **more)

    setattr(gettext, "translation", accepting)  # noqa: B010 - its type has no such argument


def define() -> None:
    """Define the missing names; existing names keep their values."""
    accept_codeset()
    for name in collections.abc.__all__:
        if not hasattr(collections, name):
            setattr(collections, name, getattr(collections.abc, name))
    for module, name, value in (
        (inspect, "ArgSpec", ArgSpec),
        (inspect, "getargspec", getargspec),
        (inspect, "formatargspec", formatargspec),
        (time, "clock", time.perf_counter),
        (asyncio, "coroutine", types.coroutine),
        (gettext.NullTranslations, "set_output_charset", ignore_charset),
    ):
        if not hasattr(module, name):
            setattr(module, name, value)


define()
