"""Schemas of environment variables and secrets, shared by all products."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from moorage.core.http.models import Input, Output, optional
from moorage.core.kit.envvars import ENV_BYTES, MAX_ENV_ENTRIES, TOO_MANY_BYTES, size_of


def _check_name(name: str) -> str:
    if "=" in name or "\x00" in name:
        raise ValueError("must not contain `=` or a NUL character")
    return name


EnvName = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_check_name)]


class EnvVar(Input):
    name: EnvName
    value: str


class SecretUpsert(Input):
    """A secret to set; without a value it keeps the stored one."""

    name: EnvName
    value: str = optional()


class RevealInput(Input):
    name: Annotated[str, Field(min_length=1, max_length=255)]


class SecretName(Output, frozen=True):
    name: str


class RevealedSecret(Output, frozen=True):
    name: str
    value: str


V = TypeVar("V", EnvVar, SecretUpsert)


def check_env(env: list[V]) -> list[V]:
    """Refuse duplicate names, and more bytes than an environment may have."""
    seen: set[str] = set()
    errors: list[InitErrorDetails] = []
    for index, item in enumerate(env):
        if item.name in seen:
            text = PydanticCustomError("value_error", "is there twice")
            errors.append(InitErrorDetails(type=text, loc=(index, "name"), input=item.name))
        seen.add(item.name)
    if errors:
        # Reported at the name of the duplicate, not at the list.
        raise ValidationError.from_exception_data("env", errors)
    if sum(size_of(item.name, item.value or "") for item in env) > ENV_BYTES:
        raise ValueError(TOO_MANY_BYTES)
    return env


# Stands before `check_env`, so that a longer list is refused without an error for each entry.
EnvLength = Field(max_length=MAX_ENV_ENTRIES)
Env = Annotated[list[EnvVar], EnvLength, AfterValidator(check_env)]
SecretSet = Annotated[list[SecretUpsert], EnvLength, AfterValidator(check_env)]
