"""Base of the settings: a frozen object whose fields are validated, with defaults and descriptions.

It has the part of pydantic's interface that the settings need. Every process reads the settings, and pydantic would
take 9 MB and 0.1 s of CPU in each of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, get_args, get_origin, get_type_hints

F = TypeVar("F")

_TRUE = frozenset(("1", "true", "t", "yes", "y", "on"))
_FALSE = frozenset(("0", "false", "f", "no", "n", "off"))


class SecretStr:
    """A text that `repr` and `str` mask."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def get_secret_value(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"SecretStr('{self}')"

    def __str__(self) -> str:
        return "**********" if self._value else ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretStr) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


class ValidationError(ValueError):
    """Values are invalid; `problems` are pairs of a field, or "" for several fields, and its problem."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{name}: {problem}" if name else problem for name, problem in problems))
        self.problems = problems


@dataclass
class FieldInfo:
    """The declaration of a field."""

    default: Any
    description: str = ""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    pattern: str | None = None
    annotation: Any = None

    def parse(self, value: Any) -> Any:
        """Convert a value to the type of the field and check its limits; raises ValueError."""
        kinds = [kind for kind in (get_args(self.annotation) or [self.annotation]) if kind is not type(None)]
        if get_origin(self.annotation) is tuple:
            return _texts(value)
        if value is None and len(kinds) < len(get_args(self.annotation)):
            return None
        parsed = _convert(kinds[0], value)
        if self.ge is not None and not parsed >= self.ge:
            raise ValueError(f"input should be greater than or equal to {self.ge}")
        if self.gt is not None and not parsed > self.gt:
            raise ValueError(f"input should be greater than {self.gt}")
        if self.le is not None and not parsed <= self.le:
            raise ValueError(f"input should be less than or equal to {self.le}")
        if self.pattern is not None and not re.search(self.pattern, parsed):
            raise ValueError(f"should match {self.pattern}")
        return parsed


def Field(  # noqa: N802 - named like pydantic's, which declares the fields of all other models
    default: Any,
    *,
    description: str = "",
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    pattern: str | None = None,
) -> Any:
    """Declare the default, the description and the limits of a field."""
    return FieldInfo(default, description, ge, gt, le, pattern)


def field_validator(*names: str, mode: str = "after") -> Callable[[F], F]:
    """Let a class method check or change the values of fields, before or after their conversion."""

    def mark(method: F) -> F:
        function: Any = method.__func__  # type: ignore[attr-defined]
        function.validates = (mode, names)
        return method

    return mark


def model_validator(*, mode: str) -> Callable[[F], F]:
    """Let a class method change the given values (`before`), or a method check the whole object (`after`)."""

    def mark(method: F) -> F:
        function: Any = getattr(method, "__func__", method)
        function.validates = (mode, ())
        return method

    return mark


class Validated:
    """Base class. Unknown values are ignored, and defaults are validated, too."""

    model_fields: ClassVar[dict[str, FieldInfo]] = {}
    _validators: ClassVar[list[tuple[str, str, tuple[str, ...]]]] = []  # (method, mode, fields)

    model_fields_set: set[str]

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, FieldInfo)}
        cls.model_fields = own | cls.model_fields
        hints = get_type_hints(cls)
        for name, field in own.items():
            field.annotation = hints[name]
            delattr(cls, name)  # Instances have the values.
        marked = ((name, getattr(value, "__func__", value)) for name, value in vars(cls).items())
        cls._validators = [
            *cls._validators,
            *((name, *value.validates) for name, value in marked if hasattr(value, "validates")),
        ]

    def __init__(self, **values: Any) -> None:
        for name, mode, fields in self._validators:
            if mode == "before" and not fields:
                values = getattr(self, name)(values)
        problems = []
        for name, field in self.model_fields.items():
            try:
                self.__dict__[name] = self._parse(name, field, values.get(name, field.default))
            except ValueError as error:
                problems.append((name, str(error)))
        if not problems:
            self.__dict__["model_fields_set"] = set(values) & set(self.model_fields)
            try:
                for name, mode, fields in self._validators:
                    if mode == "after" and not fields:
                        getattr(self, name)()
            except ValueError as error:
                problems.append(("", str(error)))
        if problems:
            raise ValidationError(problems)

    def _parse(self, name: str, field: FieldInfo, value: Any) -> Any:
        for method, mode, fields in self._validators:
            if mode == "before" and name in fields:
                value = getattr(self, method)(value)
        value = field.parse(value)
        for method, mode, fields in self._validators:
            if mode == "after" and name in fields:
                value = getattr(self, method)(value)
        return value

    @classmethod
    def model_construct(cls, **values: Any) -> Self:
        """Return an object without validation."""
        made = cls.__new__(cls)
        defaults = {name: field.default for name, field in cls.model_fields.items()}
        made.__dict__.update(defaults | values, model_fields_set=set(values))
        return made

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """Return a copy with other values, which are not validated."""
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__, **update)
        copy.__dict__["model_fields_set"] = self.model_fields_set | set(update)
        return copy

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot set {name}: {type(self).__name__} is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete {name}: {type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.model_fields)})"

    def _values(self) -> tuple[Any, ...]:
        return tuple(self.__dict__[name] for name in self.model_fields)


def _convert(kind: Any, value: Any) -> Any:
    if kind is bool:
        return _bool(value)
    if isinstance(value, kind):
        return value
    if kind is int:
        return _int(value)
    if kind is float:
        return _float(value)
    if issubclass(kind, Enum):
        return _member(kind, value)
    if not isinstance(value, str | Path):
        raise ValueError("should be a text")
    return kind(value)


def _bool(value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in _TRUE | _FALSE:
        raise ValueError("should be 1, 0, true or false")
    return text in _TRUE


def _int(value: Any) -> int:
    try:
        number = int(value)
    except (ValueError, TypeError, OverflowError):
        raise ValueError("should be a whole number") from None
    if isinstance(value, float) and number != value:
        raise ValueError("should be a whole number")
    return number


def _float(value: Any) -> float:
    try:
        return float(value)
    except (ValueError, TypeError):
        raise ValueError("should be a number") from None


def _member(kind: type[Enum], value: Any) -> Enum:
    try:
        return kind(value)
    except ValueError:
        *others, last = [repr(str(member.value)) for member in kind]
        raise ValueError(f"input should be {', '.join(others)} or {last}") from None


def _texts(value: Any) -> tuple[str, ...]:
    texts = tuple(value) if isinstance(value, list | tuple) else ()
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ValueError("should be texts, separated by commas")
    return texts
