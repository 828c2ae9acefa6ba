"""Linked databases that the build of a project may use, such as for migrations or for pages with their content."""

from __future__ import annotations

from moorage.core.db.tx import Tx
from moorage.core.kit.envvars import read_env
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault
from moorage.products.apps.launching import EGRESS
from moorage.products.apps.linked import databases
from moorage.products.projects import service as projects
from moorage.products.projects.deployments.tables import Deployment
from moorage.runtime.builds.ports import CREATED_DATABASE, BuildDatabases, Plan


@dataclass(frozen=True, slots=True)
class BuildAccess:
    databases: BuildDatabases
    hidden: list[str]  # secrets of the project, passwords of databases and values with one, masked in the log


def read(tx: Tx, org_id: int, deployment: Deployment, plan: Plan) -> BuildAccess:
    """Return the variables and egress rules of the linked databases; none for code of a fork."""
    project = projects.get_by_id(tx, org_id, deployment.project_id)
    preview = projects.find_preview(tx, org_id, deployment.preview_id)
    secrets = vault.values(tx, org_id, projects.resource_of(project.id))
    if preview is not None and preview.is_fork:
        return BuildAccess(BuildDatabases(), list(secrets.values()))
    linked = databases.linked(tx, org_id, project.id)
    own = {each.name: each.value for each in read_env(project.env)} | secrets
    values = {each.secret: own.get(each.secret, each.parts["url"]) for each in linked}
    values |= databases.variables(linked, plan, own)
    values.pop(CREATED_DATABASE, None)
    rules = [rule for each in tx.env.hooks.call(EGRESS, tx, org_id, project.id) for rule in each]
    egress = tuple(str(rule.address) for rule in rules)
    return BuildAccess(BuildDatabases(values, egress), [*secrets.values(), *databases.secrets_of(linked, values)])
