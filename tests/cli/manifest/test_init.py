"""`moorage init` and `moorage schema`: a new file, one of a live project, and the schema for editors."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.cli.live import Shell
from tests.cli.manifest.test_apply import differences
from tests.cli.manifest.test_reading import WRONG
from tests.command import moorage
from tests.e2e.projects_support import new_name, page
from tests.runtime.builds.build_support import write_files

from moorage.cli import manifest
from moorage.cli.manifest import schema, writing
from moorage.cli.manifest.fields import Shape
from moorage.cli.manifest.resources import PROJECT, SECTIONS
from moorage.client.models import SecretUpsert

pytestmark = pytest.mark.group("cli-live")

SERVER_CHECKS = ("needs the table [project]", "has the same", "is not valid TOML")


def test_a_new_file_has_the_name_and_the_detected_settings_as_comments(tmp_path: Path) -> None:
    folder = tmp_path / "My Shop_2"
    write_files(folder, {"package.json": {"dependencies": {"nuxt": "^3.0.0"}, "scripts": {"build": "nuxt build"}}})

    done = moorage("init", folder)

    text = (folder / "moorage.toml").read_text()
    found = manifest.load(folder)
    assert done.returncode == 0, done.stderr
    assert text.startswith("#:schema ./.moorage.schema.json\n")
    assert '# start-cmd = "node .output/server/index.mjs"\n' in text
    assert found is not None
    assert found.project == {"name": "my-shop-2"}
    assert (folder / ".moorage.schema.json").read_text() == schema.text()


def test_a_folder_that_is_not_recognised_gets_a_file_and_the_reason(tmp_path: Path) -> None:
    write_files(tmp_path, {"Cargo.toml": "x"})

    done = moorage("init", tmp_path, "--name", "crab")

    assert done.returncode == 0
    assert "Rust is not supported" in done.stderr
    assert tomllib.loads((tmp_path / "moorage.toml").read_text()) == {"project": {"name": "crab"}}


def test_an_existing_file_is_only_changed_with_force_and_keeps_its_comments(tmp_path: Path) -> None:
    path = tmp_path / "moorage.toml"
    path.write_text(
        '# ours\n[project] # here\nname = "old" # was renamed\ntier = "micro"\n\n[[monitors]]\nname="m"\nurl="/"\n'
    )

    refused = moorage("init", tmp_path, "--name", "new")
    done = moorage("init", tmp_path, "--name", "new", "--force")

    assert refused.returncode == 1
    assert "change it with --force" in refused.stderr
    assert done.returncode == 0, done.stderr
    assert path.read_text() == (
        '# ours\n[project] # here\nname = "new" # was renamed\ntier = "micro"\n\n[[monitors]]\nname="m"\nurl="/"\n'
    )


def test_a_file_that_is_wrong_is_not_changed_and_all_its_mistakes_are_named(tmp_path: Path) -> None:
    path = tmp_path / "moorage.toml"
    path.write_text("project = 3\nx = 1\n")

    refused = moorage("init", tmp_path, "--force")

    assert refused.returncode == 1
    assert refused.stderr == (
        "moorage: moorage.toml:1: project should be a table\n"
        "         moorage.toml:2: x is not a key of moorage.toml; allowed: cronjobs, databases, domains, headers, "
        "monitors, project, redirects, removed, schedules\n"
    )
    assert path.read_text() == "project = 3\nx = 1\n"


def test_the_settings_of_a_live_project_are_written_without_secrets_and_equal_it(shell: Shell, tmp_path: Path) -> None:
    name, client = new_name("live"), shell.client
    shell.sites.publish(name, {"index.html": page("hello")})
    (tmp_path / "moorage.toml").write_text(
        f"""
        [project]
        name = "{name}"
        build-dir = "public"
        env = {{ MODE = "x", API_TOKEN = "hunter2" }}
        [[domains]]
        domain = "www.{name}.example.com"
        [[redirects]]
        source = "/a"
        destination = "/b"
        status = 301
        [[headers]]
        source = "/*"
        name = "X-A"
        value = "1"
        [[monitors]]
        name = "{name}"
        url = "/"
        headers = {{ Authorization = "Bearer hunter2", Accept = "text/html" }}
        [[monitors.alerts]]
        metric = "status"
        condition = "lt"
        threshold = 1
        slack-webhook = {{ env = "SLACK" }}
        """
    )
    shell.ok("apply", tmp_path, SLACK="https://hooks.example.com/hunter2")
    client.projects.update(name, secrets=[SecretUpsert(name="KEY", value="hunter2")])
    folder = tmp_path / "export"
    folder.mkdir()

    done = shell("init", folder, "--from", name)

    text = (folder / "moorage.toml").read_text()
    assert done.returncode == 0, done.stderr
    assert "API_TOKEN looks like a secret" in done.stderr
    assert "the header Authorization looks like a secret" in done.stderr
    assert "hunter2" not in text
    assert 'secrets = ["KEY"]' in text
    assert '[[monitors.alerts]]\nmetric = "status"' in text
    left = [field.key for each in differences(shell, folder) for field in each.fields]
    assert left == ["env.API_TOKEN", "headers.Authorization"]


def test_the_schema_accepts_and_refuses_what_the_command_does(subtests: pytest.Subtests) -> None:
    validator = jsonschema.Draft7Validator(json.loads(schema.text()))
    jsonschema.Draft7Validator.check_schema(validator.schema)

    for text, message in WRONG.items():
        if not any(each in message for each in SERVER_CHECKS):
            with subtests.test(text):
                assert not validator.is_valid(tomllib.loads(text))
    assert validator.is_valid(tomllib.loads('[project]\nname = "x"\nenv = { A = "1" }\nsecrets = ["B"]\n'))


def test_the_command_prints_the_schema_with_descriptions_of_the_api() -> None:
    printed = json.loads(moorage("schema").stdout)

    project = printed["properties"]["project"]["properties"]
    assert project["disk"]["description"] == "GB."
    assert project["kind"]["enum"] == ["auto", "container", "static"]
    assert project["auto-scaling"]["required"] == ["enabled"]
    assert "threshold" in printed["properties"]["monitors"]["items"]["properties"]["alerts"]["items"]["required"]


def test_a_file_with_every_key_is_written_and_read_back() -> None:
    """A new field of the API is a key of the file without any change here."""
    values: dict[Any, object] = {str: "x", int: 3, float: 1.5, bool: True, list[str]: ["a"], dict[str, str]: {"A": "b"}}
    draft = writing.Draft(_example(PROJECT.fields, values))
    for resource in SECTIONS:
        entry = _example(resource.fields, values)
        for child in resource.children:
            entry[child.section] = [_example(child.fields, values)]
        draft.add(resource.section, entry)

    text = writing.new(draft)

    read = manifest.reading.parse(text, Path("moorage.toml"))
    assert read.project == draft.project
    assert read.sections == draft.sections
    jsonschema.validate(tomllib.loads(text), schema.document())


def _example(fields: object, values: dict[Any, object]) -> dict[str, object]:
    entry: dict[str, object] = {}
    for key, field in fields.items():  # type: ignore[attr-defined]
        if field.shape is Shape.HIDDEN:
            entry[key] = {"env": "NAME"}
        elif field.shape is Shape.TABLE:
            entry[key] = _example(field.table, values)
        elif "Literal" in str(field.kind):
            entry[key] = field.kind.__args__[0]
        else:
            entry[key] = values.get(
                field.kind, "x" if "str" in str(field.kind) and "dict" not in str(field.kind) else {"k": 1}
            )
    return entry
