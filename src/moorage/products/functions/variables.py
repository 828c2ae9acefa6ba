"""Variables and secrets of functions, stored encrypted in the vault.

All variables of a function are one vault entry, which keeps their order. Each secret is an entry of its own, as for
projects. A secret overrides a variable of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.kit.envvars import read_env
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault

ENV_OF = "function-env:"
SECRETS_OF = "function:"
ENV = "env"  # name of the entry with the variables
NONE = "[]"


@dataclass(slots=True)
class Variables:
    """Decrypted variables and secrets of one function."""

    env: str = NONE  # JSON: a list of {name, value}
    secrets: dict[str, str] = field(default_factory=dict)

    def merged(self) -> list[tuple[str, str]]:
        """Return the environment of the function's process."""
        return list(({each.name: each.value for each in read_env(self.env)} | self.secrets).items())


def secrets_of(function_id: int) -> str:
    return f"{SECRETS_OF}{function_id}"


def put_env(tx: Tx, org_id: int, function_id: int, env: str) -> None:
    vault.put(tx, org_id, f"{ENV_OF}{function_id}", ENV, env)


def read_env_text(tx: Tx, org_id: int, function_id: int) -> str:
    """Return the variables as JSON; raises CannotDecrypt."""
    return vault.find(tx, org_id, f"{ENV_OF}{function_id}", ENV) or NONE


def read(tx: Tx, org_id: int, function_id: int) -> Variables:
    """Return a function's variables and secrets; raises CannotDecrypt."""
    return Variables(read_env_text(tx, org_id, function_id), vault.values(tx, org_id, secrets_of(function_id)))


def remove(tx: Tx, org_id: int, function_id: int) -> None:
    vault.remove_all(tx, org_id, f"{ENV_OF}{function_id}")
    vault.remove_all(tx, org_id, secrets_of(function_id))


@across_organizations("the edge serves the functions of every organization")
def read_all(tx: Tx) -> Mapping[int, Variables | None]:
    """Return the variables of functions by id; None if one cannot be decrypted."""
    by_function: dict[int, Variables | None] = {}
    for prefix in (ENV_OF, SECRETS_OF):
        for stored in vault.all_below(tx, prefix):
            function_id = int(stored.resource.removeprefix(prefix))
            function_variables = by_function.setdefault(function_id, Variables())
            if function_variables is None:
                continue
            try:
                value = tx.env.ring.decrypt(stored.ciphertext, place=stored.place)
            except CannotDecrypt:
                by_function[function_id] = None
                continue
            if prefix == ENV_OF:
                function_variables.env = value
            else:
                function_variables.secrets[stored.name] = value
    return by_function
