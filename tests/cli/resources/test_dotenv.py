"""Files of variables: quotes, comments, and errors that do not show a value."""

from __future__ import annotations

import pytest

from moorage.cli.resources.projects.dotenv import BadFile, parse, render


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("A=1\nB=two words\n", {"A": "1", "B": "two words"}),
        ("# comment\n\n  export A = x # comment\nB=x#y\n", {"A": "x", "B": "x#y"}),
        ("A='a \"b\" $c \\n'\n", {"A": 'a "b" $c \\n'}),
        ('A="a\\nb \\"q\\" \\$x \\\\"\nB="two\nlines"\n', {"A": 'a\nb "q" $x \\', "B": "two\nlines"}),
        ("A=\nB=\"\"\nC=''\n", {"A": "", "B": "", "C": ""}),
        ("A=1\nA=2", {"A": "2"}),
        ("\ufeffA=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ('A="x" # comment\nURL=https://a.example/?q=1&b=#top\n', {"A": "x", "URL": "https://a.example/?q=1&b=#top"}),
        ("A=# all comment\n", {"A": ""}),
        ("", {}),
    ],
)
def test_lines_are_variables(text: str, variables: dict[str, str]) -> None:
    assert parse(text) == variables


@pytest.mark.parametrize(
    ("text", "line"),
    [("A=1\nsecret", 2), ("1A=secret", 1), ('A="secret', 1), ("A='secret\nB=1", 1), ('A="x" secret', 1), ("=x", 1)],
)
def test_a_bad_line_is_named_by_its_number_without_its_value(text: str, line: int) -> None:
    with pytest.raises(BadFile, match=f"line {line}: ") as caught:
        parse(text)

    assert "secret" not in str(caught.value)


def test_a_written_file_is_read_back() -> None:
    variables = {
        "A": "plain-1.0",
        "B": 'quotes " and \\ and $x',
        "C": "two\nlines\r",
        "D": "",
        "E": " space ",
        "F": "é#",
    }

    assert parse(render(variables)) == variables
