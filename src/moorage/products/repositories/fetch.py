"""Check out one commit, from the built-in git server or else from the code host.

All user input is validated before git gets it, and nothing in a repository is executed: there are no hooks and filters.
A checkout creates only files, folders and links, and only below the target. Submodules are checked out likewise, from
the same two places.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from moorage.core.db.store import Database
from moorage.core.kit.records import dataclass
from moorage.core.kit.texts import size_text
from moorage.core.machines import service as machines
from moorage.errors import QuotaExceeded
from moorage.products.repositories import machine_tokens, service, submodules
from moorage.products.repositories.git import Done, Git, TooSlow
from moorage.products.repositories.github.api import GithubUnavailable
from moorage.products.repositories.github.app import GithubApp, as_basic
from moorage.products.repositories.names import Name, is_branch, is_commit, is_full_commit, parse_name
from moorage.products.repositories.server.pushes import HEADS
from moorage.products.repositories.server.transfer_slots import TransferSlots
from moorage.products.repositories.storage import Storage, size_of
from moorage.products.repositories.submodules import Submodule
from moorage.products.repositories.tables import Repository
from moorage.runtime.sandbox.heavy import HeavyWork
from moorage.runtime.scan.folders import FolderScans
from moorage.runtime.scan.service import Purpose, ScanUnavailable

FETCH_TIMEOUT_S = 600
CHECKOUT_TIMEOUT_S = 300
READ_TIMEOUT_S = 30
SIZE_CHECK_INTERVAL_S = 0.25
MAX_MESSAGE_CHARS = 500
MACHINE_WAIT_S = 120.0  # for a machine that is being restarted
MACHINE_RETRY_S = 2.0
FETCHED = "refs/moorage/fetched"
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
_NO_REFERENCE = re.compile(r"couldn't find remote ref|not our ref|unadvertised object")
_NOT_FOUND = re.compile(
    r"repository .{1,500} not found|Authentication failed|could not read (Username|Password)"
    r"|returned error: (401|403|404|410)"
)
_TOO_LARGE = re.compile(r"File too large|signal 25")
_AWAY = re.compile(
    r"Could not resolve|Failed to connect|Couldn't connect|Connection (refused|reset|timed out)|timed out|too slow"
    r"|returned error: 5\d\d|Empty reply|gnutls|SSL|early EOF|hung up"
)


@dataclass(frozen=True, slots=True)
class Fetched:
    """Commit that was checked out."""

    sha: str
    branch: str
    message: str  # first line


class FetchFailed(Exception):
    """The commit cannot be checked out; the message is for the user."""


class _TooLarge(FetchFailed):
    """The repository or its submodules exceed the limit."""


class _HostFailed(FetchFailed):
    """The code host cannot be reached, or does not show the repository."""


@dataclass(frozen=True, slots=True)
class _Source:
    name: Name
    branch: str  # "" for a submodule
    commit: str | None
    is_submodule: bool = False

    @property
    def reference(self) -> str:
        return HEADS + self.branch if self.branch else "HEAD"

    @property
    def missing(self) -> FetchFailed:
        if self.commit is not None:
            return FetchFailed(f"commit {self.commit} does not exist in {self.name}")
        return FetchFailed(f"branch '{self.branch}' does not exist in {self.name}")


@dataclass(frozen=True, slots=True)
class _Workspace:
    """Temporary repository of one fetch, and the folder for its files."""

    folder: Path  # of the repositories, those of submodules included
    target: Path  # of all files
    git: Git
    place: str = ""  # of a submodule, below the target

    @property
    def repository(self) -> Path:
        return self.folder / "submodules" / self.place / "work.git" if self.place else self.folder / "work.git"

    @property
    def work_tree(self) -> Path:
        return self.target / self.place

    def make(self) -> None:
        """Create a minimal repository, which is faster than `git init`."""
        for name in ("objects/info", "refs"):
            (self.repository / name).mkdir(parents=True)
        (self.repository / "HEAD").write_text("ref: refs/heads/main\n")
        (self.repository / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")


class Sources:
    def __init__(self, db: Database, heavy: HeavyWork | None = None) -> None:
        """`heavy` has the processes that scan; None for own ones."""
        self._db = db
        self._settings = db.env.settings
        self._storage = Storage(self._settings)
        self._github = GithubApp(db)
        self._slots = TransferSlots()
        self._scans = FolderScans(self._settings.clamd, heavy or HeavyWork())
        self.reach_machine: Callable[[int], Awaitable[str]] | None = None  # None where the store has one machine
        self.machine_wait_s = MACHINE_WAIT_S

    async def fetch(
        self,
        org_id: int,
        repository: str,
        *,
        branch: str,
        commit: str | None,
        target: Path,
        say: Callable[[str], None],
    ) -> Fetched:
        """Check out a commit or a branch's head into an empty folder; raises FetchFailed."""
        source = _validate(repository, branch, commit)
        try:
            async with self._slots.wait(org_id), self._open_workspace(target) as workspace:
                fetched = await self._obtain(org_id, source, workspace, say)
                await self._check_out(source, fetched, workspace)
                await self._add_submodules(org_id, source, fetched, workspace, say)
            say(f"Checked out {fetched.sha[:12]} {fetched.message}".rstrip())
            await self._scan(org_id, workspace.target)
            return fetched
        except TooSlow:
            raise FetchFailed(f"{source.name} could not be fetched in time") from None
        except QuotaExceeded as error:
            raise FetchFailed(error.message) from None

    async def check_site(self, org_id: int, folder: Path) -> str | None:
        """Return why a built site must not be published, or None."""
        return await self._find_problem(org_id, folder, Purpose.SITE)

    async def _scan(self, org_id: int, folder: Path) -> None:
        if problem := await self._find_problem(org_id, folder, Purpose.SOURCE):
            raise FetchFailed(problem)

    async def _find_problem(self, org_id: int, folder: Path, purpose: Purpose) -> str | None:
        try:
            finding = await self._scans.check(org_id, folder, purpose)
        except ScanUnavailable as error:
            return error.message
        return f"The scan refused {finding.file}: it {finding.why} ({finding.rule})" if finding is not None else None

    @contextlib.asynccontextmanager
    async def _open_workspace(self, target: Path) -> AsyncIterator[_Workspace]:
        self._storage.prepare()
        self._storage.check_room()
        folder = Path(tempfile.mkdtemp(dir=self._storage.incoming, prefix="fetch-"))
        workspace = _Workspace(folder, target.absolute(), self._storage.git)
        try:
            workspace.make()
            yield workspace
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _obtain(self, org_id: int, source: _Source, workspace: _Workspace, say: Callable[[str], None]) -> Fetched:
        """Make the commit available in the workspace, and return it."""
        own = await self._find_own(org_id, source.name)
        if own is None:
            return await self._obtain_from_host_or_hint(org_id, source, workspace, say)
        say(f"Fetching {source.name} from the built-in git server")
        if own.machine_id not in (self._db.env.machine.id, machines.UNOWNED) and self._settings.uses_postgres:
            return await self._obtain_from_machine(own, source, workspace, say)
        objects = self._storage.path(own.id) / "objects"
        if not objects.exists():
            raise source.missing
        # The objects are read in place, not copied.
        (workspace.repository / "objects" / "info" / "alternates").write_text(f"{objects}\n")
        if source.commit is not None:
            return await self._resolve(source, workspace, source.commit)
        words = ("show-ref", "--verify", "--hash", HEADS + source.branch)
        head = await workspace.git.run(*words, cwd=objects.parent, within_s=READ_TIMEOUT_S)
        if head.code != 0:
            raise source.missing
        return await self._resolve(source, workspace, head.text)

    async def _find_own(self, org_id: int, name: Name) -> Repository | None:
        return await self._db.read(partial(service.find, org_id=org_id, name=name))

    async def _obtain_from_machine(
        self, own: Repository, source: _Source, workspace: _Workspace, say: Callable[[str], None]
    ) -> Fetched:
        """Fetch from the machine that has the repository, with a token that reads only this one.

        A machine that is being restarted is waited for: deployments that began before go on with it.
        """
        if self.reach_machine is None:
            raise FetchFailed(f"{source.name} is on another machine, which this process cannot reach")
        until, is_said = time.monotonic() + self.machine_wait_s, False
        while True:
            url = f"http://{await self.reach_machine(own.machine_id)}/git/"
            git = replace(workspace.git, config={"protocol.http.allow": "always"})
            git = _with_token(git, url, machine_tokens.make(self._db.env, own))
            try:
                return await self._fetch(source, replace(workspace, git=git), url)
            except _NotFound:
                raise source.missing from None
            except _HostFailed:
                if time.monotonic() > until:
                    away = f"{source.name} is on another machine, which does not answer; try again"
                    raise FetchFailed(away) from None
            if not is_said:
                say("The machine that has it does not answer; waiting for it")
                is_said = True
            await asyncio.sleep(MACHINE_RETRY_S)

    async def _obtain_from_host_or_hint(
        self, org_id: int, source: _Source, workspace: _Workspace, say: Callable[[str], None]
    ) -> Fetched:
        """Fetch from the code host; a failure names the repository that was probably meant."""
        hint = await self._db.read(partial(service.find_hint, org_id=org_id, name=source.name))
        if hint is None:
            return await self._obtain_from_host(org_id, source, workspace, say)
        say(hint)
        try:
            return await self._obtain_from_host(org_id, source, workspace, say)
        except _HostFailed as error:
            raise FetchFailed(f"{error}. {hint}") from None

    async def _obtain_from_host(
        self, org_id: int, source: _Source, workspace: _Workspace, say: Callable[[str], None]
    ) -> Fetched:
        say(f"Fetching {source.name} from {_host(self._settings.codehost_url)}")
        workspace = replace(workspace, git=self._for_host(workspace.git))
        try:
            return await self._fetch(source, workspace)
        except _NotFound:
            # A fork names its submodules itself, and must not read what only the organization may.
            token = None if source.is_submodule else await self._find_token(org_id, source.name)
        if token is not None:
            with contextlib.suppress(_NotFound):
                return await self._fetch(source, replace(workspace, git=_with_token(workspace.git, self._url(), token)))
        if source.is_submodule:
            raise _HostFailed(f"{source.name} is not a public repository of {_host(self._settings.codehost_url)}")
        raise _HostFailed(
            f"{source.name} does not exist at {_host(self._settings.codehost_url)}, or it is private and this "
            "organization may not read it (connect its GitHub account: POST /v1/github/installations/begin)"
        )

    async def _find_token(self, org_id: int, name: Name) -> str | None:
        try:
            return await self._github.find_token(org_id, name)
        except GithubUnavailable as error:
            raise FetchFailed(f"{name} could not be fetched: {error}") from None

    async def _fetch(self, source: _Source, workspace: _Workspace, base: str | None = None) -> Fetched:
        """Fetch the commit alone where the host allows it, else the whole branch."""
        if source.commit is None:
            done = await self._run_fetch(source, workspace, "--depth=1", reference=source.reference, base=base)
            if done.code != 0:
                raise source.missing
            return await self._resolve(source, workspace, FETCHED)
        if is_full_commit(source.commit):
            done = await self._run_fetch(source, workspace, "--depth=1", reference=source.commit, base=base)
            if done.code == 0:
                return await self._resolve(source, workspace, FETCHED)
        await self._run_fetch(source, workspace, reference=source.reference, base=base)
        return await self._resolve(source, workspace, source.commit)

    async def _run_fetch(
        self, source: _Source, workspace: _Workspace, *options: str, reference: str, base: str | None = None
    ) -> Done:
        """Run a fetch from a machine (`base`) or from the code host; raises unless only the reference is missing."""
        url = f"{base or self._url()}{source.name}.git"
        words = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", *options)
        done = await self._run_with_limit(
            source, workspace, FETCH_TIMEOUT_S, *words, "--", url, f"+{reference}:{FETCHED}"
        )
        if done.code != 0 and not _NO_REFERENCE.search(done.complaint):
            raise self._explain(source, done.complaint)
        return done

    def _explain(self, source: _Source, complaint: str) -> Exception:
        if _NOT_FOUND.search(complaint):
            return _NotFound()
        if _TOO_LARGE.search(complaint):
            return self._too_large(source)
        host = _host(self._settings.codehost_url)
        if _AWAY.search(complaint):
            return _HostFailed(
                f"{source.name} could not be fetched: {host} cannot be reached or closed the connection; try again"
            )
        last = next((line for line in reversed(complaint.splitlines()) if line.startswith("fatal: ")), "git failed")
        return FetchFailed(f"{source.name} could not be fetched from {host}: {last.removeprefix('fatal: ')[:300]}")

    def _too_large(self, source: _Source) -> _TooLarge:
        return _TooLarge(f"{source.name} is larger than {size_text(self._storage.most_bytes)}")

    async def _resolve(self, source: _Source, workspace: _Workspace, revision: str) -> Fetched:
        words = ("log", "-1", "--format=%H%n%s", "--end-of-options", f"{revision}^{{commit}}", "--")
        done = await workspace.git.run(*words, cwd=workspace.repository, within_s=READ_TIMEOUT_S)
        if done.code != 0:
            raise source.missing
        sha, _, message = done.text.partition("\n")
        return Fetched(sha, source.branch, message[:MAX_MESSAGE_CHARS])

    async def _check_out(self, source: _Source, fetched: Fetched, workspace: _Workspace) -> None:
        where = (f"--git-dir={workspace.repository}", f"--work-tree={workspace.work_tree}")
        words = (*where, "checkout", "--quiet", "--force", "--detach", fetched.sha, "--")
        done = await self._run_with_limit(source, workspace, CHECKOUT_TIMEOUT_S, *words)
        if done.code == 0:
            return
        if _TOO_LARGE.search(done.complaint):
            raise self._too_large(source)
        if "ut of memory" in done.complaint:
            raise FetchFailed(f"{source.name} cannot be checked out: it has too many files, or too large ones")
        raise FetchFailed(f"{source.name} cannot be checked out: {_first_error(done.complaint, workspace)}")

    async def _add_submodules(
        self, org_id: int, source: _Source, fetched: Fetched, workspace: _Workspace, say: Callable[[str], None]
    ) -> None:
        """Check out the submodules, nested ones included; the log names those that are left out."""
        is_own = await self._find_own(org_id, source.name) is not None
        pending, count = [(source.name, fetched.sha, workspace)], 0
        for parent, commit, place in pending:  # grows
            if not (place.work_tree / submodules.FILE).is_file():
                continue
            entries = await submodules.read(place.git, place.repository, commit)
            fitting = entries[: max(0, submodules.MAX_COUNT - count)]
            count += len(entries)
            for each in fitting:
                try:
                    pending.append(await self._add_submodule(org_id, each, parent, place, say, is_own=is_own))
                except _TooLarge:
                    raise
                except FetchFailed as error:
                    say(f"The submodule {each.path} is left out: {error}")
        if count > submodules.MAX_COUNT:
            more = f"{count - submodules.MAX_COUNT:,} more submodules are left out"
            say(f"{more}: a deployment has at most {submodules.MAX_COUNT}")

    async def _add_submodule(
        self,
        org_id: int,
        submodule: Submodule,
        parent: Name,
        outer: _Workspace,
        say: Callable[[str], None],
        *,
        is_own: bool,
    ) -> tuple[Name, str, _Workspace]:
        """Check out a submodule, and return where its own are.

        Only a submodule of a repository of the built-in git server is looked for there.
        """
        hosts = submodules.hosts_of(self._settings.codehost_url, f"{self._settings.api_url}/git")
        name = submodules.name_of(submodule.url, parent, hosts)
        if name is None:
            raise FetchFailed(f"it is not a repository of {_host(self._settings.codehost_url)}")
        if submodules.folder_of(outer.work_tree, submodule.path) is None:
            raise FetchFailed("something else is in its folder")
        source = _Source(name, "", submodule.commit, is_submodule=True)
        workspace = replace(outer, place=f"{outer.place}/{submodule.path}".lstrip("/"))
        await asyncio.to_thread(workspace.make)
        if is_own:
            fetched = await self._obtain(org_id, source, workspace, say)
        else:
            fetched = await self._obtain_from_host(org_id, source, workspace, say)
        await self._check_out(source, fetched, workspace)
        return name, submodule.commit, workspace

    async def _run_with_limit(self, source: _Source, workspace: _Workspace, within_s: float, *words: str) -> Done:
        """Run git, and stop it as soon as its files exceed the size limit."""
        git = asyncio.ensure_future(workspace.git.run(*words, cwd=workspace.repository, within_s=within_s))
        pause = 0.0
        try:
            while not git.done():
                await asyncio.wait({git}, timeout=SIZE_CHECK_INTERVAL_S + pause)
                began = asyncio.get_running_loop().time()
                await self._check_size(source, workspace)
                # Measuring many files is slow; the pause limits it to a fifth of the time.
                pause = 4 * (asyncio.get_running_loop().time() - began)
            return git.result()
        finally:
            git.cancel()
            await asyncio.gather(git, return_exceptions=True)

    async def _check_size(self, source: _Source, workspace: _Workspace) -> None:
        for folder in (workspace.folder, workspace.target):
            if await asyncio.to_thread(size_of, folder) > self._storage.most_bytes:
                raise self._too_large(source)

    def _url(self) -> str:
        return self._settings.codehost_url.rstrip("/") + "/"

    def _for_host(self, git: Git) -> Git:
        """Return a git that may connect to the code host, by the operator's proxy and CA."""
        scheme = urlsplit(self._settings.codehost_url).scheme
        config = {
            f"protocol.{'http' if scheme == 'http' else 'https'}.allow": "always",
            "http.followRedirects": "initial",
            "http.lowSpeedLimit": "1000",
            "http.lowSpeedTime": "60",
        }
        environment = {name: value for name in _PROXIES if (value := os.environ.get(name))}
        if self._settings.extra_ca:
            environment["GIT_SSL_CAINFO"] = self._settings.extra_ca
        return replace(git, config=config, environment=environment)


