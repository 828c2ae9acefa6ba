"""The value of PORT that a project's variables choose."""

from __future__ import annotations

import pytest

from moorage.products.apps.launching import own_port


@pytest.mark.parametrize(
    ("value", "port"),
    [("3000", 3000), (" 80 ", 80), ("65535", 65535), ("0", 0), ("65536", 0), ("53", 0), ("", 0), ("http", 0), ("³", 0)],
)
def test_only_a_port_that_an_app_can_listen_on_is_honoured(value: str, port: int) -> None:
    assert own_port({"PORT": value}) == port


def test_without_the_variable_the_platform_chooses() -> None:
    assert own_port({}) == 0
