"""Checkout of commits from the built-in git server and from a code host on loopback."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from joserfc.jwk import RSAKey
from tests.builders import make_org, make_user
from tests.core.http.live_server import live_server
from tests.products.repositories.code_host import APP_ID, CodeHost
from tests.products.repositories.support import Checkout, bind
from tests.runtime.scan.samples import EICAR, elf, pe

from moorage.accounts.identity.organizations.service import Organization
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database
from moorage.core.env import Env
from moorage.core.kit.clock import HOUR_MS, ManualClock
from moorage.core.kit.crypto import KeyRing
from moorage.core.validated import SecretStr
from moorage.products.repositories import service, submodules
from moorage.products.repositories.fetch import Fetched, FetchFailed, Sources
from moorage.products.repositories.names import Name
from moorage.products.repositories.storage import Storage
from moorage.settings import Settings

# This is git's and the code host's business: a second store would tell nothing new.
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("db", ["sqlite"], indirect=True)]


@dataclass(frozen=True)
class World:
    """A code host with repositories, and where it is."""

    host: CodeHost
    url: str
    commits: list[str]
    key: str


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("codehost")
    work = Checkout.init(folder / "work")
    commits = [work.commit(f"change {number}\n\nmore of it", index_html=str(number)) for number in range(3)]
    work.git("branch", "feature/one", commits[1])
    root = folder / "root"
    for name in ("octo/site", "secret/site", "old/site"):
        work.git("clone", "--quiet", "--bare", ".", str(root / f"{name}.git"))
    huge = Checkout.init(folder / "huge")
    huge.commit("huge", blob_bin=os.urandom(3_000_000))
    huge.git("clone", "--quiet", "--bare", ".", str(root / "octo" / "huge.git"))
    bomb = Checkout.init(folder / "bomb")
    bomb.commit("bomb", **{f"blob{number}_bin": b"\0" * 900_000 for number in range(4)})
    bomb.git("clone", "--quiet", "--bare", ".", str(root / "octo" / "bomb.git"))
    key = RSAKey.generate_key(2048, private=True)
    host = CodeHost(root, key)
    with live_server(host) as server:
        yield World(host, server.url, commits, key.as_pem(private=True).decode())


@pytest.fixture
def host(world: World) -> CodeHost:
    made = world.host
    made.token, made.installed, made.lifetime_s = "ghs_secret1", True, 3600
    made.made_tokens.clear()
    made.requests.clear()
    return made


@pytest.fixture
def env(world: World, host: CodeHost, clock: ManualClock, tmp_path: Path) -> Env:
    settings = Settings(
        _env_file=None,
        data=tmp_path / "data",
        codehost_url=world.url,
        codehost_api_url=f"{world.url}/api",
        github_app_id=APP_ID,
        github_app_key=SecretStr(world.key.replace("\n", "\\n")),
        repository_mb=2,
        disk_reserve_mb=0,
    )
    return Env.make(settings, clock, KeyRing((b"k" * 31 + b"1",)), b"s" * 32)


@dataclass
class Desk:
    """Fetches commits and keeps the log."""

    db: Database
    org: Organization
    folder: Path
    sources: Sources
    said: list[str] = field(default_factory=list)

    async def fetch(
        self, repository: str, branch: str = "main", commit: str | None = None, org_id: int | None = None
    ) -> Fetched:
        for path in self.target.glob("*"):
            path.unlink()
        return await self.sources.fetch(
            org_id or self.org.id, repository, branch=branch, commit=commit, target=self.target, say=self.said.append
        )

    async def fails(self, repository: str, branch: str = "main", commit: str | None = None) -> str:
        with pytest.raises(FetchFailed) as failed:
            await self.fetch(repository, branch, commit)
        return str(failed.value)

    @property
    def target(self) -> Path:
        return self.folder / "target"

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.target.iterdir())

    @property
    def page(self) -> str:
        return (self.target / "index.html").read_text()

    async def push(self, work: Checkout, name: Name, org: Organization | None = None) -> None:
        """Put a repository into the built-in git server, as a push would."""
        storage, actor = Storage(self.db.env.settings), Actor(None, "Ada")
        org_id = (org or self.org).id
        made = await self.db.write(lambda tx: service.begin_push(tx, org_id, name, actor))
        folder = await storage.ensure(made.id)
        await asyncio.to_thread(work.git, "push", str(folder), "--all")


@pytest.fixture
async def desk(db: Database, tmp_path: Path) -> AsyncIterator[Desk]:
    org = await make_org(db, await make_user(db), name="Quay")
    made = Desk(db, org, tmp_path, Sources(db))
    made.target.mkdir()
    yield made
    assert list((db.env.settings.folder("git") / "incoming").glob("*")) == []


@pytest.fixture
def work(tmp_path: Path) -> Checkout:
    made = Checkout.init(tmp_path / "work")
    made.commit("ours", index_html="ours")
    return made


async def test_the_newest_commit_of_a_branch_comes_from_the_code_host(desk: Desk, world: World) -> None:
    fetched = await desk.fetch("octo/site")

    assert fetched == Fetched(world.commits[2], "main", "change 2")
    assert (desk.page, desk.files) == ("2", ["index.html"])
    assert desk.said == [
        f"Fetching octo/site from {world.url.removeprefix('http://')}",
        f"Checked out {world.commits[2][:12]} change 2",
    ]


async def test_a_branch_may_have_slashes(desk: Desk, world: World) -> None:
    assert (await desk.fetch("octo/site", "feature/one")).sha == world.commits[1]


@pytest.mark.parametrize("repository", ["octo/site", "old/site"])
async def test_a_commit_is_fetched_also_where_the_host_gives_out_branches_only(
    desk: Desk, world: World, repository: str
) -> None:
    fetched = await desk.fetch(repository, commit=world.commits[0].upper())
    short = await desk.fetch(repository, commit=world.commits[1][:12])

    assert (fetched.sha, fetched.message) == (world.commits[0], "change 0")
    assert (short.sha, desk.page) == (world.commits[1], "1")


async def test_a_code_host_may_send_the_first_request_elsewhere(desk: Desk, world: World) -> None:
    assert (await desk.fetch("moved/site")).sha == world.commits[2]


async def test_a_mistyped_name_of_the_built_in_git_server_is_recognized(desk: Desk, world: World) -> None:
    host = world.url.removeprefix("http://")
    await desk.db.write(lambda tx: service.begin_push(tx, desk.org.id, Name("Quay", "harbor"), Actor(None, "Ada")))

    mistyped = await desk.fails("quay/habror")
    not_pushed = await desk.fails("quay/ferry")
    elsewhere = await desk.fails("octo/none")

    missing = "There is no repository quay/{} on the built-in git server; {}"
    push = "a push creates it: git push http://localhost:8080/git/quay/ferry.git"
    assert mistyped.startswith(f"quay/habror does not exist at {host}, or it is private")
    assert mistyped.endswith(missing.format("habror", "did you mean Quay/harbor?"))
    assert not_pushed.endswith(missing.format("ferry", push))
    assert elsewhere.startswith("octo/none does not exist at ")
    assert "built-in" not in elsewhere


async def test_what_is_not_there_is_said_in_a_sentence(desk: Desk, world: World) -> None:
    host = world.url.removeprefix("http://")

    assert await desk.fails("octo/site", "nope") == "branch 'nope' does not exist in octo/site"
    assert await desk.fails("octo/site", commit="1" * 40) == f"commit {'1' * 40} does not exist in octo/site"
    assert (await desk.fails("octo/none")).startswith(f"octo/none does not exist at {host}, or it is private")
    assert "cannot be reached" in await desk.fails("away/site")
    assert desk.files == []


@pytest.mark.parametrize("repository", ["octo/huge", "octo/bomb"])
async def test_what_is_too_large_packed_or_unpacked_is_given_up(desk: Desk, repository: str) -> None:
    assert await desk.fails(repository) == f"{repository} is larger than 2 MB"


@pytest.mark.parametrize(
    ("repository", "branch", "commit"),
    [
        ("--upload-pack=id/x", "main", None),
        ("../..", "main", None),
        ("a/b;id", "main", None),
        ("octo/site/../../x", "main", None),
        ("octo", "main", None),
        ("octo/site\n", "main", None),
        ("octo/site", "--upload-pack=touch evil", None),
        ("octo/site", "", None),
        ("octo/site", "main:refs/heads/x", None),
        ("octo/site", "a..b", None),
        ("octo/site", "@{-1}", None),
        ("octo/site", "main", "--help"),
        ("octo/site", "main", "HEAD"),
        ("octo/site", "main", "1234567;id"),
    ],
)
async def test_hostile_names_never_reach_git(
    desk: Desk, host: CodeHost, repository: str, branch: str, commit: str | None
) -> None:
    said = await desk.fails(repository, branch, commit)

    assert " is not a" in said
    assert host.requests == []


async def test_an_own_repository_of_the_built_in_server_comes_first(desk: Desk, work: Checkout, host: CodeHost) -> None:
    first = work.git("rev-parse", "HEAD")
    work.commit("newer", index_html="newer")
    await desk.push(work, Name("Octo", "Site"))

    newest = await desk.fetch("octo/site")
    older = await desk.fetch("octo/site.git", commit=first[:10])

    assert (newest.message, older.sha) == ("newer", first)
    assert desk.page == "ours"
    assert host.requests == []
    assert await desk.fails("octo/site", "new") == "branch 'new' does not exist in octo/site"
    assert await desk.fails("octo/site", commit="2" * 40) == f"commit {'2' * 40} does not exist in octo/site"


async def test_a_branch_is_not_found_by_the_begin_of_its_name(desk: Desk, work: Checkout) -> None:
    work.git("branch", "feature/one")
    await desk.push(work, Name("quay", "site"))

    assert await desk.fails("quay/site", "feature") == "branch 'feature' does not exist in quay/site"


async def test_another_organizations_repository_is_not_found(desk: Desk, work: Checkout) -> None:
    reef = await make_org(desk.db, await make_user(desk.db), name="Reef")
    await desk.push(work, Name("reef", "site"), reef)

    said = await desk.fails("reef/site")

    assert "does not exist" in said


async def test_links_stay_links_and_nothing_runs_or_appears_outside(desk: Desk, work: Checkout, tmp_path: Path) -> None:
    outside, mark = tmp_path / "outside", tmp_path / "ran"
    outside.mkdir()
    (work.folder / "link").symlink_to(outside)
    (work.folder / ".gitattributes").write_text("*.html filter=evil\n")
    (work.folder / ".gitmodules").write_text('[submodule "x"]\n path = x\n url = ../../x\n')
    (work.folder / ".lfsconfig").write_text("[lfs]\n url = http://127.0.0.1:1\n")
    work.commit("evil", index_html="x")
    work.git("config", "filter.evil.smudge", f"touch {mark}")
    await desk.push(work, Name("quay", "evil"))

    await desk.fetch("quay/evil")

    assert desk.files == [".gitattributes", ".gitmodules", ".lfsconfig", "index.html", "link"]
    assert os.readlink(desk.target / "link") == str(outside)
    assert list(outside.iterdir()) == []
    assert not mark.exists()


async def test_a_tree_that_writes_through_a_link_or_into_gits_folder_is_refused(
    desk: Desk, work: Checkout, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    blob = bytes.fromhex(work.git("hash-object", "-w", "index.html"))
    link = bytes.fromhex(work.git("hash-object", "-w", "--stdin", stdin=str(outside).encode()))

    def tree(content: bytes) -> str:
        return work.git("hash-object", "-t", "tree", "-w", "--stdin", "--literally", stdin=content)

    below = bytes.fromhex(tree(b"100644 evil\0" + blob))
    for number, content in enumerate(
        (
            b"120000 a\0" + link + b"40000 a\0" + below,
            b"40000 .git\0" + below,
            b"40000 git~1\0" + below,
            b"40000 ..\0" + below,
        )
    ):
        commit = work.git("commit-tree", tree(content), "-m", "evil")
        work.git("update-ref", f"refs/heads/evil{number}", commit)
    await desk.push(work, Name("quay", "evil"))

    said = [await desk.fails("quay/evil", f"evil{number}") for number in range(1, 4)]
    try:
        await desk.fetch("quay/evil", "evil0")
    except FetchFailed as error:
        said.append(str(error))

    assert all("cannot be checked out" in each for each in said)
    assert list(outside.iterdir()) == []


async def test_a_fetch_that_is_cancelled_leaves_nothing_behind(desk: Desk) -> None:
    fetching = asyncio.ensure_future(desk.fetch("octo/site"))
    while not desk.said:
        await asyncio.sleep(0)

    fetching.cancel()
    await asyncio.gather(fetching, return_exceptions=True)

    assert fetching.cancelled()
    assert list((desk.db.env.settings.folder("git") / "incoming").iterdir()) == []


async def test_a_private_repository_is_read_through_the_app_with_a_token_for_it_alone(
    desk: Desk, world: World, host: CodeHost, clock: ManualClock
) -> None:
    await bind(desk.db, desk.org)

    fetched = await desk.fetch("secret/site")
    await desk.fetch("secret/site")

    assert fetched.sha == world.commits[2]
    assert host.made_tokens == [{"repositories": ["site"], "permissions": {"contents": "read"}}]
    clock.advance(HOUR_MS)
    await desk.fetch("secret/site")
    assert len(host.made_tokens) == 2
    assert not any("ghs_" in line for line in desk.said)


async def test_a_binding_of_another_organization_is_no_way_to_a_private_repository(desk: Desk, host: CodeHost) -> None:
    reef = await make_org(desk.db, await make_user(desk.db), name="Reef")
    await bind(desk.db, reef)

    assert "may not read it" in await desk.fails("secret/site")
    assert host.made_tokens == []


async def test_a_private_repository_without_the_app_is_not_found(desk: Desk, host: CodeHost) -> None:
    await bind(desk.db, desk.org)
    host.installed = False

    assert "or it is private" in await desk.fails("secret/site")
    assert host.made_tokens == []


async def test_the_installation_of_an_account_that_was_renamed_is_found_by_its_number(desk: Desk) -> None:
    await bind(desk.db, desk.org, login="Former")

    assert (await desk.fetch("secret/site")).message == "change 2"


async def test_a_key_that_is_none_is_said_without_showing_it(desk: Desk) -> None:
    settings = desk.db.env.settings.model_copy(update={"github_app_key": SecretStr("nonsense")})
    desk.db.env = Env.make(settings, desk.db.env.clock, desk.db.env.ring, b"s" * 32)
    desk.sources = Sources(desk.db)
    await bind(desk.db, desk.org)

    said = await desk.fails("secret/site")

    assert "MOORAGE_GITHUB_APP_KEY" in said
    assert "nonsense" not in said


@pytest.mark.boundary("stranger-to-platform", "Malware in a repository is refused before it is built.")
async def test_malware_in_sources_is_refused_and_native_helpers_are_not(desk: Desk, tmp_path: Path) -> None:
    work = Checkout.init(tmp_path / "scanned")
    work.commit("a helper", helper_so=elf(kind=3), tool_exe=pe(), install_sh="curl -sL https://example.com/x | sh")
    await desk.push(work, Name("quay", "scanned"))
    helped = await desk.fetch("quay/scanned")
    work.commit("malware", notes_txt=EICAR)
    await desk.push(work, Name("quay", "scanned"))

    said = await desk.fails("quay/scanned")

    assert helped.message == "a helper"
    assert "notes.txt" in said
    assert "malware-eicar" in said


# Submodules.


def link(work: Checkout, **linked: tuple[str, str]) -> None:
    """Commit submodules: their folder, and the address and the commit of each."""
    settings = [f'[submodule "{path}"]\n\tpath = {path}\n\turl = {url}\n' for path, (url, _) in linked.items()]
    (work.folder / ".gitmodules").write_text("".join(settings))
    work.git("add", ".gitmodules")
    for path, (_, commit) in linked.items():
        work.git("update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
    work.git("commit", "--quiet", "--message=linked")


async def test_submodules_come_from_both_places_and_have_their_own(
    desk: Desk, world: World, work: Checkout, tmp_path: Path
) -> None:
    theme = Checkout.init(tmp_path / "theme")
    theme.commit("theme", theme_toml="tide")
    link(theme, inner=(f"{world.url}/octo/site.git", world.commits[1]))
    await desk.push(theme, Name("quay", "theme"))
    link(
        work, themes=("../theme.git", theme.git("rev-parse", "HEAD")), site=(f"{world.url}/octo/site", world.commits[0])
    )
    await desk.push(work, Name("quay", "site"))

    await desk.fetch("quay/site")

    assert (desk.target / "themes" / "theme.toml").read_text() == "tide"
    assert (desk.target / "themes" / "inner" / "index.html").read_text() == "1"
    assert (desk.target / "site" / "index.html").read_text() == "0"
    assert list(desk.target.rglob(".git")) == []


async def test_submodules_that_cannot_be_had_are_named_and_left_out(desk: Desk, world: World, work: Checkout) -> None:
    some = "a" * 40
    link(
        work,
        private=(f"{world.url}/secret/site", world.commits[0]),
        elsewhere=("https://other.example/octo/site", some),
        gone=(f"{world.url}/octo/site", some),
        unnamed=("", some),
    )
    await desk.push(work, Name("quay", "site"))

    await desk.fetch("quay/site")

    host = world.url.removeprefix("http://")
    left_out = [line.removeprefix("The submodule ") for line in desk.said if "is left out" in line]
    assert sorted(left_out) == [
        f"elsewhere is left out: it is not a repository of {host}",
        f"gone is left out: commit {some} does not exist in octo/site",
        f"private is left out: secret/site is not a public repository of {host}",
        f"unnamed is left out: it is not a repository of {host}",
    ]
    assert desk.page == "ours"
    assert not any((desk.target / "private").iterdir())


async def test_submodules_beyond_the_maximum_are_counted_in_one_line(desk: Desk, work: Checkout) -> None:
    (work.folder / ".gitmodules").write_text("")
    work.git("add", ".gitmodules")
    linked = "".join(f"160000 {'a' * 40}\ts{number:04}\n" for number in range(submodules.MAX_COUNT + 100))
    work.git("update-index", "--index-info", stdin=linked.encode())
    work.git("commit", "--quiet", "--message=linked")
    await desk.push(work, Name("quay", "site"))

    await desk.fetch("quay/site")

    left_out = [line for line in desk.said if "left out" in line]
    assert len(left_out) == submodules.MAX_COUNT + 1
    assert left_out[-1] == "100 more submodules are left out: a deployment has at most 50"


async def test_a_repository_of_the_code_host_cannot_name_those_of_the_built_in_server(
    desk: Desk, world: World, work: Checkout, tmp_path: Path
) -> None:
    await desk.push(work, Name("octo", "site"))
    fork = Checkout.init(tmp_path / "fork")
    link(fork, ours=("../../octo/site", work.git("rev-parse", "HEAD")))
    fork.git("clone", "--quiet", "--bare", ".", str(world.host.root / "old" / "fork.git"))

    await desk.fetch("old/fork")

    assert not any((desk.target / "ours").iterdir())
    assert any(line.startswith("The submodule ours is left out: commit ") for line in desk.said)


async def test_submodules_count_for_the_size_of_a_repository(desk: Desk, world: World, work: Checkout) -> None:
    bomb = Checkout(world.host.root / "octo" / "bomb.git").git("rev-parse", "HEAD")
    link(work, bomb=(f"{world.url}/octo/bomb", bomb))
    await desk.push(work, Name("quay", "site"))

    assert await desk.fails("quay/site") == "octo/bomb is larger than 2 MB"
