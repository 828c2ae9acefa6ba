"""Plans detected from the files of a repository and the settings of its user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.runtime.builds.build_support import make_app_request, make_request, write_files

from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.ports import BuildFailed, BuildRequest, Plan

BUILD = {"scripts": {"build": "make"}}


def plan(request: BuildRequest) -> Plan:
    return detect.make_plan(request, detect.open_base(request))


def package(*names: str, **more: Any) -> dict[str, Any]:
    return {"devDependencies": dict.fromkeys(names, "1.0.0"), **BUILD, **more}


# Static sites.


def test_next_gives_a_site_where_it_is_told_to_export(tmp_path: Path) -> None:
    write_files(tmp_path, {"package.json": package("next", "react")})
    server = plan(make_request(tmp_path, wanted="auto", start_cmd="npm start"))
    without = plan(make_request(tmp_path))
    write_files(tmp_path, {"next.config.mjs": "export default { output: 'export' }"})

    exported = plan(make_request(tmp_path, wanted="auto"))

    assert (server.kind, server.framework) == ("container", "Next.js")
    assert without.notes == ("Next.js is not configured to build a static site",)
    assert (exported.kind, exported.output_dir, exported.notes) == ("static", "out", ())


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"index.html": "x"}, "there is no package.json: nothing is built"),
        ({"package.json": {"scripts": {"test": "x"}}}, "package.json has no `build` script: nothing is built"),
    ],
)
def test_without_a_build_script_the_folder_itself_is_published(tmp_path: Path, files: dict[str, Any], why: str) -> None:
    write_files(tmp_path, files)

    found = plan(make_request(tmp_path))

    assert (found.install, found.build, found.output_dir) == ("", "", "")
    assert found.notes[0] == why
    assert "publish:  the folder itself" in detect.describe(found)


def test_without_a_build_script_an_output_folder_that_was_pushed_is_published(tmp_path: Path) -> None:
    write_files(tmp_path, {"dist/index.html": "x"})

    assert plan(make_request(tmp_path)).output_dir == "dist"


def test_a_command_of_the_user_s_own_always_runs(tmp_path: Path) -> None:
    write_files(tmp_path, {"index.html": "x"})

    found = plan(make_request(tmp_path, build_cmd="make site", build_dir="site/./html/"))

    assert (found.build, found.output_dir, found.install) == ("make site", "site/html", "")


def test_the_user_s_own_output_folder_counts_more_than_the_framework_s(tmp_path: Path) -> None:
    write_files(tmp_path, {"package.json": package("gatsby")})

    assert plan(make_request(tmp_path, build_dir="site")).output_dir == "site"


# Which kind it is.


@pytest.mark.parametrize(
    ("files", "kind", "language"),
    [
        ({"index.html": "x"}, "static", ""),
        ({"package.json": package("vite")}, "static", "nodejs"),
        ({"package.json": package("vite", dependencies={"express": "4"}, scripts={"start": "x"})}, "container",
         "nodejs"),
        ({"package.json": package("react-scripts", scripts={"start": "react-scripts start", "build": "x"})}, "static",
         "nodejs"),
        ({"package.json": package("next", scripts={"start": "next start"})}, "container", "nodejs"),
        ({"package.json": {"scripts": {"start": "node server.js"}}}, "container", "nodejs"),
        ({"package.json": BUILD}, "static", "nodejs"),
        ({"package.json": {}, "index.html": "x"}, "static", ""),
        ({"requirements.txt": "flask", "app.py": "app = Flask(__name__)"}, "container", "python"),
        ({"pyproject.toml": "[project]\nname='x'", "main.py": ""}, "container", "python"),
        ({"requirements.txt": "mkdocs", "index.html": "x"}, "static", ""),
        ({"Dockerfile": "FROM x", "index.html": "x"}, "static", ""),
        ({"Dockerfile": "FROM x", "requirements.txt": "", "main.py": ""}, "container", "python"),
        ({"Procfile": "web: ./run", "index.html": "x", "main.py": ""}, "container", "python"),
    ],
)  # fmt: skip
def test_the_kind_is_told_from_the_files(tmp_path: Path, files: dict[str, Any], kind: str, language: str) -> None:
    write_files(tmp_path, files)

    found = plan(make_request(tmp_path, wanted="auto"))

    assert (found.kind, found.language) == (kind, language)


def test_what_the_user_sets_decides_the_kind(tmp_path: Path) -> None:
    write_files(tmp_path, {"package.json": package("vite")})

    kinds = [
        plan(make_request(tmp_path, wanted="auto", **changed)).kind
        for changed in ({"start_cmd": "node x"}, {"entry_point": "x.js"}, {"language": "nodejs", "entry_point": "x"})
    ]
    write_files(tmp_path, {"package.json": {"scripts": {"start": "x"}}})
    kinds.append(plan(make_request(tmp_path, wanted="auto", build_dir="site", build_cmd="make")).kind)

    assert kinds == ["container", "container", "container", "static"]


@pytest.mark.parametrize("wanted", ["auto", "container"])
def test_a_repository_that_says_nothing_is_refused_with_a_sentence(tmp_path: Path, wanted: str) -> None:
    write_files(tmp_path, {"README.md": "x"})

    with pytest.raises(BuildFailed, match="cannot tell"):
        plan(make_request(tmp_path, wanted=wanted))


# Container apps.


def test_the_start_command_is_looked_for_in_order(tmp_path: Path) -> None:
    write_files(
        tmp_path, {"package.json": {"scripts": {"start": "node a.js"}}, "Procfile": "worker: x\nweb: node b.js\n"}
    )

    starts = [
        plan(make_app_request(tmp_path, start_cmd="node d.js", entry_point="c d.js")).start,
        plan(make_app_request(tmp_path, entry_point="c d.js")).start,
        plan(make_app_request(tmp_path)).start,
    ]
    (tmp_path / "Procfile").unlink()
    starts.append(plan(make_app_request(tmp_path)).start)

    assert starts == ["node d.js", "node 'c d.js'", "node b.js", "npm start"]


def test_an_app_that_nothing_starts_is_refused_with_a_sentence(tmp_path: Path) -> None:
    write_files(tmp_path, {"package.json": {}})

    with pytest.raises(BuildFailed, match="nothing says how to start this app"):
        plan(make_app_request(tmp_path))


def test_an_app_is_built_with_its_own_package_manager(tmp_path: Path) -> None:
    write_files(tmp_path, {"package.json": {"scripts": {"start": "x", "build": "y"}}, "pnpm-lock.yaml": ""})

    found = plan(make_app_request(tmp_path, is_default_build=True, build_cmd="npm run build"))

    assert (found.install, found.build) == ("pnpm install --frozen-lockfile", "pnpm run build")


def test_the_build_command_of_node_is_not_run_for_python(tmp_path: Path) -> None:
    write_files(tmp_path, {"requirements.txt": "", "main.py": ""})

    assert plan(make_request(tmp_path, wanted="auto")).build == ""


def test_a_go_module_is_built_into_one_program(tmp_path: Path) -> None:
    write_files(tmp_path, {"go.mod": "module x", "main.go": "package main\n\nfunc main() {}\n"})

    found = plan(make_app_request(tmp_path))

    assert (found.language, found.install, found.build, found.start) == ("go", "", "go build -o app .", "./app")


@pytest.mark.parametrize(
    ("files", "changed"),
    [
        ({"Dockerfile": "FROM x"}, {}),
        ({"Dockerfile": "FROM x"}, {"wanted": "auto"}),
        ({"Dockerfile": "FROM x", "package.json": {}}, {"language": "docker", "start_cmd": "node x"}),
    ],
)
def test_a_dockerfile_is_built_where_it_is_all_there_is_or_the_user_chose_it(
    tmp_path: Path, files: dict[str, Any], changed: dict[str, str]
) -> None:
    write_files(tmp_path, files)

    found = plan(make_app_request(tmp_path, **changed))

    assert (found.kind, found.language, found.framework) == ("container", "docker", "Dockerfile")
    assert found.start == changed.get("start_cmd", "")


def test_a_refused_language_is_built_from_its_dockerfile(tmp_path: Path) -> None:
    write_files(tmp_path, {"Dockerfile": "FROM x", "Cargo.toml": ""})

    assert plan(make_app_request(tmp_path, wanted="auto")).language == "docker"


def test_a_repository_that_another_row_builds_does_not_use_its_dockerfile(tmp_path: Path) -> None:
    write_files(tmp_path, {"Dockerfile": "FROM x", "server.js": ""})

    found = plan(make_app_request(tmp_path, wanted="auto"))

    assert found.language == "nodejs"
    assert any("the Dockerfile is not used" in note for note in found.notes)


def test_a_plan_of_an_app_knows_its_base_folder_and_is_stored_as_json(tmp_path: Path) -> None:
    write_files(tmp_path, {"apps/web/server.js": ""})

    found = plan(make_app_request(tmp_path, base_dir="./apps/web/"))

    assert found.base == "apps/web"
    assert msgspec.json.decode(msgspec.json.encode(found), type=Plan) == found
    assert msgspec.json.decode(b'{"kind": "container", "language": "go"}', type=Plan) == Plan("container", "go")


# Hostile input.


@pytest.mark.parametrize("name", ["../other", "a/../../b", "/etc", "a\x00b"])
@pytest.mark.parametrize("field", ["base_dir", "build_dir"])
def test_folders_outside_the_repository_are_refused(tmp_path: Path, field: str, name: str) -> None:
    write_files(tmp_path, {"index.html": "x"})

    with pytest.raises(BuildFailed, match="should be a folder inside the repository"):
        plan(make_request(tmp_path, **{field: name}))


@pytest.mark.parametrize("field", ["base_dir", "build_dir"])
def test_links_out_of_the_repository_are_refused(tmp_path: Path, field: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "site").symlink_to(tmp_path)

    with pytest.raises(BuildFailed, match="is a link that leads out of the repository"):
        plan(make_request(source, **{field: "site"}))


def test_a_base_folder_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    write_files(tmp_path, {"web/a": "x", "api/b": "x"})

    with pytest.raises(BuildFailed, match="'site' is not a folder of the repository; there are: api, web"):
        plan(make_request(tmp_path, base_dir="site"))


def test_a_base_folder_with_a_name_that_no_folder_can_have_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, {"web/a": "x"})

    with pytest.raises(BuildFailed, match="is not a folder of the repository; there are: web"):
        plan(make_request(tmp_path, base_dir="a" * 300))


def test_files_that_lead_out_or_are_no_files_are_not_read(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_files(source, {"index.html": "x"})
    write_files(tmp_path, {"secret.json": {"scripts": {"build": "cat /etc/shadow"}}})
    (source / "package.json").symlink_to(tmp_path / "secret.json")
    os.mkfifo(source / "Procfile")

    found = plan(make_request(source, wanted="auto"))

    assert (found.kind, found.build) == ("static", "")


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000])
def test_a_package_json_that_is_none_is_a_sentence(tmp_path: Path, text: str) -> None:
    write_files(tmp_path, {"package.json": text})

    with pytest.raises(BuildFailed, match=r"package\.json"):
        plan(make_request(tmp_path))


def test_a_manifest_of_wrong_kinds_is_read_as_empty(tmp_path: Path) -> None:
    odd = {"scripts": [1], "dependencies": "x", "devDependencies": {"vite": 3}, "main": 7, "packageManager": {}}
    write_files(tmp_path, {"package.json": odd, "index.html": "x"})

    assert plan(make_request(tmp_path, wanted="auto")).kind == "static"


@pytest.mark.parametrize("text", ["tool = 5", "tool = ['poetry']", "[tool]\npoetry = 3"])
def test_a_pyproject_of_wrong_kinds_is_read_as_empty(tmp_path: Path, text: str) -> None:
    code = "import flask\napp = flask.Flask(__name__)"
    write_files(tmp_path, {"pyproject.toml": text, "api/requirements.txt": "flask", "api/app.py": code})

    assert plan(make_request(tmp_path, wanted="auto")).framework == "Flask"


@pytest.mark.parametrize(
    ("file", "start", "install"),
    [("main.py", "python main.py", "python -m venv"), ("server.js", "node server.js", "")],
)
def test_a_server_that_names_no_dependencies_is_an_app(tmp_path: Path, file: str, start: str, install: str) -> None:
    write_files(tmp_path, {file: "serve()"})

    found = plan(make_request(tmp_path, wanted="auto"))

    assert (found.kind, found.start, found.install) == ("container", start, install)


def test_the_only_app_below_the_base_folder_is_found_there(tmp_path: Path) -> None:
    files = {"README.md": "x", "backend/requirements.txt": "bottle", "backend/app.py": "import bottle"}
    write_files(tmp_path, files)

    found = plan(make_request(tmp_path, wanted="auto"))

    assert (found.base, found.start) == ("backend", "python app.py")
    assert found.notes == ("the only app is in backend, which is deployed; baseDir chooses another folder",)


def test_the_only_image_that_a_compose_file_builds_is_found_in_its_folder(tmp_path: Path) -> None:
    files = {
        "compose.yaml": "services:\n  web:\n    build: ./site\n  db:\n    image: postgres\n",
        "site/Dockerfile": "x",
    }
    request = make_request(write_files(tmp_path, files), wanted="auto")

    folder = detect.open_base(request)

    assert (folder.base, detect.decide(request, folder).plan.framework) == ("site", "Dockerfile")


def test_an_app_of_an_unsupported_language_below_the_base_folder_is_named(tmp_path: Path) -> None:
    source = write_files(tmp_path, {"README.md": "x", "complete/pom.xml": "x"})

    with pytest.raises(BuildFailed, match=r"the folder complete has an app that cannot be built: .* Java app"):
        plan(make_request(source, wanted="auto"))


def test_several_apps_below_the_base_folder_are_named(tmp_path: Path) -> None:
    code = "from fastapi import FastAPI\napp = FastAPI()"
    write_files(tmp_path, {"api/requirements.txt": "fastapi", "api/main.py": code, "web/package.json": {}})

    with pytest.raises(BuildFailed, match="there are several apps, in api, web: set baseDir"):
        plan(make_request(tmp_path, wanted="auto"))


@pytest.mark.parametrize("text", ["import {{ cookiecutter.name }}", "{%- if cookiecutter.uses_mail %}"])
def test_a_python_app_of_a_template_is_explained(tmp_path: Path, text: str) -> None:
    code = f"import flask\napp = flask.Flask(__name__)\n{text}"
    write_files(tmp_path, {"cookiecutter.json": "{}", "requirements.txt": "flask", "{{name}}/app.py": code})

    with pytest.raises(BuildFailed, match=r"\{\{name\}\}/app.py is no Python yet: run `cookiecutter`"):
        plan(make_request(tmp_path, wanted="auto"))


def test_an_app_of_a_template_that_is_valid_is_deployed(tmp_path: Path) -> None:
    page = {"scripts": {"build": "vite build"}, "dependencies": {"vite": "7"}}
    client = {"{{name}}/frontend/package.json": page, "{{name}}/backend/app.py": "import {{cookiecutter.name}}"}
    write_files(tmp_path / "client", {"cookiecutter.json": "{}", **client})
    code = "import flask\napp = flask.Flask(__name__)\nNAME = '{{cookiecutter.name}}'"
    server = {"{{name}}/app.py": code, "{{name}}/requirements.txt": "flask"}
    write_files(tmp_path / "server", {"cookiecutter.json": "{}", **server})

    assert plan(make_request(tmp_path / "client", wanted="auto")).framework == "Vite"
    assert plan(make_request(tmp_path / "server", wanted="auto")).framework == "Flask"


@pytest.mark.parametrize(
    "files",
    [
        {"mern/client/package.json": {}, "mern/server/package.json": {}},
        {"apps/one/requirements.txt": "dash", "apps/one/app.py": "import dash", "apps/two/requirements.txt": "dash"},
        {"server/package.json": {}, "server/index.js": "http.createServer().listen(1)", "client/package.json": {}},
        {"package.json": {"private": True}, "apps/web/package.json": {}, "apps/api/package.json": {}},
        {"docker-compose.yml": "", "package.json": {}, "server/package.json": {}, "client/package.json": {}},
        {
            "requirements.txt": "pytest\nflake8",
            "noxfile.py": "import nox",
            "one/requirements.txt": "flask",
            "one/main.py": "import flask\napp = flask.Flask(__name__)",
            "two/requirements.txt": "flask",
        },
    ],
    ids=[
        "two levels below",
        "Python below",
        "a server of its own package",
        "a root without scripts",
        "compose",
        "tests",
    ],
)
def test_several_apps_are_not_taken_for_one(tmp_path: Path, files: dict[str, Any]) -> None:
    write_files(tmp_path, files)

    with pytest.raises(BuildFailed, match=r"there are several apps, in .*, .*: set baseDir"):
        plan(make_request(tmp_path, wanted="auto"))


def test_a_procfile_may_enter_the_folder_of_the_app(tmp_path: Path) -> None:
    code = "from fastapi import FastAPI\napp = FastAPI()"
    files = {"backend/requirements.txt": "fastapi", "backend/main.py": code, "frontend/package.json": {}}
    write_files(tmp_path, {"Procfile": "web: cd backend && uvicorn main:app --port $PORT\n", **files})

    found = plan(make_request(tmp_path, wanted="auto"))

    assert (found.base, found.framework, found.start) == ("backend", "FastAPI", "uvicorn main:app --port $PORT")
    assert (found.install, found.server) == ("pip install -r requirements.txt", "uvicorn")


@pytest.mark.parametrize(
    ("files", "build"),
    [
        ({"config.example.json": "{}", "lib/db.js": "require('../config.json')"},
         "cp config.example.json config.json && npm run build"),
        ({"config/db.js.sample": "", "index.js": "const db = require('./config/db');"},
         "cp config/db.js.sample config/db.js && npm run build"),
        ({"config.example.json": "{}", "config.json": "{}", "index.js": "require('./config.json')"}, "npm run build"),
        ({"config.example.json": "{}", "index.js": "require('./settings')"}, "npm run build"),
        ({"keys.example.json": "{}", "index.js": "try {\n  keys = require('./keys.json');\n} catch (e) { }"},
         "npm run build"),
        ({"keys.template.json": "{}", "scripts/fill.py": "if os.path.isfile('keys.json'): fill(open('keys.json'))"},
         "npm run build"),
    ],
)  # fmt: skip
def test_an_example_takes_the_place_of_a_missing_file_that_the_code_reads(
    tmp_path: Path, files: dict[str, str], build: str
) -> None:
    scripts = {"build": "tsc", "start": "node index.js"}
    write_files(tmp_path, {"package.json": {"scripts": scripts, "dependencies": {"koa": "2"}}, **files})

    assert plan(make_request(tmp_path, wanted="auto")).build == build


def test_an_example_of_a_python_module_is_copied_too(tmp_path: Path) -> None:
    code = "from flask import Flask\nimport settings\napp = Flask(__name__)"
    write_files(tmp_path, {"requirements.txt": "flask", "app.py": code, "settings.py.example": "DEBUG = False"})

    found = plan(make_request(tmp_path, wanted="auto"))

    assert found.build == "cp settings.py.example settings.py"
    assert any("settings.py.example is used in its place" in note for note in found.notes)


def test_requirements_in_utf_16_are_read(tmp_path: Path) -> None:
    write_files(tmp_path, {"app.py": "from flask import Flask\napp = Flask(__name__)"})
    (tmp_path / "requirements.txt").write_bytes("Flask==3.0.0\r\ngunicorn==22.0.0\r\n".encode("utf-16"))

    found = plan(make_request(tmp_path, wanted="auto"))

    assert (found.framework, found.server) == ("Flask", "")


def test_a_program_of_no_known_language_is_started_by_its_command(tmp_path: Path) -> None:
    write_files(tmp_path, {"server": "", "Cargo.toml": ""})

    found = plan(make_request(tmp_path, wanted="auto", start_cmd="./server"))

    assert (found.kind, found.language, found.start, found.install) == ("container", "", "./server", "")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("main.py", "Flask(" + "\ndef create_app(" * 16_000),
        ("main.py", "\n" * 250_000),
        ("next.config.js", "/*" * 500_000),
        ("mkdocs.yml", "\n" * 1_000_000),
        ("Procfile", "web: x" + " " * 1_000_000 + "x"),
    ],
    ids=["factories", "lines", "comments", "settings", "spaces"],
)
def test_hostile_texts_are_read_in_linear_time(tmp_path: Path, name: str, text: str) -> None:
    package = {"scripts": {"start": ";A=" * 300_000}, "dependencies": {"next": "1"}}
    write_files(tmp_path, {name: text, "requirements.txt": "flask\n-r requirements.txt\n", "package.json": package})
    request = make_request(tmp_path, wanted="auto")

    decision = detect.decide(request, detect.open_base(request))

    assert detect.explain(decision, detect.open_base(request))


def test_a_broken_manifest_of_another_language_does_not_fail_a_project(tmp_path: Path) -> None:
    write_files(tmp_path, {"package.json": package("next"), "pyproject.toml": "[project"})

    assert plan(make_request(tmp_path, wanted="auto")).framework == "Next.js"
