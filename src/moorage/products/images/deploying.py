"""Projects of pushed images: a push creates its project, and every pushed tag is deployed."""

from __future__ import annotations

from moorage.accounts.identity.organizations import service as orgs
from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor
from moorage.core.db.tx import Tx
from moorage.errors import Conflict
from moorage.products.images import service
from moorage.products.images.tables import Repository
from moorage.products.projects import pushed
from moorage.products.projects import service as projects
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.ready_images import own_registry
from moorage.products.projects.deployments.service import DeploymentRequest
from moorage.products.projects.deployments.states import DeploymentStatus
from moorage.products.projects.service import NewProject
from moorage.products.projects.tables import Project
from moorage.runtime.images.references import Reference

SOURCE = "image"


def check_may_push(tx: Tx, org_id: int, name: str) -> None:
    """Raise an error unless a push to this name deploys a project, or creates it."""
    project = projects.find(tx, org_id, name)
    if project is None:
        organization = orgs.get(tx, org_id)
        if not organization.create_on_push:
            raise Conflict(f"There is no project {name!r}, and pushes do not create projects in this organization")
        projects.check_may_create(tx, org_id, name, organization.standing)
    elif project.source != SOURCE:
        kind = "a repository" if project.source == "git" else "an uploaded archive"
        raise Conflict(f"The project {name!r} is deployed from {kind}; push to another name")


def deploy(tx: Tx, org_id: int, actor: Actor, repository: Repository, tag: str, *, is_new: bool) -> None:
    """Deploy a pushed tag, and create its project where there is none.

    `is_new` is false for a tag that had this image before: then only a failed deployment is repeated.
    """
    organization = orgs.get(tx, org_id)
    image = str(Reference(own_registry(tx.env.settings), f"{organization.slug}/{repository.name}", tag, None))
    project = projects.find(tx, org_id, repository.name)
    is_created = project is None
    if project is None:
        new = NewProject(
            repository.name,
            "container",
            source=SOURCE,
            public_image=image,
            region="us",
            language="docker",
            health_check_path="/",
            disk=0,
            auto_deploy=True,
        )
        project = projects.create(tx, org_id, actor, organization.standing, new, cause=pushed.CAUSE)
    elif project.public_image != image:
        project = projects.update(tx, org_id, actor, project, {"public_image": image})
        is_new = True
    service.set_project(tx, org_id, repository, project.id)
    if project.enabled and project.auto_deploy and (is_new or _needs_deployment(tx, org_id, project)):
        started = deployments.start(tx, org_id, project, DeploymentRequest(user_id=actor.user_id))
        if not is_created:  # A project with no entry but its creation gives way to one that a client creates.
            target = projects.target_of(project)
            audit.record(tx, org_id, actor, "project.image_pushed", target, tag=tag, deployment=started.uuid)


def find_pushed(tx: Tx, org_id: int, reference: Reference) -> str | None:
    """Return the digest of an image that the organization pushed."""
    owner, _, name = reference.repository.partition("/")
    repository = service.find(tx, org_id, name)
    if repository is None or orgs.get(tx, org_id).slug != owner:
        return None
    part = service.find_manifest(tx, org_id, repository, reference.wanted)
    return part.digest if part is not None else None


def is_used(tx: Tx, org_id: int, repository: Repository) -> bool:
    """Return whether a project deploys the images of a repository, or a push may create it soon."""
    if projects.find(tx, org_id, repository.name) is not None:
        return True
    project = projects.find_by_id(tx, org_id, repository.project_id or 0)
    return project is not None or repository.updated_at > tx.trusted_now - service.UNUSED_MS


def _needs_deployment(tx: Tx, org_id: int, project: Project) -> bool:
    latest = deployments.find(tx, org_id, project.latest_deployment_id or 0)
    return latest is None or latest.status == DeploymentStatus.FAILED
