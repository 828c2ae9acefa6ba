"""Users' URLs that lead to this machine by one of its public addresses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.core.net.own_networks import read_own_networks
from moorage.core.net.targets import TargetPolicy

ROOT = Path(__file__).parents[3]
OWN = ("203.0.113.7/32", "2001:db8::7/128", "192.168.4.7/32", "127.0.0.0/8")
REFUSED = "addresses of this platform's own machine are not allowed"


@pytest.mark.boundary("tenant-to-network", "Users' URLs reach no service on a public address of the machine itself.")
def test_a_url_reaches_no_service_on_a_public_address_of_the_machine_itself() -> None:
    command = [sys.executable, "-m", "tests.core.net.own_address_calls"]

    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert ran.returncode == 0, ran.stderr
    refused = f"refused: cannot call 203.0.113.7: {REFUSED}"
    assert json.loads(ran.stdout) == {
        "before": "failed: connect",
        "after": refused,
        "mapped": f"refused: cannot call ::ffff:cb00:7107: {REFUSED}",
        "other port": refused,
        "unseen": "0",
        "public port": "200",
        "loopback allowed": "200",
    }


def test_own_networks_contain_loopback_and_every_address_of_the_machine() -> None:
    assert "127.0.0.0/8" in read_own_networks()


@pytest.mark.parametrize(
    "address",
    ["203.0.113.7", "2001:db8::7", "::ffff:203.0.113.7", "64:ff9b::203.0.113.7", "2002:cb00:7107::1"],
)
def test_an_own_address_is_closed_in_every_spelling_except_at_public_ports(address: str) -> None:
    policy = TargetPolicy(public_ports=frozenset({443}))

    assert policy.refusal(address, 5432, own=OWN) == REFUSED
    assert policy.refusal(address, own=OWN) == REFUSED
    assert policy.refusal(address, 443, own=OWN) is None
    assert TargetPolicy(allow_loopback=True).refusal(address, 5432, own=OWN) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "192.168.4.7", "169.254.169.254"])
def test_a_public_port_opens_no_address_that_the_general_rule_closes(address: str) -> None:
    policy = TargetPolicy(public_ports=frozenset({443}))

    assert policy.refusal(address, 443, own=OWN) is not None


def test_addresses_of_other_machines_stay_open() -> None:
    assert TargetPolicy().refusal("203.0.113.8", 5432, own=OWN) is None
