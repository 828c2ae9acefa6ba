"""Policy for IP addresses that URLs from users may reach."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from moorage.core.kit.records import dataclass

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# The first matching range gives an address its kind, so narrow ranges come before wide ones. Only 2000::/3 of IPv6 is
# global unicast; the rest is closed. Documentation ranges are not listed: no host uses them, and examples do.
_KINDS: dict[str, tuple[str, ...]] = {
    "unspecified": ("0.0.0.0/32", "::/128"),
    "loopback": ("127.0.0.0/8", "::1/128"),
    "link-local": ("169.254.0.0/16", "fe80::/10"),
    # Metadata services of clouds that are not link-local: in a public range, a reserved range, the range of
    # carrier-grade NAT, and private ranges of IPv6.
    "cloud metadata": (
        *("168.63.129.16/32", "192.0.0.192/32", "100.100.100.200/32"),
        *("fd00:ec2::/32", "fd20:ce::254/128", "fd00:c1::a9fe:a9fe/128", "fd00:42::42/128"),
    ),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
    "carrier-grade NAT": ("100.64.0.0/10",),
    "multicast": ("224.0.0.0/4", "ff00::/8"),
    "reserved": ("0.0.0.0/8", "192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4"),
    "non-global": ("::/3", "2001::/23", "4000::/2", "8000::/1"),
}
_PRIVATE = frozenset({"private", "carrier-grade NAT"})
_RANGES: list[tuple[str, Network]] = [(kind, ip_network(cidr)) for kind, nets in _KINDS.items() for cidr in nets]
_NAT64 = IPv6Network("64:ff9b::/96")


class TargetRefused(Exception):
    """The policy forbids this URL; the message may be shown to the user."""


@dataclass(frozen=True, slots=True)
class TargetPolicy:
    """Addresses that URLs from users may reach.

    Global unicast addresses are open. Loopback and private addresses can be opened; all others stay closed, such as
    link-local addresses and metadata services of clouds. All addresses of this host count as loopback, also public
    ones; only the ports at which the platform serves the public are open there.
    """

    allow_loopback: bool = False  # 127.0.0.0/8 and ::1
    allow_private: bool = False  # private ranges and the range of carrier-grade NAT
    extra_blocked: tuple[str, ...] = ()  # networks in CIDR form that stay closed regardless of the other fields
    public_ports: frozenset[int] = frozenset()  # open on public addresses of this host: the platform's own sites

    def __post_init__(self) -> None:
        _parse_networks(self.extra_blocked)

    def refusal(self, address: str, port: int | None = None, *, own: tuple[str, ...] = ()) -> str | None:
        """Return why a connection to this IP address is refused, or None if it is allowed.

        Text that is not a canonical IP address is refused, because the system would resolve it again after this check.
        The reason does not contain the address, so that users cannot read internal DNS. `own` are the networks of this
        host (`net.own_networks`).
        """
        return _check(self, address, own, port in self.public_ports)

    def _allows(self, kind: str) -> bool:
        return self.allow_loopback if kind == "loopback" else self.allow_private and kind in _PRIVATE


def special_networks() -> tuple[Network, ...]:
    """Return the networks that users' code may not reach without a rule of the operator."""
    return tuple(network for _, network in _RANGES)


def block_refusal(address: str, blocked: tuple[str, ...]) -> str | None:
    """Return why no rule may open an address: not canonical, or blocked."""
    try:
        ip = ip_address(address)
    except ValueError:
        return "it is not an IP address"
    if "%" in address:
        return "addresses with a zone are not allowed"
    if _is_in(ip, blocked):
        return "the operator does not allow this address"
    return None


@lru_cache(maxsize=4096)  # Every check of every monitor passes the same few addresses.
def _check(policy: TargetPolicy, address: str, own: tuple[str, ...], is_public_port: bool) -> str | None:
    if blocked := block_refusal(address, policy.extra_blocked):
        return blocked
    ip = ip_address(address)
    kind = _classify(ip)
    if kind is not None and not policy._allows(kind):
        return f"{kind} addresses are not allowed"
    if policy.allow_loopback or (kind is None and is_public_port) or not _is_in(ip, own):
        return None
    return "addresses of this platform's own machine are not allowed"


def _is_in(ip: Address, cidrs: tuple[str, ...]) -> bool:
    """Check whether an address, or its embedded IPv4 address, is in a network."""
    return any(form in network for form in _forms(ip) for network in _parse_networks(cidrs))


@lru_cache(maxsize=64)
def _parse_networks(cidrs: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(ip_network(cidr, strict=False) for cidr in cidrs)


def _tunnelled(ip: Address) -> IPv4Address | None:
    """Return the IPv4 address that a NAT64 or 6to4 gateway translates this address to."""
    if isinstance(ip, IPv4Address):
        return None
    return IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else ip.sixtofour


def _forms(ip: Address) -> tuple[Address, ...]:
    inner = (ip.ipv4_mapped if isinstance(ip, IPv6Address) else None) or _tunnelled(ip)
    return (ip, inner) if inner else (ip,)


def _classify(ip: Address) -> str | None:
    """Return the kind of the special range of an address; None means global unicast."""
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped:
        return _classify(ip.ipv4_mapped)
    if inner := _tunnelled(ip):
        return "tunnelled special" if _classify(inner) else None
    return next((kind for kind, network in _RANGES if ip in network), None)


# Addresses that URLs from the operator's settings may reach, and URLs that such a server refers to.
OPERATOR_TARGETS = TargetPolicy(allow_loopback=True, allow_private=True)
