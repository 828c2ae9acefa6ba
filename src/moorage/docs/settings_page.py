"""The page of all settings."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

from moorage.core.certificates import CertificateSettings
from moorage.core.cluster import ClusterSettings
from moorage.core.http.openapi.schema_text import Schemas
from moorage.core.validated import FieldInfo, SecretStr
from moorage.docs import source
from moorage.docs.markdown import code, table
from moorage.docs.markdown import page as join
from moorage.settings import Settings

HEAD = ("Variable", "Flag", "Default", "Meaning")


def page() -> str:
    """Return the page: a table for each group of settings, then the named values."""
    return join(
        "# Settings",
        "Every setting is an environment variable, and a flag of `moorage up`, `serve`, `work` and `edge`; the flag "
        "wins. They are read once at start: a changed setting takes a restart. An empty variable counts as not set.",
        *_groups(),
        "## Named values",
        *_values(),
    )


def _groups() -> Iterator[str]:
    parts = (ClusterSettings, CertificateSettings, Settings)
    headings = {name: title for part in parts for name, title in source.headings(part).items()}
    schemas = Schemas({})
    title, rows = "Settings", list[tuple[str, ...]]()
    for name, field in Settings.model_fields.items():
        if name in headings:
            yield from _group(title, rows)
            title, rows = headings[name], []
        rows.append(_row(name, _schema(field), schemas))
    yield from _group(title, rows)


def _group(title: str, rows: list[tuple[str, ...]]) -> list[str]:
    return [f"## {title}", table(HEAD, rows)] if rows else []


def _row(name: str, schema: dict[str, Any], schemas: Schemas) -> tuple[str, ...]:
    default = schema.get("default")
    shown = "" if default in (None, "", []) else code(_plain(default))
    # The description contains the values, and the default where it depends on other settings.
    rules = [rule for rule in schemas.rules(schema) if not rule.startswith(("default ", "one of "))]
    text = [schema.get("description", ""), f"({', '.join(rules)})" if rules else ""]
    return code(f"MOORAGE_{name.upper()}"), code(f"--{name.replace('_', '-')}"), shown, " ".join(filter(None, text))


def _schema(field: FieldInfo) -> dict[str, Any]:
    limits = {"minimum": field.ge, "exclusiveMinimum": field.gt, "maximum": field.le, "pattern": field.pattern}
    default = str(field.default) if isinstance(field.default, Path | SecretStr) else field.default
    given = {name: value for name, value in limits.items() if value is not None}
    return {"description": field.description, "default": list(default) if default == () else default, **given}


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values() -> Iterator[str]:
    for name, field in Settings.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, StrEnum):
                meanings = source.meanings(kind)
                yield f"### {code(f'MOORAGE_{name.upper()}')}"
                yield table(("Value", "Meaning"), [(code(each), meanings.get(each.name, "")) for each in kind])
