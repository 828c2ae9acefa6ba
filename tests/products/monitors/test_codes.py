"""Lists of accepted status codes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.products.monitors.probing.codes import DEFAULT, Codes


@pytest.mark.parametrize(
    ("elements", "good", "bad"),
    [
        ([], [200, 204, 299], [199, 300, 404]),
        (["200"], [200], [199, 201]),
        (["200-299", "404"], [200, 250, 299, 404], [300, 403, 405]),
        (["2xx", "5XX"], [200, 299, 500, 599], [199, 300, 499]),
        (["100-599"], [100, 301, 599], []),
        (["204-204"], [204], [203, 205]),
    ],
)
def test_a_list_accepts_what_it_names_and_nothing_else(elements: list[str], good: list[int], bad: list[int]) -> None:
    codes = Codes.parse(elements)

    assert [code for code in good + bad if codes.accepts(code)] == good


@pytest.mark.parametrize(
    ("element", "reason"),
    [
        *((element, "should be a status code like 200") for element in ("", "ok", "20", "2000", "2x", "xxx", "200-")),
        *((element, "should be a status code like 200") for element in ("200 - 299", " 200", "200\n", "-200", "+20")),
        *((element, "should be a status code like 200") for element in ("２００", "2xx-3xx", "200,201", "2xX\n")),
        *((element, "should be within 100 and 599") for element in ("099", "600", "000", "999", "100-600")),
        *((element, "should be within 100 and 599") for element in ("0xx", "6xx", "9XX", "099-200")),
        *((element, "is backwards") for element in ("299-200", "599-100")),
    ],
)
def test_an_element_that_is_no_code_is_refused_by_its_name(element: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        Codes.parse(["200", element])

    assert repr(element) in str(caught.value)


def test_a_long_element_is_not_repeated_in_full() -> None:
    with pytest.raises(ValueError, match="status code") as caught:
        Codes.parse(["9" * 5_000])

    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("elements", "text"),
    [([], "200-299"), (["2xx", "404"], "200-299, 404"), (["301-301"], "301"), (list(DEFAULT), "200-299")],
)
def test_the_text_names_codes_and_ranges(elements: list[str], text: str) -> None:
    assert Codes.parse(elements).text == text


@pytest.mark.parametrize(
    ("elements", "expected"),
    [(["200-299"], False), (["3xx"], True), (["302"], True), (["200-399"], True), (["304"], False), (["300"], False)],
)
def test_redirects_are_answers_where_one_that_leads_somewhere_is_accepted(elements: list[str], expected: bool) -> None:
    assert Codes.parse(elements).accepts_redirects is expected


@given(st.lists(st.tuples(st.integers(100, 599), st.integers(0, 499)), min_size=1, max_size=5), st.integers(100, 599))
def test_the_text_of_a_list_reads_as_the_same_list(pairs: list[tuple[int, int]], code: int) -> None:
    codes = Codes.parse([f"{first}-{min(first + more, 599)}" for first, more in pairs])

    again = Codes.parse(codes.text.split(", "))

    assert again == codes
    assert again.accepts(code) is any(first <= code <= first + more for first, more in pairs)
