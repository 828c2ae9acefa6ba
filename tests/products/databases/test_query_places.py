"""Places for statements: one organization leaves places for others."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from moorage.errors import RateLimited
from moorage.products.databases.queries.service import MAX_ON_MACHINE, MAX_PER_ORGANIZATION, Places


def take_all(places: Places, stack: ExitStack, org_id: int) -> int:
    """Hold places for statements on many databases until one is refused; return their number."""
    count = 0
    try:
        for number in range(MAX_ON_MACHINE + 1):
            stack.enter_context(places.hold(org_id, 1_000 * org_id + number))
            count += 1
    except RateLimited:
        pass
    return count


@pytest.mark.boundary("tenant-to-tenant", "Statements of some organizations leave a place for a statement of another.")
def test_organizations_cannot_take_all_places() -> None:
    places = Places()

    with ExitStack() as stack:
        taken = [take_all(places, stack, org_id) for org_id in (1, 2, 3)]
        last = take_all(places, stack, 4)

    assert taken == [MAX_PER_ORGANIZATION, MAX_PER_ORGANIZATION, MAX_ON_MACHINE - 2 * MAX_PER_ORGANIZATION]
    assert last == 1


def test_places_are_free_again_after_the_statement() -> None:
    places = Places()
    with ExitStack() as stack:
        take_all(places, stack, 1)

    with ExitStack() as stack:
        assert take_all(places, stack, 1) == MAX_PER_ORGANIZATION
