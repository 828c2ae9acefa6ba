"""DNS lookups of a domain, with correct, broken and missing answers."""

from __future__ import annotations

import pytest
from tests.products.domains.dns_server import DnsServer, Zone

from moorage.products.domains.dns import Addresses, ExpectedRecords, Finding, Outcome, Resolver
from moorage.settings import BadSettings, Settings

pytestmark = pytest.mark.anyio

WANTED = ExpectedRecords("shop.example.com", "moorage-domain=abc", "harbor.apps.example.net")
PROOF = "_moorage.shop.example.com"


@pytest.fixture
def resolver(settings: Settings, zone: Zone) -> Resolver:
    return Resolver(settings)


def error_of(finding: Finding) -> str:
    assert finding.error is not None
    return finding.error


@pytest.mark.parametrize("held", [WANTED.token, f'"{WANTED.token}"', f" {WANTED.token} "])
async def test_a_txt_record_with_the_token_proves(resolver: Resolver, zone: Zone, held: str) -> None:
    zone.put_txt(PROOF, "v=spf1 -all", held)

    finding = await resolver.look_up(WANTED)

    assert finding == Finding(Outcome.PROVEN, by="TXT")


async def test_a_txt_record_reached_by_an_alias_proves(resolver: Resolver, zone: Zone) -> None:
    zone.put(PROOF, "CNAME", "proofs.example.org.")
    zone.put_txt("proofs.example.org", WANTED.token)

    finding = await resolver.look_up(WANTED)

    assert finding.outcome is Outcome.PROVEN


@pytest.mark.parametrize("target", ["harbor.apps.example.net.", "HARBOR.apps.example.NET."])
async def test_a_cname_to_the_project_proves(resolver: Resolver, zone: Zone, target: str) -> None:
    zone.put("shop.example.com", "CNAME", target)

    finding = await resolver.look_up(WANTED)

    assert finding == Finding(Outcome.PROVEN, by="CNAME")


async def test_nothing_at_all_names_both_records_that_would_do(resolver: Resolver) -> None:
    finding = await resolver.look_up(WANTED)

    assert finding.outcome is Outcome.ABSENT
    assert f"no TXT record at {PROOF}" in error_of(finding)
    assert "no CNAME record from shop.example.com to harbor.apps.example.net" in error_of(finding)


async def test_other_values_are_named(resolver: Resolver, zone: Zone) -> None:
    zone.put_txt(PROOF, "one", "a\x07", "bcdef" * 100, "two", "xyz")
    zone.put("shop.example.com", "CNAME", "elsewhere.example.org.")

    finding = await resolver.look_up(WANTED)

    assert finding.outcome is Outcome.ABSENT
    assert "“a?”, “" + ("bcdef" * 16) + "…”, “one” and 2 more, not moorage-domain=abc" in error_of(finding)
    assert "leads to “elsewhere.example.org”, not harbor.apps.example.net" in error_of(finding)


async def test_a_longer_value_that_holds_the_token_does_not_prove(resolver: Resolver, zone: Zone) -> None:
    zone.put_txt(PROOF, f"{WANTED.token}def")

    finding = await resolver.look_up(WANTED)

    assert finding.outcome is Outcome.ABSENT


async def test_an_alias_that_leads_to_the_project_only_by_another_name_does_not_prove(
    resolver: Resolver, zone: Zone
) -> None:
    zone.put("shop.example.com", "CNAME", "between.example.org.")
    zone.put("between.example.org", "CNAME", "harbor.apps.example.net.")

    finding = await resolver.look_up(WANTED)

    assert finding.outcome is Outcome.ABSENT


async def test_aliases_that_go_in_a_circle_prove_nothing(resolver: Resolver, zone: Zone) -> None:
    zone.put(PROOF, "CNAME", "round.example.com.")
    zone.put("round.example.com", "CNAME", PROOF + ".")
    zone.put("shop.example.com", "CNAME", "shop.example.com.")

    finding = await resolver.look_up(WANTED)

    assert finding.outcome is Outcome.UNKNOWN
    assert f"servers of {PROOF} answered with an error" in error_of(finding)


