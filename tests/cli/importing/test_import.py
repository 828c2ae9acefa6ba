"""`moorage import`: a table of files of other platforms, broken and hostile files, and the command itself."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest
from tests.cli.importing.import_case import Case
from tests.cli.importing.import_cases import BROKEN, CASES
from tests.command import moorage
from tests.runtime.builds.build_support import write_files

from moorage.cli.importing.commands import run
from moorage.cli.importing.documents import CannotImport
from moorage.cli.manifest import reading, schema, writing


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "shop"
    path.mkdir()
    return path


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_file_of_another_platform_leads_to_settings_and_leftovers(folder: Path, case: Case) -> None:
    for name, content in case.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)

    result = run(folder / next(iter(case.files)), folder)

    text = writing.new(result.draft)
    assert tomllib.loads(text) == case.toml
    assert len(result.left) == len(case.left), [each.what for each in result.left]
    for left, expected in zip(result.left, case.left, strict=True):
        assert left.what.startswith(expected)
        assert left.why
        assert left.step
    shown = text + str(result.left)
    assert [secret for secret in case.secrets if secret in shown] == []
    reading.parse(text, folder / "moorage.toml")
    jsonschema.validate(tomllib.loads(text), schema.document())


@pytest.mark.parametrize(("name", "content", "message"), BROKEN, ids=range(len(BROKEN)))
def test_a_broken_or_hostile_file_is_refused_with_its_place(
    folder: Path, name: str, content: str, message: str
) -> None:
    (folder / name).write_text(content)

    with pytest.raises(CannotImport) as refused:
        run(folder / name, folder)

    assert message in str(refused.value)


def test_there_are_at_least_thirty_cases() -> None:
    assert len(CASES) >= 30


def test_the_command_writes_the_file_and_lists_the_rest_with_next_steps(folder: Path) -> None:
    write_files(folder, {"Procfile": "web: npm start\nworker: npm run work\n", "vercel.json": {"regions": ["x"]}})

    done = moorage("import", folder / "Procfile")

    assert done.returncode == 0, done.stderr
    assert done.stdout == f"wrote {folder / 'moorage.toml'}\n"
    assert "! process worker (npm run work): a project has one process" in done.stderr
    assert "    next: make it a cronjob" in done.stderr
    assert done.stderr.endswith("Procfile: 1 not carried over\n")
    assert (folder / "moorage.toml").read_text().startswith("#:schema ./.moorage.schema.json\n")


def test_an_existing_file_is_not_replaced_without_force(folder: Path) -> None:
    write_files(folder, {"Procfile": "web: npm start\n", "moorage.toml": "# ours\n[project]\nname = 'kept'\n"})

    refused = moorage("import", folder)
    printed = moorage("import", folder, "--dry-run")
    done = moorage("import", folder, "--force", "--json")

    assert refused.returncode == 1
    assert "change it with --force" in refused.stderr
    assert 'start-cmd = "npm start"' in printed.stdout
    assert json.loads(done.stdout)["left"] == []
    assert (folder / "moorage.toml").read_text() == '# ours\n[project]\nname = "shop"\nstart-cmd = "npm start"\n'


def test_another_service_can_be_chosen(folder: Path) -> None:
    write_files(folder, {"compose.yml": "services:\n  web: {build: ., ports: [a]}\n  api: {build: ./api}\n"})

    done = moorage("import", folder, "--service", "api", "--dry-run")
    refused = moorage("import", folder, "--service", "apo", "--dry-run")

    assert 'name = "api"\nbase-dir = "api"' in done.stdout
    assert "! service web" in done.stderr
    assert "compose.yml has no service apo; there is web, api" in refused.stderr


def test_a_folder_with_nothing_to_import_names_the_known_files(folder: Path) -> None:
    (folder / "wrangler.toml").write_text("")

    nothing, unknown = moorage("import", folder), moorage("import", folder / "wrangler.toml")

    assert nothing.returncode == unknown.returncode == 1
    assert "there is nothing to import" in nothing.stderr
    assert "wrangler.toml is not a file that can be imported; known: vercel.json" in unknown.stderr


def test_a_huge_file_is_refused(folder: Path) -> None:
    (folder / "vercel.json").write_text(" " * 1_000_001)

    assert "has more than 1 MB" in moorage("import", folder).stderr
