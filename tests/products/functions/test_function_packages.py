"""Packages: accepted and refused archives, and equal code is stored once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.core.http.lab import one_store
from tests.core.kit.zip_bytes import LINK, Piece
from tests.core.kit.zip_bytes import archive as archive_bytes
from tests.products.functions.support import PYTHON, Team, code_folders, contents, make_team, references, zip_of
from tests.runtime.scan.samples import EICAR

from moorage.app import App
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.core.kit.clock import HOUR_MS, ManualClock
from moorage.products.functions import code
from moorage.products.functions.contents import BadPackage
from moorage.products.functions.dependencies.failures import InstallFailed
from moorage.products.functions.packages import Packages

pytestmark = pytest.mark.anyio

MB = 2**20


async def only_code(db: Database) -> dict[str, bytes]:
    """Return the contents of the only code folder."""
    (digest,) = code_folders(db.env.settings)
    return contents(code.folder_of(db.env.settings, digest))


@one_store
async def test_a_package_is_unpacked_as_it_was_sent(team: Team, db: Database) -> None:
    files = {"main.py": b"def main(params): return {}", "data/a.bin": bytes(range(256)), "lib/x.py": b"x = 1"}

    assert (await team.create(files=files)).status == 200

    assert await only_code(db) == files


@one_store
async def test_the_only_top_folder_is_left_out_whatever_macos_adds(team: Team, db: Database) -> None:
    files = {"app/main.py": "1", "app/lib/x.py": "2", "__MACOSX/app/._main.py": "litter", ".DS_Store": "litter"}

    assert (await team.create(files=files)).status == 200

    assert await only_code(db) == {"main.py": b"1", "lib/x.py": b"2"}


@one_store
async def test_everybody_may_read_the_code_and_nobody_may_write_it(team: Team, db: Database) -> None:
    files = {"main.py": "", "bin/tool": "#!/bin/sh", "data/x": ""}
    archive = zip_of(files, modes={"bin/tool": 0o100700, "data/x": 0o100666})

    assert (await team.upload(archive)).status == 200

    (digest,) = code_folders(db.env.settings)
    folder = code.folder_of(db.env.settings, digest)
    modes = {
        name: stat.S_IMODE((folder / name).stat().st_mode) for name in ("main.py", "bin/tool", "data/x", "data", ".")
    }
    assert modes == {"main.py": 0o444, "bin/tool": 0o555, "data/x": 0o444, "data": 0o755, ".": 0o755}


@one_store
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: b"", "not a ZIP"),
        (lambda: b"just some text", "not a ZIP"),
        (lambda: zip_of(PYTHON)[:-30], "not a ZIP"),
        (lambda: zip_of({"../main.py": ""}), "leaves the folder"),
        (lambda: zip_of({"main.py": "", "/etc/cron.d/x": ""}), "absolute path"),
        (lambda: zip_of({"main.py": "", "link": "/etc/passwd"}, modes={"link": LINK}), "link"),
        (lambda: zip_of({"main.py": b"x" * (MB // 2), **{f"{n}": b"x" * MB for n in range(100)}}), "unpacks to more"),
        (lambda: zip_of({"main.py": "", **{f"d/{n}": "" for n in range(20_000)}}), "20001 entries"),
        (lambda: zip_of({"main.py": "", "Main.py": ""}), "same name"),
        (lambda: zip_of({}), "no main file"),
        (lambda: zip_of({"index.js": ""}), "Node.js package"),
        (lambda: zip_of({"src/index.js": "", "src/x/main.py": ""}), "Node.js package"),
        (lambda: zip_of({**PYTHON, "data/notes.txt": EICAR}), "data/notes.txt is the EICAR"),
    ],
    ids=[
        "empty",
        "text",
        "cut",
        "escape",
        "absolute",
        "link",
        "large",
        "many",
        "clash",
        "no entries",
        "other language",
        "other language below",
        "malware",
    ],
)
async def test_what_cannot_be_deployed_is_refused_with_the_field_and_leaves_nothing(
    team: Team, db: Database, make: Callable[[], bytes], says: str
) -> None:
    reply = await team.upload(make())

    assert (reply.status, list(reply.error["fields"])) == (400, ["code"])
    assert says in reply.error["fields"]["code"]
    assert (await references(db), code_folders(db.env.settings)) == ([], set())
    assert list(db.env.settings.folder("uploads").iterdir()) == []


@one_store
async def test_ten_megabytes_are_taken_and_a_byte_more_is_refused(team: Team) -> None:
    room = 10 * MB - len(zip_of({**PYTHON, "noise": b""}, stored=True))
    most = zip_of({**PYTHON, "noise": os.urandom(room)}, stored=True)

    exact, over = await team.upload(most), await team.upload(most + b"x", name="other")
    as_file = await team.upload(most + b"x", sent_as="file", name="other")
    announced = await team.upload(most + bytes(2 * MB), sent_as="file", name="other")

    assert (len(most), exact.status, over.status) == (10 * MB, 200, 400)
    assert over.error["fields"] == {"code": "is larger than 10 MB"}
    assert (
        as_file.error["fields"] == announced.error["fields"] == dict.fromkeys(("code", "file"), "is larger than 10 MB")
    )


@pytest.mark.deep
@one_store
async def test_a_hundred_unpacked_megabytes_are_taken(team: Team) -> None:
    files = {"main.py": b"", **{f"{n}": b"x" * MB for n in range(100)}}

    assert (await team.create(files=files)).status == 200


@one_store
async def test_an_archive_that_declares_less_than_it_unpacks_to_is_refused(team: Team) -> None:
    reply = await team.upload(archive_bytes(Piece(b"main.py", b"x" * 1000, method=8, size=10)))

    assert (reply.status, list(reply.error["fields"])) == (400, ["code"])


@one_store
async def test_the_error_is_keyed_by_the_name_that_the_part_was_sent_under_too(team: Team) -> None:
    reply = await team.upload(b"no archive", sent_as="file")

    assert (reply.status, set(reply.error["fields"])) == (400, {"code", "file"})


async def test_equal_code_is_stored_once_however_it_was_packed(team: Team, db: Database) -> None:
    await team.upload(zip_of({"main.py": "1", "lib/x.py": "2"}))
    again = [
        zip_of({"lib/x.py": "2", "main.py": "1"}, moment=1999, stored=True),
        zip_of({"top/": "", "top/lib/": "", "top/lib/x.py": "2", "top/main.py": "1"}),
    ]
    for number, archive in enumerate(again):
        assert (await team.upload(archive, name=f"again-{number}")).status == 200

    assert len({digest for _, _, digest in await references(db)}) == 1
    assert len(code_folders(db.env.settings)) == 1


async def test_code_that_differs_in_an_executable_bit_or_an_empty_folder_is_other_code(
    team: Team, db: Database
) -> None:
    await team.upload(zip_of({"main.py": "", "x": ""}))
    await team.upload(zip_of({"main.py": "", "x": ""}, modes={"x": 0o100755}), name="program")
    await team.upload(zip_of({"main.py": "", "x": "", "empty/": ""}), name="folder")

    assert len(code_folders(db.env.settings)) == 3


class StubInstaller:
    """An installer that adds a module and a link to it, as npm and pip do."""

    def __init__(self, fails: str | None = None) -> None:
        self.fails = fails
        self.asked: list[str] = []

    async def install(self, org_id: int, folder: Path, runtime: str) -> None:
        self.asked.append(runtime)
        if self.fails is not None:
            raise InstallFailed(self.fails)
        (folder / "packages").mkdir()
        (folder / "packages" / "six.py").write_text("six = 6")
        (folder / "packages" / "link").symlink_to("/etc/passwd")


def packer(db: Database, installer: StubInstaller | None) -> Callable[[dict[str, str]], Awaitable[dict[str, bytes]]]:
    """Return a function that prepares files and returns the deployed package."""
    made = Packages(db, ArtifactStore(db), installer)

    async def prepare(files: dict[str, str]) -> dict[str, bytes]:
        archive = db.env.settings.data / "upload.zip"
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.write_bytes(zip_of(files))
        async with made.ready(1, archive, "python:3.11") as package:
            return contents(code.folder_of(db.env.settings, package.digest))

    return prepare


@one_store
async def test_dependencies_are_installed_into_the_package_without_links(db: Database) -> None:
    shelf = StubInstaller()

    found = await packer(db, shelf)({"main.py": "", "requirements.txt": "six"})

    assert found == {"main.py": b"", "requirements.txt": b"six", "packages/six.py": b"six = 6"}
    assert shelf.asked == ["python:3.11"]


@one_store
async def test_an_installer_is_not_asked_where_nothing_is_missing(db: Database) -> None:
    shelf = StubInstaller()

    await packer(db, shelf)({"main.py": "", "requirements.txt": "six", "six.py": ""})

    assert shelf.asked == []


@one_store
async def test_a_failed_install_shows_the_end_of_what_the_installer_said(db: Database) -> None:
    with pytest.raises(BadPackage, match=r"could not be installed: .*no such version$"):
        await packer(db, StubInstaller(fails="ERROR: no such version"))({"main.py": "", "requirements.txt": "six"})

    assert (await references(db), code_folders(db.env.settings)) == ([], set())


@one_store
async def test_without_an_installer_dependencies_are_refused_with_the_field(team: Team) -> None:
    reply = await team.create(files={"main.py": "", "requirements.txt": "six"})

    assert (reply.status, list(reply.error["fields"])) == (400, ["code"])
    assert "dependencies" in reply.error["fields"]["code"]


async def test_a_deployment_that_fails_gives_its_reference_back(db: Database) -> None:
    made = Packages(db, ArtifactStore(db), None)
    archive = db.env.settings.data / "upload.zip"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(zip_of(PYTHON))

    held = []
    with contextlib.suppress(RuntimeError):
        async with made.ready(1, archive, "python:3.11"):
            held = await references(db)
            raise RuntimeError("the version could not be made")

    assert (len(held), await references(db)) == (1, [])


async def test_a_folder_that_is_gone_is_made_again_from_the_artifact(team: Team, app: App, db: Database) -> None:
    await team.create(files={"main.py": "1", "lib/x.py": "2"})
    settings, ((_, _, digest),) = db.env.settings, await references(db)
    before = await only_code(db)
    await code.remove(code.folder_of(settings, digest))

    both = await asyncio.gather(*(code.ensure_unpacked(settings, app.artifacts, team.org_id, digest) for _ in range(3)))

    assert set(both) == {code.folder_of(settings, digest)}
    assert await only_code(db) == before
    assert stat.S_IMODE((both[0] / "main.py").stat().st_mode) == 0o444


async def test_collection_removes_old_code_that_no_version_runs(
    team: Team, db: Database, clock: ManualClock, tmp_path: Path
) -> None:
    await team.create()
    settings = db.env.settings
    (used,) = code_folders(settings)
    root = settings.folder("code")
    for name in ("a" * 64, "b" * 64, ".new-1", ".old-1"):
        (root / name).mkdir()
    for path in root.iterdir():
        os.utime(path, (clock.now() / 1000 - 3601,) * 2)
    os.utime(root / ("b" * 64), (clock.now() / 1000 - 3599,) * 2)

    assert await code.collect(db, settings) == 1

    assert code_folders(settings) == {used, "b" * 64}


async def test_collection_takes_back_the_references_of_deployments_that_died(
    team: Team, app: App, db: Database, clock: ManualClock
) -> None:
    await team.create()
    kept = await references(db)
    await app.artifacts.put_bytes(team.org_id, b"dead", owner=f"deploy:{clock.now()}:1234")

    await code.collect(db, db.env.settings)
    young = await references(db)
    clock.advance(HOUR_MS + 1)
    await code.collect(db, db.env.settings)

    assert (len(young), await references(db)) == (2, kept)


async def test_code_that_another_organization_runs_stays(team: Team, app: App, db: Database) -> None:
    other = await make_team(app.asgi, db)
    await team.create()
    await other.create()

    await team.api.delete("/v1/functions/hello")
    shared = code_folders(db.env.settings)
    await other.api.delete("/v1/functions/hello")

    assert (len(shared), code_folders(db.env.settings)) == (1, set())
