"""Getting the files of one commit: from the built-in git server where the repository is there, else from the code host.

Nothing of what users choose reaches git before it is checked, and nothing that a repository contains is run: there are
no hooks, filters or submodules. Only files, folders and links appear, and only below the target.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from moorage.core.db.store import Database
from moorage.core.http.request import size_text
from moorage.errors import QuotaExceeded
from moorage.products.repositories import service
from moorage.products.repositories.git import Done, Git, TooSlow
from moorage.products.repositories.github.api import GithubUnavailable
from moorage.products.repositories.github.app import GithubApp, as_basic
from moorage.products.repositories.names import Name, is_branch, is_commit, is_full_commit, parse_name
from moorage.products.repositories.server.pushes import HEADS
from moorage.products.repositories.server.turns import Turns
from moorage.products.repositories.storage import Storage, size_of
from moorage.runtime.scan.service import Purpose, Scanner, ScanUnavailable

SCANS_AT_ONCE = 2  # A scan keeps a core busy.
FETCH_S = 600
CHECKOUT_S = 300
ASK_S = 30
LOOK_S = 0.25
LONGEST_MESSAGE = 500
FETCHED = "refs/moorage/fetched"
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
_NO_REFERENCE = re.compile(r"couldn't find remote ref|not our ref|unadvertised object")
_NOT_FOUND = re.compile(
    r"repository .* not found|Authentication failed|could not read (Username|Password)"
    r"|returned error: (401|403|404|410)"
)
_TOO_LARGE = re.compile(r"File too large|signal 25")
_AWAY = re.compile(
    r"Could not resolve|Failed to connect|Couldn't connect|Connection (refused|reset|timed out)|timed out|too slow"
    r"|returned error: 5\d\d|Empty reply|gnutls|SSL|early EOF|hung up"
)


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was checked out."""

    sha: str
    branch: str
    message: str  # the first line of it


