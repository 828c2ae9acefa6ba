"""Prepares the replica spec of a cronjob run.

Variables and secrets are read when a run starts and never stored with it. A run from a repository uses the artifact of
the last good build; a run from an image resolves the image reference when it starts.
"""

from __future__ import annotations

import os

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import to_wire
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.kit.decoding import decode
from moorage.core.kit.envvars import read_env
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault
from moorage.errors import NotFound
from moorage.products.cronjobs import service, tables
from moorage.products.cronjobs.tables import Build, Cronjob, Execution
from moorage.runtime.builds.ports import Plan
from moorage.runtime.engines.ports import CannotStart, Logs, Owner, Program, Programs, PublicImage, Release, RunSpec

FIRST_UID = 700_000_000  # As root, each cronjob runs as its own user: FIRST_UID plus its id.
PIDS = 512
MB_OF_GB = 1024
LOG_BYTES = 10 * 10**6
LOGS = "cronjobs"  # group of the logs of runs
NOTHING_TO_RUN = "the cronjob has no build that can run"
UNDECRYPTABLE = "a secret of this cronjob cannot be decrypted with the keys this platform has"


@dataclass(frozen=True, slots=True)
class RunInputs:
    """Rows and decrypted secrets that a run is started from."""

    cronjob: Cronjob
    build: Build | None
    env: dict[str, str]
    hidden: list[str]  # values of secrets, masked in the log


@dataclass(frozen=True, slots=True)
class Prepared:
    spec: RunSpec
    build_id: int | None
    image_digest: str | None


def log_of(execution: Execution) -> str:
    """Return the name of a run's log."""
    return f"{LOGS}/{execution.cronjob_id}/{execution.id}"


@dataclass(frozen=True)
class Launcher:
    db: Database
    programs: Programs
    logs: Logs
    is_sandboxed: bool

    async def prepare(self, execution: Execution) -> Prepared:
        """Return the spec of a run, pulling its image if needed; raises CannotStart."""
        try:
            inputs = await self.db.read(lambda tx: _read_inputs(tx, execution.org_id, execution))
        except NotFound:
            raise CannotStart(NOTHING_TO_RUN) from None
        except CannotDecrypt:
            raise CannotStart(UNDECRYPTABLE) from None
        if inputs.cronjob.is_image:
            return await self._from_image(execution, inputs)
        return await self._from_build(execution, inputs)

    async def _from_build(self, execution: Execution, inputs: RunInputs) -> Prepared:
        cronjob, build = inputs.cronjob, inputs.build
        if build is None or build.digest is None or build.plan is None:
            raise CannotStart(NOTHING_TO_RUN)
        plan = decode(build.plan, Plan)
        command = cronjob.command or cronjob.start_cmd or plan.start
        if not command and not plan.image:
            raise CannotStart("it has no command: set `command` or `startCmd`")
        release = Release(build.org_id, build.digest, build.plan, Owner("cronjob", cronjob.id), command)
        program = await self.programs.prepare(release, inputs.env, _memory_mb(cronjob))
        return Prepared(self._spec(execution, inputs, program), build.id, program.digest or None)

    async def _from_image(self, execution: Execution, inputs: RunInputs) -> Prepared:
        cronjob = inputs.cronjob
        owner = Owner("cronjob", cronjob.id)
        image = PublicImage(execution.org_id, cronjob.public_image or "", owner, cronjob.command)
        log = self.logs.writer(log_of(execution), execution.key, inputs.hidden)
        try:
            program = await self.programs.pull(image, inputs.env, lambda line: log.write("system", line.encode()))
        except CannotStart as error:
            log.write("system", str(error).encode())
            raise
        finally:
            log.close()
        return Prepared(self._spec(execution, inputs, program), None, program.digest)

    def _spec(self, execution: Execution, inputs: RunInputs, program: Program) -> RunSpec:
        settings, cronjob = self.db.env.settings, inputs.cronjob
        moment = execution.created_at if execution.scheduled_for is None else execution.scheduled_for
        run_env = {"MOORAGE_EXECUTION_ID": execution.uuid, "MOORAGE_SCHEDULED_AT": to_wire(moment)}
        return RunSpec(
            key=execution.key,
            token=execution.token,
            argv=program.argv,
            env={**program.env, **run_env},
            files=program.files,
            hidden=inputs.hidden,
            log=log_of(execution),
            cpu=cronjob.tier.cpu,
            memory_mb=_memory_mb(cronjob),
            pids=PIDS,
            uid=FIRST_UID + cronjob.id if os.getuid() == 0 and self.is_sandboxed else 0,
            allow=list(settings.sandbox_allow),
            block=list(settings.sandbox_block),
            is_boxed=self.is_sandboxed,
            stop_signal=program.stop_signal,
            timeout_s=settings.cronjob_minutes * 60,
            log_bytes=LOG_BYTES,
        )


def _memory_mb(cronjob: Cronjob) -> int:
    return int(cronjob.tier.memory * MB_OF_GB)


def _read_inputs(tx: Tx, org_id: int, execution: Execution) -> RunInputs:
    cronjob = service.get_by_id(tx, org_id, execution.cronjob_id)
    build = tx.find(tables.FIND_BUILD, org_id=org_id, id=cronjob.build_id or 0)
    hidden = vault.values(tx, org_id, cronjob.resource)
    env = {each.name: each.value for each in read_env(cronjob.env)} | hidden
    return RunInputs(cronjob, build, env, list(hidden.values()))
