"""Answers of agents: programs of a tenant may have changed the agent in their pod."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from moorage.app import App
from moorage.products.databases.hosts.agent_physical import AgentPhysicalBackups
from moorage.products.databases.hosts.agents import AgentFolders
from moorage.products.databases.tables import Database
from moorage.runtime.database_servers.ports import ServerFailed
from moorage.runtime.database_servers.server_folders import Restored

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.boundary("tenant-to-tenant", "The marker of a restore names folders of its own database only."),
]

DATABASE = cast(Database, SimpleNamespace(id=41))
OUTSIDE = [Restored("../../x", "s1"), Restored("s2", "../42/s1"), Restored("s2", "/etc"), Restored("s1", "s1")]


def answering(answer: Any) -> Any:
    """Return the clients of agents that answer each call with this."""
    client = SimpleNamespace(call=lambda *_, **__: answer)
    return SimpleNamespace(of=lambda _: client)


@pytest.mark.parametrize("answer", OUTSIDE)
async def test_an_agent_names_no_folder_outside_of_its_database(answer: Restored) -> None:
    folders = AgentFolders(answering(answer))

    assert await folders.find_restored(DATABASE, 7) is None
    with pytest.raises(ServerFailed, match="the agent named its folder"):
        await folders.finish_restored(DATABASE, "restore-7", 7, "s1")


async def test_an_agent_names_the_folder_of_a_restore() -> None:
    folders = AgentFolders(answering(Restored("s2", "s1")))

    assert await folders.find_restored(DATABASE, 7) == Restored("s2", "s1")
    assert await folders.finish_restored(DATABASE, "restore-7", 7, "s1") == Restored("s2", "s1")


async def test_an_agent_lists_wal_files_only() -> None:
    name = f"{1:024X}"
    physical = AgentPhysicalBackups(answering(["../../x", name, f"../{name}", "s1"]).of)

    assert await physical.archived(DATABASE, "s1") == [name]


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_a_server_has_no_folder_outside_of_its_database(app: App, subtests: Any) -> None:
    for name in ("../42/s1", "/etc", "..", ""):
        with subtests.test(name), pytest.raises(ServerFailed, match="is no name of a folder"):
            app.products.databases.servers.folder(41, name)
