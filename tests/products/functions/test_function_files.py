"""The files of a version, for an editor."""

from __future__ import annotations

import pytest
from tests.builders import make_member, make_token
from tests.client import Client
from tests.products.functions.support import PYTHON, Team, make_team

from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import Role
from moorage.app import App
from moorage.core.db.store import Database
from moorage.products.functions import sources

pytestmark = pytest.mark.anyio

PATH = "/v1/functions/hello/versions/{}/files"


async def test_each_version_has_its_own_files_without_dependencies(team: Team) -> None:
    more: dict[str, str | bytes] = {
        **PYTHON,
        "lib/b.py": "b = '⚓'\n",
        "logo.png": b"\x89PNG\xff\x00",
        "packages/six.py": "",
        "nul.txt": "a\x00b",
    }
    await team.create()
    await team.deploy(files=more)

    first, second = (await team.api.get(PATH.format(1))).data, (await team.api.get(PATH.format(2))).data

    assert first == {
        "version": 1,
        "main": first["main"],
        "files": [{"path": "main.py", "sizeBytes": len(PYTHON["main.py"]), "text": PYTHON["main.py"]}],
        "truncated": False,
    }
    assert {each["path"]: each["text"] for each in second["files"]} == {
        "main.py": PYTHON["main.py"],
        "lib/b.py": "b = '⚓'\n",
        "logo.png": None,
        "nul.txt": None,
    }
    assert [(await team.api.get(PATH.format(each))).status for each in (3, "x")] == [404, 404]


async def test_large_and_many_files_are_cut(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_FILES", 3)
    monkeypatch.setattr(sources, "MAX_TEXT_BYTES", 100)
    await team.create(files={**PYTHON, "a.txt": "a" * 101, "b.txt": "b", "z/c.txt": "c"})

    listed = (await team.api.get(PATH.format(1))).data

    assert [(each["path"], each["text"] is None) for each in listed["files"]] == [
        ("a.txt", True),
        ("b.txt", False),
        ("main.py", False),
    ]
    assert listed["truncated"] is True


async def test_a_viewer_and_a_stranger_see_no_code(app: App, db: Database, team: Team) -> None:
    await team.create()
    org = await db.read(lambda tx: orgs.get(tx, team.org_id))
    viewer = await make_member(db, org, Role.VIEWER)
    stranger = await make_team(app.asgi, db)

    refused = await Client(app.asgi, token=await make_token(db, viewer, org.id)).get(PATH.format(1))

    assert (refused.status, (await stranger.api.get(PATH.format(1))).status) == (403, 404)
