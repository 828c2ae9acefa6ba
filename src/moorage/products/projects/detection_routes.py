"""Show the build plan of a repository before a project is created from it."""

from __future__ import annotations

import asyncio
import shutil

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.http.route import Router
from moorage.core.kit.records import dataclass
from moorage.errors import bad_field
from moorage.products.projects import schemas
from moorage.products.repositories.fetch import FetchFailed, Sources
from moorage.runtime.sandbox.heavy import HeavyWork

PREVIEW = "moorage.runtime.builds.detection.preview:preview"
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Detection:
    """Checks out a branch into a temporary folder, and detects its plan there."""

    sources: Sources
    releases: Unpacked  # its file system has the temporary folder
    heavy: HeavyWork

    async def detect(self, org_id: int, wanted: schemas.DetectInput) -> schemas.DetectedPlan:
        """Return the plan of a branch's head; raises BadRequest where it cannot be read in time."""
        scratch = self.releases.new_folder()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                fetched = await self.sources.fetch(
                    org_id,
                    wanted.repository_name,
                    branch=wanted.branch,
                    commit=None,
                    target=scratch,
                    say=lambda line: None,
                )
                settings = (wanted.slug, wanted.base_dir, wanted.start_cmd)
                plan = await self.heavy.run(org_id, PREVIEW, str(scratch), *settings)
        except FetchFailed as error:
            raise bad_field("repositoryName", str(error)) from error
        except TimeoutError as error:
            message = f"could not be read within {TIMEOUT_S:.0f} s; the log of its first deployment has the plan"
            raise bad_field("repositoryName", message) from error
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        return schemas.DetectedPlan(fetched.sha, fetched.message, **plan)


def make_router(detection: Detection) -> Router:
    router = Router("Projects")

    @router.post("/projects/detect", min_role=Role.MEMBER, hides_names=False)
    async def detect_project(caller: Caller, body: schemas.DetectInput) -> schemas.DetectedPlan:
        """Detect the kind and the commands of a repository, without creating a project.

        The plan is that of `moorage detect`: the head of the branch is read, and nothing of it is executed. `problem`
        says why the repository cannot be deployed with these settings; then there is no plan.
        """
        return await detection.detect(caller.org_id, body)

    return router
