"""Shell commands that start an app, and that they do."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.build_support import write_files

from moorage.runtime.builds.detection import scripts
from moorage.runtime.builds.detection.reading import Folder


def resolve(folder: Path, command: str, package: Any) -> scripts.Script:
    write_files(folder, {"package.json": package})
    return scripts.resolve(command, Folder(folder, ""), "/work")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("node server.js", "exec node server.js"),
        ("NODE_ENV=test A='x y' node a.js", "NODE_ENV=test A='x y' exec node a.js"),
        ("gunicorn a:b --bind ${HOST:-0.0.0.0}:$PORT", "exec gunicorn a:b --bind ${HOST:-0.0.0.0}:$PORT"),
        ("node 'a;b.js'", "exec node 'a;b.js'"),
        ("sh -c 'a && b'", "exec sh -c 'a && b'"),
        ("cd server && node a.js", "cd server && exec node a.js"),
        ("python manage.py migrate; gunicorn x", "python manage.py migrate; exec gunicorn x"),
    ],
)
def test_the_last_command_takes_the_place_of_its_shell(command: str, told: str) -> None:
    assert scripts.replacing(command) == told


@pytest.mark.parametrize(
    "command",
    [
        "node a.js | cat",
        "node a.js &",
        "node a.js > log",
        "node a.js || node b.js",
        "(node a.js)",
        "{ node a.js; }",
        "if true; then node a.js; fi",
        "for x in 1 2; do node $x; done",
        "case x in x) node a;; esac",
        "cd x",
        "exec node a.js",
        "$COMMAND",
        "$(which node) a.js",
        "A=x\\ y node a.js",
        'node "a',
        'node "a && b',
        "A=1",
        "node a\nnode b",
    ],
)
def test_what_is_not_surely_a_program_is_left_to_the_shell(command: str) -> None:
    assert scripts.replacing(command) == command


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("A=1 B='2 3' env | grep -c '^[AB]='", "2\n"),
        ("A=1 B='2 3' printenv A B", "1\n2 3\n"),
        ("cd / && pwd", "/\n"),
        ("echo one; cd /; ls -d usr", "one\nusr\n"),
        ("if true; then echo yes; fi", "yes\n"),
        ("echo 'a && b'", "a && b\n"),
        ("false && echo no; echo yes", "yes\n"),
    ],
)
def test_commands_do_what_they_did(command: str, said: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", scripts.replacing(command)], capture_output=True, text=True, check=True, env={"PATH": "/bin"}
    )

    assert done.stdout == said


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("npm start", "start"),
        ("npm run serve", "serve"),
        ("npm run-script serve", "serve"),
        ("yarn start", "start"),
        ("yarn serve", "serve"),
        ("yarn run build:all", "build:all"),
        ("pnpm start", "start"),
        ("  npm   run  serve ", "serve"),
        ("bun run serve", "serve"),
    ],
)
def test_a_script_of_the_package_is_run_without_its_manager(tmp_path: Path, command: str, name: str) -> None:
    package = {"name": "harbor", "version": "1.2.3", "scripts": {name: "node it.js"}}

    found = resolve(tmp_path, command, package)

    assert found.command == "exec node it.js"
    assert found.env == {
        "npm_lifecycle_event": name,
        "npm_package_json": "/work/package.json",
        "npm_package_name": "harbor",
        "npm_package_version": "1.2.3",
        "INIT_CWD": "/work",
    }


@pytest.mark.parametrize(
    "command",
    [
        "npm serve",
        "npm ci",
        "npm run missing",
        "npm start -- --port 1",
        "npx serve",
        "npm --prefix x start",
        "bun serve",
    ],
)
def test_what_is_no_script_is_left_to_the_manager(tmp_path: Path, command: str) -> None:
    found = resolve(tmp_path, command, {"scripts": {"start": "a", "serve": "b"}})

    assert (found.command, found.env) == (f"exec {command}", {})


def test_a_script_that_runs_another_is_followed_and_what_comes_before_comes_before(tmp_path: Path) -> None:
    package = {
        "scripts": {
            "prestart": "echo 1 $npm_lifecycle_event",
            "start": "npm run serve",
            "preserve": "echo \"2 $npm_lifecycle_event\" 'x'; echo 3",
            "serve": "echo 4 $npm_lifecycle_event; sh -c 'exit 5'",
        }
    }

    found = resolve(tmp_path, "npm start", package)

    done = subprocess.run(
        ["/bin/sh", "-c", found.command], env={**found.env, "PATH": "/bin"}, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["1 prestart", "2 preserve x", "3", "4 serve"]
    assert done.returncode == 5


def test_where_the_script_before_fails_the_app_is_not_started(tmp_path: Path) -> None:
    found = resolve(tmp_path, "npm start", {"scripts": {"prestart": "exit 3", "start": "echo started"}})

    done = subprocess.run(["/bin/sh", "-c", found.command], env=found.env, capture_output=True, check=False)

    assert (done.returncode, done.stdout) == (3, b"")


def test_yarn_of_today_runs_nothing_before(tmp_path: Path) -> None:
    package = {"packageManager": "yarn@4.2.0", "scripts": {"prestart": "a", "start": "b"}}

    assert resolve(tmp_path, "yarn start", package).command == "exec b"


def test_npm_starts_a_server_where_no_script_says_how(tmp_path: Path) -> None:
    write_files(tmp_path, {"server.js": ""})

    assert resolve(tmp_path, "npm start", {}).command == "exec node server.js"


@pytest.mark.parametrize(
    "package",
    [
        "{",
        "[]",
        {"scripts": {"start": "a\x00b"}},
        {"scripts": {"start": "\ud800"}},
        {"scripts": {"start": ""}},
        {"scripts": 1},
    ],
)
def test_a_manifest_that_cannot_be_used_is_left_to_the_manager(tmp_path: Path, package: Any) -> None:
    found = resolve(tmp_path, "npm start", package)

    assert (found.command, found.env) == ("exec npm start", {})


def test_scripts_that_run_themselves_come_to_an_end(tmp_path: Path) -> None:
    found = resolve(tmp_path, "npm start", {"scripts": {"start": "npm start"}})

    assert found.command == "exec npm start"


@pytest.mark.parametrize(
    ("before", "is_run"),
    [
        ("npm run build", False),
        ("npm run rebuild", False),
        ("npm run clean", True),
        ("npm run build && node seed.js", True),
    ],
)
def test_a_script_before_the_start_that_repeats_the_build_is_left_out(
    tmp_path: Path, before: str, is_run: bool
) -> None:
    rebuild = {"rebuild": "npm run clean && npm run build", "build": "tsc", "clean": "rm -rf dist"}
    write_files(tmp_path, {"package.json": {"scripts": {**rebuild, "prestart": before, "start": "node ."}}})

    found = scripts.resolve("npm start", Folder(tmp_path, ""), "/work", "npm run build")
    unbuilt = scripts.resolve("npm start", Folder(tmp_path, ""), "/work", "make")

    assert (before in found.command, found.command == "exec node .") == (is_run, not is_run)
    assert before in unbuilt.command


@pytest.mark.parametrize("first", ["npm run build", "tsc", "npm run clean && npm run build", "npm run rebuild"])
def test_a_first_part_of_the_start_that_repeats_the_build_is_left_out(tmp_path: Path, first: str) -> None:
    rebuild = {"rebuild": "npm run clean && npm run build", "build": "tsc", "clean": "rm -rf dist"}
    write_files(tmp_path, {"package.json": {"scripts": {**rebuild, "start": f"{first} && node ."}}})

    found = scripts.resolve("npm start", Folder(tmp_path, ""), "/work", "npm run build")
    unbuilt = scripts.resolve("npm start", Folder(tmp_path, ""), "/work", "make")

    assert found.command == "exec node ."
    assert unbuilt.command == f"{first} && exec node ."


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("pm2 start src/index.js -i max", "exec pm2-runtime start src/index.js -i max"),
        ("cross-env NODE_ENV=production pm2 start a.js", "exec cross-env NODE_ENV=production pm2-runtime start a.js"),
        ("pm2 start ecosystem.config.json --no-daemon", "exec pm2 start ecosystem.config.json --no-daemon"),
    ],
)
def test_an_app_of_pm2_stays_in_the_foreground(tmp_path: Path, text: str, command: str) -> None:
    assert resolve(tmp_path, "npm start", {"scripts": {"start": text}}).command == command


def test_files_of_variables_that_do_not_exist_are_left_out(tmp_path: Path) -> None:
    (tmp_path / ".env.production").write_text("A=1\n")
    start = "node --env-file=.env --env-file=.env.production --env-file .env.local src/index.js"

    by_script = resolve(tmp_path, "npm start", {"scripts": {"start": start}})
    by_command = resolve(tmp_path, "tsx --env-file=.env server.ts", {})

    assert by_script.command == "exec node --env-file=.env.production src/index.js"
    assert by_command.command == "exec tsx server.ts"