class FetchFailed(Exception):
    """The files cannot be had; the message is a sentence for the user."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    name: Name
    branch: str
    commit: str | None

    @property
    def missing(self) -> FetchFailed:
        if self.commit is not None:
            return FetchFailed(f"commit {self.commit} does not exist in {self.name}")
        return FetchFailed(f"branch '{self.branch}' does not exist in {self.name}")


@dataclass(frozen=True, slots=True)
class _Bench:
    """A repository of a moment, in which one fetch works."""

    folder: Path
    target: Path
    git: Git

    @property
    def repository(self) -> Path:
        return self.folder / "work.git"

    def make(self) -> None:
        """Make the repository: this is all that one is, and quicker than asking git for it."""
        for name in ("objects/info", "refs"):
            (self.repository / name).mkdir(parents=True)
        (self.repository / "HEAD").write_text("ref: refs/heads/main\n")
        (self.repository / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")


class Sources:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._settings = db.env.settings
        self._storage = Storage(self._settings)
        self._github = GithubApp(db)
        self._turns = Turns()
        self._scanner = Scanner(self._settings.clamd)
        self._threads = ThreadPoolExecutor(SCANS_AT_ONCE, thread_name_prefix="scan")

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
        """Write the files of the commit, or of the branch's newest one, into an empty folder; raises FetchFailed."""
        wanted = _checked(repository, branch, commit)
        try:
            async with self._turns.wait(org_id), self._bench(target) as bench:
                found = await self._bring(org_id, wanted, bench, say)
                await self._check_out(wanted, found, bench)
            say(f"Checked out {found.sha[:12]} {found.message}".rstrip())
            await self._scan(bench.target)
            return found
        except TooSlow:
            raise FetchFailed(f"{wanted.name} could not be fetched in time") from None
        except QuotaExceeded as error:
            raise FetchFailed(error.message) from None

    async def check_site(self, folder: Path) -> str | None:
        """Return why a site that was built may not be published, or None."""
        return await self._find_problem(folder, Purpose.SITE)

    async def _scan(self, folder: Path) -> None:
        if problem := await self._find_problem(folder, Purpose.SOURCE):
            raise FetchFailed(problem)

    async def _find_problem(self, folder: Path, purpose: Purpose) -> str | None:
        loop = asyncio.get_running_loop()
        try:
            finding = await loop.run_in_executor(self._threads, self._scanner.check, folder, purpose)
        except ScanUnavailable as error:
            return error.message
        return f"The scan refused {finding.file}: it {finding.why} ({finding.rule})" if finding is not None else None

    @contextlib.asynccontextmanager
    async def _bench(self, target: Path) -> AsyncIterator[_Bench]:
        self._storage.prepare()
        self._storage.check_room()
        folder = Path(tempfile.mkdtemp(dir=self._storage.incoming, prefix="fetch-"))
        bench = _Bench(folder, target.absolute(), self._storage.git)
        try:
            bench.make()
            yield bench
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _bring(self, org_id: int, wanted: _Wanted, bench: _Bench, say: Callable[[str], None]) -> Fetched:
        """Make the commit known to the bench, and return what it is."""
        own = await self._db.read(partial(service.find, org_id=org_id, name=wanted.name))
        if own is None:
            return await self._bring_from_host(org_id, wanted, bench, say)
        say(f"Fetching {wanted.name} from the built-in git server")
        objects = self._storage.path(own.id) / "objects"
        if not objects.exists():
            raise wanted.missing
        # Its objects are read where they are: nothing is copied.
        (bench.repository / "objects" / "info" / "alternates").write_text(f"{objects}\n")
        if wanted.commit is not None:
            return await self._resolve(wanted, bench, wanted.commit)
        words = ("show-ref", "--verify", "--hash", HEADS + wanted.branch)
        head = await bench.git.run(*words, cwd=objects.parent, within_s=ASK_S)
        if head.code != 0:
            raise wanted.missing
        return await self._resolve(wanted, bench, head.text)

    async def _bring_from_host(
        self, org_id: int, wanted: _Wanted, bench: _Bench, say: Callable[[str], None]
    ) -> Fetched:
        say(f"Fetching {wanted.name} from {_host(self._settings.codehost_url)}")
        bench = replace(bench, git=self._for_host(bench.git))
        try:
            return await self._fetch(wanted, bench)
        except _NotFound:
            token = await self._find_token(org_id, wanted.name)
        if token is not None:
            with contextlib.suppress(_NotFound):
                return await self._fetch(wanted, replace(bench, git=_with_token(bench.git, self._url(), token)))
        raise FetchFailed(
            f"{wanted.name} does not exist at {_host(self._settings.codehost_url)}, or it is private and this "
            "organization may not read it (connect its GitHub account: POST /v1/github/installations/begin)"
        )

    async def _find_token(self, org_id: int, name: Name) -> str | None:
        try:
            return await self._github.find_token(org_id, name)
        except GithubUnavailable as error:
            raise FetchFailed(f"{name} could not be fetched: {error}") from None

    async def _fetch(self, wanted: _Wanted, bench: _Bench) -> Fetched:
        """Fetch as little as the host allows: the commit alone, else the whole branch it should be on."""
        if wanted.commit is None:
            done = await self._run_fetch(wanted, bench, "--depth=1", reference=HEADS + wanted.branch)
            if done.code != 0:
                raise wanted.missing
            return await self._resolve(wanted, bench, FETCHED)
        if is_full_commit(wanted.commit):
            done = await self._run_fetch(wanted, bench, "--depth=1", reference=wanted.commit)
            if done.code == 0:
                return await self._resolve(wanted, bench, FETCHED)
        await self._run_fetch(wanted, bench, reference=HEADS + wanted.branch)
        return await self._resolve(wanted, bench, wanted.commit)

    async def _run_fetch(self, wanted: _Wanted, bench: _Bench, *options: str, reference: str) -> Done:
        """Return a fetch that succeeded, or one that failed because there is no such reference."""
        address = f"{self._url()}{wanted.name}.git"
        words = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", *options)
        done = await self._watched(wanted, bench, FETCH_S, *words, "--", address, f"+{reference}:{FETCHED}")
        if done.code != 0 and not _NO_REFERENCE.search(done.complaint):
            raise self._explain(wanted, done.complaint)
        return done

    def _explain(self, wanted: _Wanted, complaint: str) -> Exception:
        if _NOT_FOUND.search(complaint):
            return _NotFound()
        if _TOO_LARGE.search(complaint):
            return self._too_large(wanted)
        host = _host(self._settings.codehost_url)
        if _AWAY.search(complaint):
            return FetchFailed(f"{wanted.name} could not be fetched: {host} cannot be reached or broke off; try again")
        last = next((line for line in reversed(complaint.splitlines()) if line.startswith("fatal: ")), "git failed")
        return FetchFailed(f"{wanted.name} could not be fetched from {host}: {last.removeprefix('fatal: ')[:300]}")

    def _too_large(self, wanted: _Wanted) -> FetchFailed:
        return FetchFailed(f"{wanted.name} is larger than {size_text(self._storage.most_bytes)}")

    async def _resolve(self, wanted: _Wanted, bench: _Bench, revision: str) -> Fetched:
        words = ("log", "-1", "--format=%H%n%s", "--end-of-options", f"{revision}^{{commit}}", "--")
        done = await bench.git.run(*words, cwd=bench.repository, within_s=ASK_S)
        if done.code != 0:
            raise wanted.missing
        sha, _, message = done.text.partition("\n")
        return Fetched(sha, wanted.branch, message[:LONGEST_MESSAGE])

    async def _check_out(self, wanted: _Wanted, found: Fetched, bench: _Bench) -> None:
        where = (f"--git-dir={bench.repository}", f"--work-tree={bench.target}")
        words = (*where, "checkout", "--quiet", "--force", "--detach", found.sha, "--")
        done = await self._watched(wanted, bench, CHECKOUT_S, *words)
        if done.code == 0:
            return
        if _TOO_LARGE.search(done.complaint):
            raise self._too_large(wanted)
        if "ut of memory" in done.complaint:
            raise FetchFailed(f"{wanted.name} cannot be checked out: it has too many files, or too large ones")
        raise FetchFailed(f"{wanted.name} cannot be checked out: {_first_complaint(done.complaint, bench)}")

    async def _watched(self, wanted: _Wanted, bench: _Bench, within_s: float, *words: str) -> Done:
        """Run git, and end it as soon as what it writes is too large."""
        git = asyncio.ensure_future(bench.git.run(*words, cwd=bench.repository, within_s=within_s))
        pause = 0.0
        try:
            while not git.done():
                await asyncio.wait({git}, timeout=LOOK_S + pause)
                began = asyncio.get_running_loop().time()
                await self._check_size(wanted, bench)
                # Looking through many files takes a while: it must not take all of the time.
                pause = 4 * (asyncio.get_running_loop().time() - began)
            return git.result()
        finally:
            git.cancel()
            await asyncio.gather(git, return_exceptions=True)

    async def _check_size(self, wanted: _Wanted, bench: _Bench) -> None:
        for folder in (bench.folder, bench.target):
            if await asyncio.to_thread(size_of, folder) > self._storage.most_bytes:
                raise self._too_large(wanted)

    def _url(self) -> str:
        return self._settings.codehost_url.rstrip("/") + "/"

    def _for_host(self, git: Git) -> Git:
        """Return a git that may speak with the code host, in the way the operator chose, and with nobody else."""
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
    """The code host knows no such repository, or does not show it to everybody."""


