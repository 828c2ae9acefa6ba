"""Turns: organizations share fairly, and no waiting function is lost."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.edge.pool_support import make_function

from moorage.runtime.edge.calls.function import AnyFunction
from moorage.runtime.edge.calls.turns import QUANTUM_MB, Turns

MEMORY = st.sampled_from([64, 128, 256, 512, 1024, 2048])
WAITING = st.lists(st.tuples(st.sampled_from(["1", "2", "3", "4"]), MEMORY), max_size=60)


def fill(turns: Turns, waiting: list[tuple[str, int]]) -> list[AnyFunction]:
    functions = [make_function(org=org, memory_mb=memory_mb) for org, memory_mb in waiting]
    for function in functions:
        turns.add(function)
    return functions


def drain(turns: Turns, skip: frozenset[str] = frozenset()) -> list[AnyFunction]:
    taken = []
    while (function := turns.next(skip)) is not None:
        taken.append(function)
    return taken


@given(WAITING)
def test_nothing_is_lost_and_each_organization_keeps_its_own_order(waiting: list[tuple[str, int]]) -> None:
    turns = Turns()
    functions = fill(turns, waiting)

    taken = drain(turns)

    assert Counter(map(id, taken)) == Counter(map(id, functions))
    for org in {function.org for function in functions}:
        assert [each for each in taken if each.org == org] == [each for each in functions if each.org == org]
    assert len(turns) == 0


@given(st.lists(MEMORY, min_size=2, max_size=4), st.integers(min_value=1, max_value=120))
def test_while_all_have_something_waiting_nobody_gets_much_more_memory_than_another(
    sizes: list[int], turns_taken: int
) -> None:
    turns = Turns()
    fill(turns, [(str(number), size) for number, size in enumerate(sizes, 1) for _ in range(200)])

    given_mb: Counter[str] = Counter({str(number): 0 for number in range(1, len(sizes) + 1)})
    for _ in range(turns_taken):
        function = turns.next()
        assert function is not None
        given_mb[function.org] += function.memory_mb

    assert max(given_mb.values()) - min(given_mb.values()) <= 2 * (QUANTUM_MB + max(sizes))


@given(WAITING, st.frozensets(st.sampled_from(["1", "2", "3", "4"])))
def test_who_cannot_have_more_is_passed_over_and_comes_later(
    waiting: list[tuple[str, int]], skip: frozenset[str]
) -> None:
    turns = Turns()
    functions = fill(turns, waiting)

    first = drain(turns, skip)
    rest = drain(turns)

    assert {function.org for function in first} & skip == set()
    assert {function.org for function in rest} <= skip
    assert len(first) + len(rest) == len(functions)


@given(WAITING, st.integers(min_value=0, max_value=30))
def test_what_is_put_back_keeps_waiting(waiting: list[tuple[str, int]], times: int) -> None:
    turns = Turns()
    functions = fill(turns, waiting)

    for _ in range(times):
        if (function := turns.next()) is not None:
            turns.add(function)

    assert len(turns) == len(functions)
    assert Counter(map(id, drain(turns))) == Counter(map(id, functions))


def test_a_burst_does_not_stand_in_front_of_another_s_first_call() -> None:
    turns = Turns()
    fill(turns, [("1", 256)] * 1000 + [("2", 256)])

    first_two = [turns.next(), turns.next()]

    assert {function.org for function in first_two if function} == {"1", "2"}


def test_without_anybody_there_is_no_turn() -> None:
    assert Turns().next() is None
    assert Turns().next(frozenset({"1"})) is None
