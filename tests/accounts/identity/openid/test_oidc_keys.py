"""Keys of an OpenID provider: fetching, caching, rotation, removal and outages."""

from __future__ import annotations

import time

import pytest
from tests.accounts.identity.openid.provider import Provider, claims, log_in, sign_up
from tests.client import Client

from moorage.accounts.identity.oidc import FETCHES_AT_ONCE, MIN_FETCH_INTERVAL_MS
from moorage.core.kit.clock import HOUR_MS, SECOND_MS, ManualClock

pytestmark = [pytest.mark.anyio, pytest.mark.group("openid")]


async def test_a_rotated_key_is_fetched_and_the_old_one_holds_while_it_is_published(
    api: Client, provider: Provider
) -> None:
    old = await provider.log_in("ada")
    await sign_up(api, old)
    await provider.tell("rotate")

    new = await log_in(api, await provider.log_in("ada"))

    assert new.status == 200
    assert (await log_in(api, old)).status == 200


async def test_a_key_that_the_provider_no_longer_publishes_stops_to_count(
    api: Client, clock: ManualClock, provider: Provider
) -> None:
    old = await provider.log_in("ada")
    await sign_up(api, old)
    await provider.tell("rotate")
    await provider.tell("forget")
    clock.advance(6 * SECOND_MS)
    assert (await log_in(api, await provider.log_in("ada"))).status == 200

    assert (await log_in(api, old)).status == 401


async def test_keys_are_fetched_anew_after_an_hour_without_anybody_asking_for_another(
    api: Client, clock: ManualClock, provider: Provider
) -> None:
    lasting = await provider.sign(claims(provider, "ada", exp=time.time() + 7200))
    await sign_up(api, lasting)
    await provider.tell("rotate")
    await provider.tell("forget")
    assert (await log_in(api, lasting)).status == 200

    clock.advance(HOUR_MS)

    assert (await log_in(api, lasting)).status == 401


async def test_unknown_keys_do_not_make_us_ask_the_provider_at_every_try(
    api: Client, clock: ManualClock, provider: Provider
) -> None:
    known = await provider.log_in("ada")
    await sign_up(api, known)
    for _ in range(FETCHES_AT_ONCE):
        await log_in(api, f"{known.rpartition('.')[0]}.{'A' * 342}")
    await provider.tell("rotate")
    token = await provider.log_in("ada")

    at_once = await log_in(api, token)
    clock.advance(FETCHES_AT_ONCE * MIN_FETCH_INTERVAL_MS)
    later = await log_in(api, token)

    assert (at_once.status, later.status) == (401, 200)


async def test_a_token_that_names_no_key_is_checked_with_a_rotated_one_too(
    api: Client, clock: ManualClock, provider: Provider
) -> None:
    await sign_up(api, await provider.log_in("ada"))
    await provider.tell("rotate")
    await provider.tell("forget")
    clock.advance(6 * SECOND_MS)

    reply = await log_in(api, await provider.sign(claims(provider, "ada"), kid=None))

    assert reply.status == 200


async def test_keys_that_come_in_pieces_are_read_to_the_end(api: Client, provider: Provider) -> None:
    token = await provider.log_in("ada")
    await provider.tell("slow")

    assert (await log_in(api, token, terms_accepted=True)).status == 200


async def test_a_provider_that_is_down_leaves_the_keys_that_we_know(
    api: Client, clock: ManualClock, provider: Provider
) -> None:
    known = await provider.log_in("ada")
    await sign_up(api, known)
    lasting = await provider.sign(claims(provider, "ada", exp=time.time() + 7200))
    await provider.tell("rotate")
    unknown = await provider.log_in("ada")
    await provider.tell("down")
    clock.advance(6 * SECOND_MS)

    assert (await log_in(api, known)).status == 200
    assert (await log_in(api, unknown)).status == 401
    clock.advance(HOUR_MS)
    assert (await log_in(api, lasting)).status == 200


async def test_a_provider_that_was_never_reached_lets_nobody_in_until_it_is_back(
    api: Client, clock: ManualClock, provider: Provider
) -> None:
    token = await provider.log_in("ada")
    await provider.tell("down")

    down = await log_in(api, token, terms_accepted=True)
    await provider.tell("up")
    clock.advance(6 * SECOND_MS)
    up = await log_in(api, token, terms_accepted=True)

    assert (down.status, down.error["code"]) == (401, "unauthorized")
    assert up.status == 200
