"""What the hand-written pages name exists: links with their anchors, commands with their options, settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from moorage.cli.commands import app as command_line
from moorage.settings import Settings

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))

FENCED = re.compile(r"^ *(```+|~~~+)[^\n]*\n(.*?)^ *\1[ \t]*$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)|^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.+?) *#* *$", re.MULTILINE)
SETTING = re.compile(r"\bMOORAGE_[A-Z][A-Z0-9_]*")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)

# What separates two commands of one line. What remains are words, and quotes that belong to no word here.
OPERATOR = re.compile(r"\$\(|[()|;&<>]+")
GIVEN = {"MOORAGE_EXECUTION_ID", "MOORAGE_SCHEDULED_AT"}  # by the platform, to the runs of cronjobs
READ = {"MOORAGE_URL", "MOORAGE_TOKEN", "MOORAGE_ORG", "MOORAGE_CONTEXT"}  # by the commands for users
NAMES = {f"MOORAGE_{name.upper()}" for name in Settings.model_fields} | GIVEN | READ
TOP = typer.main.get_command(command_line)


def prose(text: str) -> str:
    """Return a page without its code, in which brackets are no links."""
    return INLINE.sub("", FENCED.sub("", text))


def code_lines(text: str) -> Iterator[str]:
    """Yield each line of code: of blocks, with the lines that a backslash continues, and between backticks."""
    for block in FENCED.finditer(text):
        yield from block[2].replace("\\\n", " ").splitlines()
    for span in INLINE.finditer(FENCED.sub("", text)):
        yield " ".join(span[2].split())


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as the code hosts make them."""
    found: list[str] = []
    for heading in HEADING.findall(FENCED.sub("", text)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        times = found.count(slug)
        found.append(slug)
        if times:
            found.append(f"{slug}-{times}")
    return set(found)


def link_problems(page: Path, text: str) -> list[str]:
    problems = []
    for match in LINK.finditer(prose(text)):
        target = match[1] or match[2]
        if not ELSEWHERE.match(target) and (problem := link_problem(page, text, target)):
            problems.append(f"{target}: {problem}")
    return problems


def link_problem(page: Path, text: str, target: str) -> str | None:
    path, _, anchor = target.partition("#")
    there = (page.parent / path).resolve()
    if path and not (there.is_relative_to(ROOT) and there.exists()):
        return "there is no such file in the project"
    if anchor:
        text = there.read_text(encoding="utf-8") if path else text
        return None if anchor in anchors(text) else "the page has no such heading"
    return None


def command_problems(text: str) -> list[str]:
    return [problem for line in code_lines(text) for call in calls(line) if (problem := call_problem(call))]


def calls(line: str) -> Iterator[list[str]]:
    """Yield the words after each call of the program; a `moorage` right behind an option is a user's or a file's."""
    for part in OPERATOR.split(line):
        words = [re.sub(r"`[.,]$", "", word).strip("\"'`") for word in part.split()]
        for at, word in enumerate(words):
            is_value = at > 0 and words[at - 1].startswith("-")
            if word.endswith("/bin/moorage") or (word == "moorage" and not is_value):
                yield words[at + 1 :]


def call_problem(words: list[str]) -> str | None:
    """Walk down the command line as a shell's words would, and name the first that does not exist there."""
    command: Any = TOP
    for at, word in enumerate(words):
        if not isinstance(command, TyperGroup) or word.startswith("-"):
            return option_problem(command, words[at:])
        if word not in command.list_commands(None):  # type: ignore[arg-type]
            return f"moorage {' '.join(words)}: there is no command {word!r}"
        command = subcommand(command, word)
    return None


@cache
def subcommand(group: TyperGroup, name: str) -> Any:
    """Return a command of a group, which is built anew whenever it is looked up."""
    return group.get_command(None, name)  # type: ignore[arg-type]


def option_problem(command: Any, words: list[str]) -> str | None:
    known = {"--help", *(name for each in command.params for name in (*each.opts, *each.secondary_opts))}
    own = words[: words.index("--")] if "--" in words else words  # the others are of a program that it starts
    given = [word.partition("=")[0] for word in own if word.startswith("--")]
    wrong = [word for word in given if word not in known]
    return f"{command.name} has no option {wrong[0]}" if wrong else None


def setting_problems(text: str) -> list[str]:
    return sorted(set(SETTING.findall(text)) - NAMES)


def problems_of_pages(find: Callable[[Path, str], list[str]]) -> dict[str, list[str]]:
    """Return the problems of each page that has any."""
    found = {str(page.relative_to(ROOT)): find(page, page.read_text(encoding="utf-8")) for page in PAGES}
    return {name: problems for name, problems in found.items() if problems}


def test_every_relative_link_leads_to_a_file_and_a_heading_that_exist() -> None:
    assert problems_of_pages(link_problems) == {}


def test_every_command_that_a_page_names_exists_with_its_options() -> None:
    assert problems_of_pages(lambda _, text: command_problems(text)) == {}


def test_every_setting_that_a_page_names_exists() -> None:
    assert problems_of_pages(lambda _, text: setting_problems(text)) == {}


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        targets = [match[1] or match[2] for match in LINK.finditer(prose(page.read_text(encoding="utf-8")))]
        linked = {(page.parent / target.partition("#")[0]).resolve() for target in targets if target[0] != "#"}
        waiting += [each for each in linked & set(PAGES) if each not in reached]

    assert reached == set(PAGES)


@pytest.mark.parametrize(
    "target", ["missing.md", "../outside.md", "README.md#no-such-heading", "#no-such-heading", "docs/nowhere/"]
)
def test_a_link_that_leads_nowhere_is_found(target: str) -> None:
    text = f"# Only heading\n\nSee [this]({target}), and `[not](this.md)`.\n"

    assert [problem.partition(": ")[0] for problem in link_problems(ROOT / "page.md", text)] == [target]


@pytest.mark.parametrize("target", ["README.md", "docs/glossary.md#glossary", "#only-heading", "https://example.com/x"])
def test_a_link_that_leads_somewhere_is_none(target: str) -> None:
    text = f"# Only heading\n\nSee [this]({target}).\n\n[too]: {target}\n"

    assert link_problems(ROOT / "page.md", text) == []


def test_an_anchor_is_the_heading_in_lower_case_without_its_marks() -> None:
    text = "# Who am I?\n\n## `moorage up`\n\n## Twice\n\n## Twice\n\n```\n# a comment\n```\n"

    assert anchors(text) == {"who-am-i", "moorage-up", "twice", "twice-1"}


@pytest.mark.parametrize(
    "text",
    [
        "Run `moorage frobnicate`.",
        "Run `moorage admin frobnicate`.",
        "```\nsudo -u moorage /opt/moorage/bin/moorage keys shred\n```",
        "```\nTOKEN=$(.venv/bin/moorage admin tokens)\n```",
        "```\nmoorage backup \\\n    --all file.tar.gz\n```",
        "```\nmoorage up --data /srv && moorage up --dta /srv\n```",
    ],
)
def test_a_command_or_option_that_does_not_exist_is_found(text: str) -> None:
    assert len(command_problems(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "The `moorage` command, `moorage admin` and `moorage --help`.",
        "```\ngit clone <this repository> moorage && cd moorage\n```",
        "```\nsudo -u moorage bash -c 'moorage doctor --json'\n```",
        "```\nmoorage admin token ada@example.com --role=viewer | tee token\n```",
        "```\nmoorage: no Moorage runs here\n```",
    ],
)
def test_a_command_that_exists_is_no_problem(text: str) -> None:
    assert command_problems(text) == []


def test_a_setting_that_does_not_exist_is_found() -> None:
    assert setting_problems("Set MOORAGE_DATA, `MOORAGE_DATUM=1` or any of MOORAGE_*.") == ["MOORAGE_DATUM"]
