"""DNS lookups: shared, cached, and retried after a temporary failure."""

from __future__ import annotations

import asyncio
import socket

import pytest
from tests.core.net.outbound_servers import resolve_from

from moorage.core.net.dns import MAX_LOOKUPS_OF_TENANT, NameResolver

pytestmark = pytest.mark.anyio


class Scripted:
    """Gives these answers in turn once released, and then always the last; an error is raised."""

    def __init__(self, *answers: list[str] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def resolve(self, host: str) -> list[str]:
        self.asked.append(host)
        await self.may_answer.wait()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def addresses(names: NameResolver, host: str = "shop.test") -> list[str]:
    return await names.resolve(host)


AGAIN = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
ABSENT = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


async def test_each_lookup_asks_anew_unless_names_are_kept() -> None:
    forgetful, keeping = Scripted(["192.0.2.1"], ["192.0.2.2"]), Scripted(["192.0.2.1"], ["192.0.2.2"])
    asking, remembering = NameResolver(forgetful), NameResolver(keeping, keep_s=60)

    fresh = [await addresses(asking) for _ in range(2)]
    kept = [await addresses(remembering) for _ in range(2)]

    assert fresh == [["192.0.2.1"], ["192.0.2.2"]]
    assert kept == [["192.0.2.1"], ["192.0.2.1"]]


async def test_a_kept_name_is_asked_for_again_once_it_is_old() -> None:
    inner = Scripted(["192.0.2.1"], ["192.0.2.2"])
    names = NameResolver(inner, keep_s=0.01)

    first = await addresses(names)
    await asyncio.sleep(0.05)
    second = await addresses(names)

    assert (first, second) == (["192.0.2.1"], ["192.0.2.2"])


async def test_those_who_ask_for_one_name_at_a_time_share_a_lookup_and_one_may_leave() -> None:
    inner = Scripted(["192.0.2.1"])
    inner.may_answer.clear()
    names = NameResolver(inner, keep_s=60)
    waiting = [asyncio.create_task(addresses(names)) for _ in range(3)]
    other = asyncio.create_task(addresses(names, "other.test"))
    while len(inner.asked) < 2:
        await asyncio.sleep(0)

    waiting[0].cancel()
    inner.may_answer.set()
    results = await asyncio.gather(*waiting, other, return_exceptions=True)

    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == [["192.0.2.1"]] * 3
    assert inner.asked == ["shop.test", "other.test"]


async def test_what_was_not_found_is_not_kept() -> None:
    names = NameResolver(Scripted(ABSENT, ["192.0.2.1"]), keep_s=60)

    with pytest.raises(OSError, match="Name or service not known"):
        await addresses(names)

    assert await addresses(names) == ["192.0.2.1"]


@pytest.mark.parametrize("keep_s", [0, 60])
async def test_a_resolver_that_cannot_tell_for_now_is_asked_once_more(keep_s: float) -> None:
    once, twice = Scripted(AGAIN, ["192.0.2.1"]), Scripted(AGAIN, AGAIN, ["192.0.2.1"])

    resolved = await addresses(NameResolver(once, keep_s=keep_s))
    with pytest.raises(OSError, match="Temporary failure"):
        await addresses(NameResolver(twice, keep_s=keep_s))

    assert resolved == ["192.0.2.1"]
    assert (len(once.asked), len(twice.asked)) == (2, 2)


async def test_a_name_that_does_not_exist_is_asked_for_once() -> None:
    inner = Scripted(ABSENT)

    with pytest.raises(OSError, match="not known"):
        await addresses(NameResolver(inner))

    assert inner.asked == ["shop.test"]


async def test_closing_ends_the_lookups_that_are_under_way() -> None:
    inner = Scripted(["192.0.2.1"])
    inner.may_answer.clear()
    names = NameResolver(inner, keep_s=60)
    waiting = asyncio.create_task(addresses(names))
    while not inner.asked:
        await asyncio.sleep(0)

    await names.close()

    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("keep_s", [0, 60])
async def test_lookups_of_one_tenant_that_get_no_answer_do_not_delay_those_of_others(keep_s: float) -> None:
    inner = Scripted(["192.0.2.1"])
    inner.may_answer.clear()
    names = NameResolver(inner, keep_s=keep_s)
    hosts = [f"{number}.dead.test" for number in range(MAX_LOOKUPS_OF_TENANT + 5)]
    waiting = [asyncio.create_task(names.resolve(host, tenant=1)) for host in hosts]
    for _ in range(10):
        await asyncio.sleep(0)
    of_first = len(inner.asked)

    # The lookup that a cancelled caller leaves behind still counts: it occupies a thread.
    waiting[0].cancel()
    others = [asyncio.create_task(names.resolve(host, tenant=2)) for host in ("shop.test", hosts[-1])]
    others.append(asyncio.create_task(names.resolve("free.test")))
    for _ in range(10):
        await asyncio.sleep(0)
    asked = inner.asked[of_first:]
    inner.may_answer.set()
    results = await asyncio.gather(*waiting[1:], *others)

    assert of_first == MAX_LOOKUPS_OF_TENANT
    assert asked == ["shop.test", hosts[-1], "free.test"]
    assert results == [["192.0.2.1"]] * (len(hosts) - 1 + len(others))


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST.", "a.b.localhost"])
async def test_localhost_is_this_machine_whatever_dns_says(name: str) -> None:
    async with resolve_from({name: [["192.0.2.9"]]}) as resolver:
        resolved = await addresses(NameResolver(resolver, keep_s=60), name)

    assert resolved == ["127.0.0.1", "::1"]


async def test_the_systems_resolver_knows_addresses_and_malformed_names() -> None:
    names = NameResolver(None)

    resolved = await addresses(names, "127.0.0.1")
    with pytest.raises(OSError, match="malformed"):
        await addresses(names, f"{'a' * 64}.test")
    await names.close()

    assert resolved == ["127.0.0.1"]
