"""moorage.toml as a file: valid ones, and the message for each mistake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moorage.cli import manifest
from moorage.cli.manifest.lines import Lines
from moorage.cli.manifest.reading import ManifestError, parse
from moorage.cli.manifest.resources import BY_SECTION

WRONG = {
    "[project]\nname = 'x'\nbase_dir = 'a'": (
        "moorage.toml:3: project.base_dir is not a key of moorage.toml; did you mean base-dir?"
    ),
    "[project]\nname = 'x'\nbuildCmd = 'a'": (
        "moorage.toml:3: project.buildCmd is not a key of moorage.toml; did you mean build-cmd?"
    ),
    "[project]\nbase-dir = 'x'": "moorage.toml:1: project needs the key name",
    "[project]\nname = 3": "moorage.toml:2: project.name should be a text, not 3",
    "[project]\nname = 'x'\nkind = 'lambda'": (
        'moorage.toml:3: project.kind should be one of auto, container, static, not the text "lambda"'
    ),
    "[project]\nname = 'x'\ndisk = '5'": 'moorage.toml:3: project.disk should be a whole number, not the text "5"',
    "[project]\nname = 'x'\ndisk = true": "moorage.toml:3: project.disk should be a whole number, not true",
    "[project]\nname = 'x'\nauto-deploy = 'yes'": (
        'moorage.toml:3: project.auto-deploy should be true or false, not the text "yes"'
    ),
    "[project]\nname = 'x'\n[project.env]\nPORT = 80": 'moorage.toml:3: project.env needs texts: write PORT = "80"',
    "[project]\nname = 'x'\nenv = ['A']": (
        'moorage.toml:3: project.env should be a table of texts, such as { NAME = "value" }, not a list'
    ),
    "[project]\nname = 'x'\n[project.secrets]\nKEY = 'v'": (
        'moorage.toml:3: project.secrets should be a list of names, such as ["API_KEY"], not a table'
    ),
    "[project]\nname = 'x'\n[project.auto-scaling]\nenabled = true\nmaxReplica = 3": (
        "moorage.toml:5: project.auto-scaling.maxReplica is not a key of moorage.toml; did you mean max-replicas?"
    ),
    "[project]\nname = 'x'\nauto-scaling = 3": "moorage.toml:3: project.auto-scaling should be a table, not 3",
    "[[project]]\nname = 'x'": "moorage.toml:1: project should be a table",
    "[databases]\nname = 'x'": "moorage.toml:1: databases should be a list of tables, written [[databases]]",
    "[[databases]]\nname = 'x'\ntype = 'postgresql'\nversion = '16.4.0'\ninstance-type = 'free'\npassword = 'x'": (
        "moorage.toml:6: databases[1].password is not a key of moorage.toml; allowed: architecture, backups, db-name, "
        "instance-type, linked, name, region, type, username, version, visibility"
    ),
    "[[domains]]\ndomain = 'a.example.com'": (
        "moorage.toml:1: domains needs the table [project]: it belongs to a project"
    ),
    "[[cronjobs]]\nname='a'\ncron-schedule='@daily'\n\n[[cronjobs]]\nname='a'\ncron-schedule='@daily'": (
        "moorage.toml:5: cronjobs[2] has the same name as entry 1"
    ),
    "[[monitors]]\nname='a'\nurl='/'\n[[monitors.alerts]]\nmetric='status'\ncondition='lt'": (
        "moorage.toml:4: monitors[1].alerts[1] needs the key threshold"
    ),
    "[[monitors]]\nname='a'\nurl='/'\nstatus-codes=[200]": (
        "moorage.toml:4: monitors[1].status-codes should be a list of texts, not a list"
    ),
    "[removed]\ndatabases = ['x']": (
        "moorage.toml:2: removed.databases is not a key of moorage.toml; allowed: cronjobs, schedules"
    ),
    "[removed]\ncronjobs = 'x'": "moorage.toml:2: removed.cronjobs should be a list of names",
    "[[monitor]]\nname='a'": "moorage.toml:1: monitor is not a key of moorage.toml; did you mean monitors?",
    "[project": "moorage.toml is not valid TOML: Expected ']' at the end of a table declaration (at end of document)",
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_a_mistake_is_named_with_its_line_and_the_allowed_values(text: str) -> None:
    with pytest.raises(ManifestError) as refused:
        parse(text, Path("moorage.toml"))

    assert str(refused.value) == WRONG[text]


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_lines() -> None:
    with pytest.raises(ManifestError) as refused:
        parse("[project]\nx = 1\nname = 2\n[[domains]]\n", Path("moorage.toml"))

    assert [each.partition(" ")[0] for each in refused.value.problems] == [
        "moorage.toml:2:",
        "moorage.toml:3:",
        "moorage.toml:4:",
    ]


def test_the_value_of_a_secret_address_is_refused_without_repeating_it() -> None:
    text = (
        "[[monitors]]\nname='a'\nurl='/'\n[[monitors.alerts]]\nmetric='status'\ncondition='lt'\nthreshold=1\n"
        "slack-webhook='https://hooks.example.com/T0/secret'\n"
    )

    with pytest.raises(ManifestError) as refused:
        parse(text, Path("moorage.toml"))

    assert 'name a variable: { env = "NAME" }' in str(refused.value)
    assert "hooks.example.com" not in str(refused.value)


def test_a_folder_without_the_file_has_no_settings(tmp_path: Path) -> None:
    assert manifest.load(tmp_path) is None


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "moorage.toml").write_bytes(b"name = '\xff'")

    with pytest.raises(ManifestError, match="is not UTF-8"):
        manifest.load(tmp_path)


def test_a_deeply_nested_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "moorage.toml").write_text("x = " + "[" * 100_000)

    with pytest.raises(ManifestError, match="is not valid TOML"):
        manifest.load(tmp_path)


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "moorage.toml").write_text("# " + "x" * 1_000_001)

    with pytest.raises(ManifestError, match="has more than 1 MB"):
        manifest.load(tmp_path)


def test_lines_are_found_behind_strings_arrays_and_comments() -> None:
    lines = Lines(
        '# [a]\ntext = """\n[no]\nkey = 1\n"""\nlist = [\n  "]", # ]\n  1,\n]\n'
        "quoted.\"a b\" = 1\n[t.u]\nx = { y = 1 }\n[[l]]\na = 1\n[[l]]\nb = '''\n[[l]]\n'''\n[l.sub]\nc = 1\n"
    )

    expected = {
        ("text",): 2,
        ("list",): 6,
        ("quoted", "a b"): 10,
        ("t", "u", "x", "y"): 12,
        ("l", 0, "a"): 14,
        ("l", 1, "b"): 16,
        ("l", 1, "sub", "c"): 20,
    }
    assert {path: lines.of(path) for path in expected} == expected


def test_the_examples_of_the_documentation_are_valid() -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "settings-as-code.md"

    examples = re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)

    assert len(examples) == 2
    assert set(parse(examples[0], Path("moorage.toml")).sections) == set(BY_SECTION)
    parse(examples[1], Path("moorage.toml"))