async def test_records_of_another_name_in_the_answer_prove_nothing(resolver: Resolver, zone: Zone) -> None:
    zone.put_txt("attacker.example.org", WANTED.token)
    zone.put("attacker.example.org", "CNAME", "harbor.apps.example.net.")
    zone.strays = {PROOF: "attacker.example.org", "shop.example.com": "attacker.example.org"}

    finding = await resolver.look_up(WANTED)

    assert finding.outcome is Outcome.ABSENT


async def test_an_answer_too_large_for_a_datagram_is_read_whole(resolver: Resolver, zone: Zone) -> None:
    zone.put_txt(PROOF, *(f"{number} " + "x" * 200 for number in range(250)), WANTED.token)

    finding = await resolver.look_up(WANTED)

    assert finding.outcome is Outcome.PROVEN
    assert zone.asked.count((PROOF, "TXT")) == 2


async def test_a_server_that_does_not_answer_leaves_it_open(resolver: Resolver, zone: Zone) -> None:
    zone.silent = {PROOF, "shop.example.com"}

    finding = await resolver.look_up(WANTED, timeout_s=0.2)

    assert finding.outcome is Outcome.UNKNOWN
    assert "did not answer in time" in error_of(finding)


async def test_half_an_answer_is_not_an_absence(resolver: Resolver, zone: Zone) -> None:
    zone.broken = {PROOF}

    finding = await resolver.look_up(WANTED)

    assert finding.outcome is Outcome.UNKNOWN
    assert f"servers of {PROOF} answered with an error" in error_of(finding)


async def test_one_record_is_enough_while_the_other_cannot_be_asked_for(resolver: Resolver, zone: Zone) -> None:
    zone.broken = {PROOF}
    zone.put("shop.example.com", "CNAME", "harbor.apps.example.net.")

    finding = await resolver.look_up(WANTED)

    assert finding.outcome is Outcome.PROVEN


async def test_the_addresses_of_the_platform_are_asked_once(settings: Settings, resolver: Resolver, zone: Zone) -> None:
    zone.put("harbor.apps.example.net", "A", "192.0.2.7")
    zone.put("harbor.apps.example.net", "AAAA", "2001:db8::7")
    addresses = Addresses(settings, resolver)

    found = [await addresses.of("harbor.apps.example.net"), await addresses.of("other.apps.example.net")]

    assert found == [["192.0.2.7", "2001:db8::7"]] * 2
    assert sorted(zone.asked) == [("harbor.apps.example.net", "A"), ("harbor.apps.example.net", "AAAA")]


@pytest.mark.parametrize(("host", "expected"), [("192.0.2.8", ["192.0.2.8"]), ("0.0.0.0", []), ("::", [])])
async def test_without_an_answer_the_address_is_where_the_platform_listens(
    settings: Settings, resolver: Resolver, host: str, expected: list[str]
) -> None:
    addresses = Addresses(settings.model_copy(update={"host": host}), resolver)

    found = await addresses.of("harbor.apps.example.net")

    assert found == expected


@pytest.mark.parametrize("form", ["127.0.0.1:{port}", "localhost:{port}"])
async def test_the_resolver_is_the_one_of_the_settings(
    settings: Settings, dns_server: DnsServer, zone: Zone, form: str
) -> None:
    zone.put_txt(PROOF, WANTED.token)

    finding = await Resolver(settings.model_copy(update={"resolver": form.format(port=dns_server.port)})).look_up(
        WANTED
    )

    assert finding.outcome is Outcome.PROVEN


@pytest.mark.parametrize("text", ["127.0.0.1:dns", "127.0.0.1:99999999", "no such host:53"])
async def test_a_resolver_that_cannot_be_one_is_named(settings: Settings, text: str) -> None:
    with pytest.raises(BadSettings, match="MOORAGE_RESOLVER"):
        Resolver(settings.model_copy(update={"resolver": text}))
