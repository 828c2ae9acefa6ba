"""Variables of an app that has linked databases: the parts of their addresses.

The variables are computed at each start and stored nowhere. Variables and secrets of the user come first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.core.kit.records import dataclass
from moorage.runtime.builds.ports import CREATED_DATABASE, Plan

# Names that clients of the engines read themselves.
_STANDARD = {
    "postgresql": {
        "PGHOST": "{host}",
        "PGPORT": "{port}",
        "PGUSER": "{user}",
        "PGPASSWORD": "{password}",
        "PGDATABASE": "{name}",
    },
    "mysql": {
        "MYSQL_HOST": "{host}",
        "MYSQL_PORT": "{port}",
        "MYSQL_USER": "{user}",
        "MYSQL_PASSWORD": "{password}",
        "MYSQL_DATABASE": "{name}",
    },
}


@dataclass(frozen=True, slots=True)
class LinkedDatabase:
    engine: str  # "postgresql" or "mysql"
    secret: str  # name of the project's secret with the URL
    parts: Mapping[str, str]  # host, port, user, password, name and url
    is_created: bool  # by the first deployment of the project


# Returns the databases of a project whose link still owns the project's secret, oldest first.
LINKED: Hook[[Tx, int, int], list[LinkedDatabase]] = Hook("app.databases")


def linked(tx: Tx, org_id: int, project_id: int) -> list[LinkedDatabase]:
    return [each for databases in tx.env.hooks.call(LINKED, tx, org_id, project_id) for each in databases]


def secrets_of(databases: Sequence[LinkedDatabase], values: Mapping[str, str]) -> list[str]:
    """Return the passwords and the values with one, which are masked in the output."""
    passwords = [each.parts["password"] for each in databases]
    return [*passwords, *(value for value in values.values() if any(each in value for each in passwords))]


def variables(databases: Sequence[LinkedDatabase], plan: Plan, own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that linked databases set; `own` are the variables and secrets of the project.

    The oldest database of each engine counts. A URL gets the scheme of the repository's example, such as
    `postgresql+asyncpg`.
    """
    values: dict[str, str] = {}
    for database in reversed(databases):
        templates = {**_STANDARD[database.engine], **(dict(plan.parts) if database.engine == plan.database else {})}
        filled = {name: template.format(**database.parts) for name, template in templates.items()}
        values |= {
            name: value
            for name, value in filled.items()
            if name not in own or (name == database.secret and own[name] == database.parts["url"])
        }
        if database.is_created:
            values[CREATED_DATABASE] = database.engine
    return values
