"""Compile the methods of dataclasses at their first call.

Python 3.11 and 3.12 compile each generated method on its own when the class is defined: 0.7 ms a class, a fifth of the
CPU time of all imports of the control process. Most of these methods are never called. Later versions compile all
methods of a class at once, and are left alone.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

FIRST_FAST_VERSION = (3, 13)


def install() -> None:
    """Make the dataclasses of modules that are imported from now on lazy."""
    if sys.version_info < FIRST_FAST_VERSION and hasattr(dataclasses, "_create_fn"):
        dataclasses._create_fn = _lazy(dataclasses._create_fn)


def _lazy(create: Callable[..., Callable[..., Any]]) -> Callable[..., Callable[..., Any]]:
    def create_lazily(name: str, *args: Any, **options: Any) -> Callable[..., Any]:
        method: Callable[..., Any] | None = None

        def compile_and_call(self: Any, *values: Any, **named: Any) -> Any:
            nonlocal method
            if method is None:
                method = create(name, *args, **options)
                method.__qualname__ = compile_and_call.__qualname__
                # Replaced where it was defined, so that only the first call pays for this one.
                for cls in type(self).__mro__:
                    if cls.__dict__.get(name) is compile_and_call:
                        setattr(cls, name, method)
            return method(self, *values, **named)

        compile_and_call.__name__ = name
        return compile_and_call

    return create_lazily
