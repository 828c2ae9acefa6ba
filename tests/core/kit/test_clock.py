"""Times in the API format."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.kit.clock import to_wire, to_wire_or_none


@pytest.mark.parametrize(
    ("moment", "wire"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (1_769_851_800_000, "2026-01-31T09:30:00.000Z"),
        (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
    ],
)
def test_a_time_is_utc_with_milliseconds_and_z(moment: int, wire: str) -> None:
    assert to_wire(moment) == wire


@given(st.integers(min_value=0, max_value=4_102_444_800_000))
def test_every_time_reads_back_as_itself(moment: int) -> None:
    read = datetime.strptime(to_wire(moment), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)

    assert round(read.timestamp() * 1000) == moment


def test_no_time_is_none() -> None:
    assert to_wire_or_none(None) is None