def _with_token(git: Git, url: str, token: str) -> Git:
    """Give git a token for the code host only, where no list of processes and no log shows it."""
    given: Mapping[str, str] = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"http.{url}.extraHeader",
        "GIT_CONFIG_VALUE_0": f"Authorization: Basic {as_basic(token)}",
    }
    config = {**git.config, "http.followRedirects": "false"}
    return replace(git, config=config, environment={**git.environment, **given})


def _checked(repository: str, branch: str, commit: str | None) -> _Wanted:
    name = parse_name(repository)
    if name is None:
        raise FetchFailed(f"{repository[:200]!r} is no name of a repository: it should look like owner/repo")
    if not is_branch(branch):
        raise FetchFailed(f"{branch[:200]!r} is no name of a branch")
    if commit is not None and not is_commit(commit):
        raise FetchFailed(f"{commit[:200]!r} is no id of a commit")
    return _Wanted(name, branch, commit.lower() if commit else None)


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _first_complaint(complaint: str, bench: _Bench) -> str:
    """Return what git said, without the paths of this machine."""
    lines = [line for line in complaint.splitlines() if line.startswith(("error: ", "fatal: "))] or ["git failed"]
    said = lines[0].partition(": ")[2] or lines[0]
    return said.replace(f"{bench.target}/", "").replace(str(bench.folder), "")[:300]