class _NotFound(Exception):
    """The repository does not exist at the code host, or is not public."""


def _with_token(git: Git, url: str, token: str) -> Git:
    """Pass a token in the environment, so that it is in no process list and no log."""
    variables: Mapping[str, str] = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"http.{url}.extraHeader",
        "GIT_CONFIG_VALUE_0": f"Authorization: Basic {as_basic(token)}",
    }
    config = {**git.config, "http.followRedirects": "false"}
    return replace(git, config=config, environment={**git.environment, **variables})


def _validate(repository: str, branch: str, commit: str | None) -> _Source:
    name = parse_name(repository)
    if name is None:
        raise FetchFailed(f"{repository[:200]!r} is not a name of a repository: it should look like owner/repo")
    if not is_branch(branch):
        raise FetchFailed(f"{branch[:200]!r} is not a name of a branch")
    if commit is not None and not is_commit(commit):
        raise FetchFailed(f"{commit[:200]!r} is not an id of a commit")
    return _Source(name, branch, commit.lower() if commit else None)


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _first_error(complaint: str, workspace: _Workspace) -> str:
    """Return git's first error without local paths."""
    lines = [line for line in complaint.splitlines() if line.startswith(("error: ", "fatal: "))] or ["git failed"]
    error = lines[0].partition(": ")[2] or lines[0]
    return error.replace(f"{workspace.target}/", "").replace(str(workspace.folder), "")[:300]
