"""The policy for addresses that users' URLs may reach."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.net.targets import OPERATOR_TARGETS, TargetPolicy, block_refusal

pytestmark = pytest.mark.boundary(
    "tenant-to-network", "Users' URLs reach no private, loopback, link-local or metadata address."
)

# The policy.

FORBIDDEN = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.0", "100.127.255.255", "127.0.0.1", "127.255.255.254"),
    *("169.254.0.1", "169.254.169.254", "172.16.0.0", "172.31.255.255", "192.168.0.1", "192.0.0.192", "168.63.129.16"),
    *("198.18.0.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:7f00:1"),
    *("64:ff9b::127.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:1::1"),
    *("fc00::1", "fd00:ec2::254", "fe80::1", "febf::1", "fec0::1", "ff02::1", "100::1", "4000::1", "8000::1"),
]
OPEN = [
    *("1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0"),
    *("169.253.255.255", "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "223.255.255.255"),
    *("192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1"),
    *("2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:101:101::1"),
]
# The documentation ranges are open on purpose; addresses with an embedded IPv4 address are checked by that.
JUDGED_DIFFERENTLY = [
    *(ipaddress.ip_network(cidr) for cidr in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")),
    *(ipaddress.ip_network(cidr) for cidr in ("2001:db8::/32", "3fff::/20", "::ffff:0:0/96", "2002::/16")),
]


@pytest.mark.parametrize("address", FORBIDDEN)
def test_an_address_that_is_not_global_is_refused_by_default(address: str) -> None:
    assert TargetPolicy().refusal(address) is not None


@pytest.mark.parametrize("address", OPEN)
def test_a_global_or_documentation_address_is_open(address: str) -> None:
    assert TargetPolicy().refusal(address) is None


@given(st.ip_addresses())
def test_whatever_the_standard_library_calls_not_global_is_refused(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    judged_differently = any(ip in network for network in JUDGED_DIFFERENTLY)

    assert ip.is_global or judged_differently or TargetPolicy().refusal(str(ip)) is not None


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_judged_alike_in_every_ipv6_wrapper(ip: ipaddress.IPv4Address) -> None:
    refused = TargetPolicy().refusal(str(ip)) is not None
    wrapped = [
        ipaddress.IPv6Address(f"::ffff:{ip}"),
        ipaddress.IPv6Address(f"64:ff9b::{ip}"),
        ipaddress.IPv6Address((0x2002 << 112) | (int(ip) << 80) | 1),
    ]

    assert [TargetPolicy().refusal(str(outer)) is not None for outer in wrapped] == [refused] * 3


def test_allowing_loopback_opens_loopback_and_its_mapped_form_and_nothing_else() -> None:
    opened = {address for address in FORBIDDEN if TargetPolicy(allow_loopback=True).refusal(address) is None}

    assert opened == {"127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1"}


def test_allowing_private_opens_the_operators_own_networks_and_nothing_else() -> None:
    policy = TargetPolicy(allow_private=True)

    opened = {address for address in FORBIDDEN if policy.refusal(address) is None}

    assert opened == {
        *("10.0.0.1", "172.16.0.0", "172.31.255.255", "192.168.0.1", "::ffff:10.0.0.1", "fc00::1", "fec0::1"),
        *("100.64.0.0", "100.127.255.255"),
    }


NEVER = [
    *("169.254.169.254", "169.254.170.2", "168.63.129.16", "192.0.0.192", "100.100.100.200", "fe80::a9fe:a9fe"),
    *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42", "::ffff:169.254.169.254"),
    *("::ffff:100.100.100.200", "64:ff9b::169.254.169.254", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1"),
    *("64:ff9b::10.0.0.1", "2002:a00:1::", "2001:0:a9fe:a9fe::1", "0.0.0.0", "0.1.2.3", "::", "224.0.0.1", "ff02::1"),
    *("198.18.0.1", "240.0.0.1", "255.255.255.255", "::7f00:1", "::ffff:0:7f00:1", "100::1", "4000::1"),
]


@pytest.mark.parametrize("address", NEVER)
def test_metadata_and_addresses_that_are_nobodys_stay_closed_whatever_is_allowed(address: str) -> None:
    assert TargetPolicy(allow_loopback=True, allow_private=True).refusal(address) is not None


def test_two_policies_judge_one_address_each_for_itself() -> None:
    policies = [TargetPolicy(), TargetPolicy(allow_private=True), TargetPolicy(extra_blocked=("10.0.0.0/8",))]

    answers = [policy.refusal("10.0.0.1") for policy in policies]

    assert answers == ["private addresses are not allowed", None, "the operator does not allow this address"]


@pytest.mark.parametrize("address", ["10.0.0.1", "169.254.169.254", "127.0.0.1", "0.0.0.0", "1.1.1.1"])
def test_only_a_blocked_network_or_an_odd_spelling_is_beyond_every_rule(address: str) -> None:
    reasons = [block_refusal(text, ("10.0.0.0/8",)) for text in (address, f"{address}%lo", f" {address}")]

    blocked = "the operator does not allow this address" if address == "10.0.0.1" else None
    assert reasons == [blocked, "it is not an IP address", "it is not an IP address"]


@pytest.mark.parametrize("address", ["192.0.2.7", "::ffff:192.0.2.7", "64:ff9b::192.0.2.7", "2002:c000:207::1"])
def test_an_extra_network_is_refused_in_every_wrapper_whatever_else_is_allowed(address: str) -> None:
    policy = TargetPolicy(allow_loopback=True, allow_private=True, extra_blocked=("192.0.2.0/24",))

    assert policy.refusal(address) == "the operator does not allow this address"


@pytest.mark.parametrize("text", ["", "localhost", "127.1", "2130706433", "0x7f.0.0.1", "1.1.1.01", "2606::1%lo"])
def test_text_that_the_system_might_resolve_again_is_refused_under_any_policy(text: str) -> None:
    assert TargetPolicy(allow_loopback=True, allow_private=True).refusal(text) is not None


def test_a_policy_with_a_malformed_network_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="example"):
        TargetPolicy(extra_blocked=("example/8",))


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.1.2.3", "fd12::1", "100.64.0.1", "93.184.216.34"])
def test_urls_of_the_operator_may_reach_private_and_loopback_addresses(address: str) -> None:
    assert OPERATOR_TARGETS.refusal(address, 443, own=("127.0.0.0/8", "10.1.2.3/32")) is None


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "fd00:ec2::254", "0.0.0.0", "224.0.0.1"])
def test_urls_of_the_operator_do_not_reach_metadata_services(address: str) -> None:
    assert OPERATOR_TARGETS.refusal(address, 80) is not None
