"""`dataclass` of the standard library, without its generated methods for comparison and text.

The standard library compiles `__eq__`, `__hash__` and `__repr__` for each class, which takes 2 MB of memory and a
tenth of the time of all imports for the 500 classes of a control process. Here all classes share the same functions.
"""

from __future__ import annotations

import dataclasses
import reprlib
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, eq=True, repr=True, frozen=False, **options):  # noqa: A002 - names of the library
        def decorate(plain):
            own = vars(plain)
            made = dataclasses.dataclass(plain, eq=False, repr=False, frozen=frozen, **options)
            if repr and "__repr__" not in own:
                made.__repr__ = _repr
            if eq and "__eq__" not in own:
                made.__eq__ = _eq
            if eq and own.get("__hash__") is None:
                made.__hash__ = _hash if frozen else None
            return made

        return decorate if cls is None else decorate(cls)


_COMPARED: dict[type, attrgetter[Any]] = {}


def _values(record: Any) -> Any:
    kind = type(record)
    getter = _COMPARED.get(kind)
    if getter is None:
        # The first name is for classes without fields: a getter needs one.
        getter = attrgetter("__class__", *(field.name for field in dataclasses.fields(kind) if field.compare))
        _COMPARED[kind] = getter
    return getter(record)


def _eq(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    values = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"
