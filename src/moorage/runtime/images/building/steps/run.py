"""RUN instructions: programs in a sandbox on a writable root of the stage."""

from __future__ import annotations

import codecs
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, Protocol

from moorage.core.kit import folders
from moorage.runtime.images.building import config as configs
from moorage.runtime.images.building.cache import key_of
from moorage.runtime.images.building.files import packing
from moorage.runtime.images.building.files.selecting import Hashes, Source
from moorage.runtime.images.building.files.tree import Tree
from moorage.runtime.images.building.files.writing import Budget
from moorage.runtime.images.building.ports import Limits, StepFailed, Workspace
from moorage.runtime.images.building.state import PROXIES, StageState
from moorage.runtime.images.building.steps.mounts import Mounted, MountMaker, Places
from moorage.runtime.images.building.threads import to_end
from moorage.runtime.images.dockerfile import instructions as ins
from moorage.runtime.images.dockerfile import lines
from moorage.runtime.images.dockerfile.errors import DockerfileError
from moorage.runtime.images.dockerfile.stages import Stage
from moorage.runtime.sandbox.rootfs.spec import ImageRoot
from moorage.runtime.sandbox.runs import main as sandbox
from moorage.runtime.sandbox.runs.job import NO_SANDBOX, TIMED_OUT, Finished, Job

SCRIPT = "/run/moorage-heredoc/script"  # path inside of a heredoc with its own interpreter
NOT_MADE = "the sandbox could not be made"
TAIL_CHARS = 64 * 1024
TITLE_CHARS = 80


class RunHost(Protocol):
    """Parts of a build that its RUN instructions use."""

    hashes: Hashes
    workspace: Workspace
    limits: Limits

    @property
    def secrets(self) -> dict[str, str]: ...

    async def source(self, line: int, name: str, user: Stage) -> tuple[Callable[[], Awaitable[Source]], str]: ...

    def budget(self) -> Budget: ...


class RunStep:
    def __init__(self, build: RunHost, state: StageState, run: ins.Run) -> None:
        self._build = build
        self._state = state
        self._run = run
        self._mounts = MountMaker(state, run, build.secrets)
        self._argv, self._script = _command(state, run)
        self._env = configs.run_env(state.config, state.args)
        self._key = ""

    async def key(self) -> str:
        if not self._key:
            sources = await self._sources(is_for_key=True)
            mounts = (
                await to_end(self._mounts.key, sources, self._build.hashes)
                if sources
                else self._mounts.key({}, self._build.hashes)
            )
            config = self._state.config
            env = {name: value for name, value in self._env.items() if name not in PROXIES}
            self._key = key_of(
                *("RUN", self._state.chain, self._argv, self._script, env, config.user, config.workdir),
                *(self._run.has_network, mounts),
            )
        return self._key

    async def content_key(self) -> str | None:
        return None

    async def execute(self, folder: Path, lowers: list[Path]) -> packing.Owners:
        self._check_program(lowers)
        scratch = Path(tempfile.mkdtemp(prefix="run-", dir=self._build.workspace.scratch))
        try:
            sources = await self._sources(is_for_key=False)
            places = Places(scratch, self._build.workspace.mounts or scratch / "caches")
            mounted = await to_end(self._mounts.make, sources, places, self._build.budget())
            if self._script:
                script = scratch / "script"
                script.write_text(self._script)
                script.chmod(0o755)
                mounted.read_only[SCRIPT] = str(script)
            await self._run_program(folder, lowers, mounted)
        finally:
            await to_end(folders.remove, scratch)
        return {}

    async def _sources(self, *, is_for_key: bool) -> dict[int, tuple[Source, str]]:
        """Return the trees of bind mounts by number; their content is read for the key of the context only."""
        sources: dict[int, tuple[Source, str]] = {}
        for number, mount in enumerate(self._run.mounts):
            if mount.kind != "bind":
                continue
            name = mount.options.get("from", "")
            open_source, chain = await self._build.source(self._run.line, name, self._state.stage)
            if is_for_key and chain:
                sources[number] = (Source(Tree([]), name), chain)
            else:
                sources[number] = (await open_source(), "" if is_for_key else chain)
        return sources

    def _check_program(self, lowers: list[Path]) -> None:
        program = self._argv[0]
        if program.startswith("/") and program != SCRIPT and Tree(lowers).get(program) is None:
            raise DockerfileError(self._run.line, f"the image has no {program}, which runs this instruction")

    async def _run_program(self, folder: Path, lowers: list[Path], mounted: Mounted) -> None:
        left_s = self._build.workspace.deadline - time.monotonic()
        if left_s <= 0:
            raise StepFailed(self._run.line, self._title, Finished(TIMED_OUT, "", "it took too long", True), "")
        output = _Tail(self._build.workspace)
        finished = await sandbox.run(self._job(folder, lowers, mounted, left_s), output.take)
        if finished.code == NO_SANDBOX and finished.is_reported and finished.why:
            why = output.text.strip().removeprefix(f"{NOT_MADE}: ") or finished.why
            raise DockerfileError(self._run.line, f"{self._title} cannot run: {why}")
        if finished.code != 0:
            raise StepFailed(self._run.line, self._title, finished, output.text)

    def _job(self, folder: Path, lowers: list[Path], mounted: Mounted, timeout_s: float) -> Job:
        limits, config = self._build.limits, self._state.config
        return Job(
            argv=self._argv,
            work="",
            cwd=config.workdir,
            env={**self._build.workspace.env, **self._env, **mounted.env},
            binds={**self._build.workspace.binds, **mounted.read_only},
            writable=mounted.writable,
            memory_mb=limits.memory_mb,
            pids=limits.pids,
            file_mb=limits.file_mb,
            disk_mb=limits.disk_mb,
            reserve_mb=limits.reserve_mb,
            timeout_s=timeout_s,
            output_bytes=limits.output_bytes,
            network=self._run.has_network,
            allow=list(limits.allow),
            block=list(limits.block),
            root=ImageRoot(
                lowers=[str(lower) for lower in lowers],
                upper=str(folder),
                first_id=self._build.workspace.first_id,
                user=config.user,
                hostname="build",
                maps_ids=self._build.workspace.maps_ids,
            ),
        )

    @property
    def _title(self) -> str:
        text = self._run.text.splitlines()[0]
        return text if len(text) <= TITLE_CHARS else f"{text[:TITLE_CHARS]}…"


def _command(state: StageState, run: ins.Run) -> tuple[list[str], str]:
    """Return argv, and the text of a script with its own interpreter."""
    if not run.command.is_shell:
        return list(run.command.words), ""
    [text] = run.command.words
    if not run.heredocs:
        return [*state.config.shell, text], ""
    if len(run.heredocs) == 1 and lines.parse_heredoc(text.strip()) is not None:
        body = run.heredocs[0].body
        return ([SCRIPT], body) if body.startswith("#!") else ([*state.config.shell, body], "")
    for each in run.heredocs:
        text = each.script(text)
    return [*state.config.shell, text], ""


class _Tail:
    """Passes output on, and keeps its end for the diagnosis of a failure."""

    def __init__(self, workspace: Workspace) -> None:
        self._output = workspace.output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.text = ""

    def take(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        self._output(stream, data)
        self.text = (self.text + self._decoder.decode(data))[-TAIL_CHARS:]
