"""Complete builds in the real sandbox with the real tools."""

from __future__ import annotations

import asyncio
import os
import stat
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.build_support import Log, make_app_request, make_request, write_files
from tests.runtime.sandbox.sandbox_support import outside_address, serving
from tests.runtime.workers.invoker_support import pids

from moorage.runtime.builds import environment
from moorage.runtime.builds.builder import Builder
from moorage.runtime.builds.node import versions
from moorage.runtime.builds.ports import BuildFailed, Built
from moorage.runtime.workers import toolchain
from moorage.settings import Settings

pytestmark = pytest.mark.anyio


class Site:
    """A repository with a build command of its own, and the builder."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.builder = Builder(settings, is_sandboxed=True)
        self.folder = folder
        self.log = Log()
        self._count = 0

    async def build(self, command: str, files: dict[str, Any] | None = None, **changed: Any) -> Built:
        """Check out a repository afresh and build it with a command."""
        self._count += 1
        source = write_files(self.folder / f"source-{self._count}", {"README": "x", **(files or {})})
        return await self.builder.build(make_request(source, build_cmd=command, **changed), self.log)

    async def failure(self, command: str, files: dict[str, Any] | None = None, **changed: Any) -> str:
        with pytest.raises(BuildFailed) as failed:
            await self.build(command, files, **changed)
        return str(failed.value)

    @property
    def printed(self) -> str:
        return self.log.text("stdout", "stderr")


@pytest.fixture
def site(settings: Settings, tmp_path: Path) -> Site:
    return Site(settings, tmp_path)


def running(text: str) -> list[int]:
    return [pid for pid in pids() if text in command_of(pid)]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


# Results.


async def test_a_plain_site_is_published_as_it_is_and_nothing_is_run(settings: Settings, tmp_path: Path) -> None:
    source = write_files(tmp_path / "source", {"index.html": "home", ".env": "SECRET=1", "a/b.css": "x"})
    log = Log()

    built = await Builder(settings, is_sandboxed=True).build(make_request(source), log)

    assert (built.folder, built.plan.kind, built.plan.build) == (source, "static", "")
    assert sorted(path.name for path in source.iterdir()) == ["a", "index.html"]
    assert log.system == [
        "detected: static site, plain files",
        "publish:  the folder itself",
        "there is no package.json: nothing is built",
        "left out: .env",
        "collected 2 files",
    ]
    assert not settings.folder("build-cache").exists()


async def test_a_command_runs_in_the_base_folder_and_its_output_is_taken(site: Site) -> None:
    command = "pwd; echo oops >&2; mkdir dist; cp page dist/index.html; echo $GREETING > dist/said"

    built = await site.build(command, {"web/page": "home"}, base_dir="./web/", env={"GREETING": "hello"})

    assert built.folder.name == "dist"
    assert ((built.folder / "index.html").read_text(), (built.folder / "said").read_text()) == ("home", "hello\n")
    assert owners(built.folder.parents[1]) == {os.getuid()}
    assert (site.log.text("stdout"), site.log.text("stderr")) == ("/work/web\n", "oops\n")
    assert f"$ {command}" in site.log.system


async def test_installers_trust_the_certificates_of_the_system(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle.crt"
    bundle.write_text("a private authority")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setattr(toolchain, "SYSTEM_AUTHORITIES", (str(tmp_path / "missing.crt"), str(bundle)))
    names = ("SSL_CERT_FILE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO")

    shown = "; ".join(f"cat ${name}; echo" for name in names)
    await site.build(f"mkdir dist; touch dist/index.html; {shown}")

    assert site.log.text("stdout").splitlines() == ["a private authority"] * len(names)


async def test_npm_ci_installs_tools_for_development_and_the_build_script_finds_them(site: Site) -> None:
    tool = """#!/usr/bin/env node
const fs = require('fs')
fs.mkdirSync('dist')
fs.writeFileSync('dist/index.html', [process.env.NODE_ENV, process.env.CI, process.env.TOKEN].join(' '))
"""
    package = {
        "name": "site",
        "version": "1.0.0",
        "scripts": {"build": "npm install --offline && make-site"},  # some build tools install packages
        "devDependencies": {"tool": "file:tool"},
    }
    locked = {"": package, "tool": {"version": "1.0.0", "dev": True, "bin": {"make-site": "cli.js"}},
              "node_modules/tool": {"resolved": "tool", "link": True}}  # fmt: skip
    files = {
        "package.json": package,
        "package-lock.json": {"name": "site", "version": "1.0.0", "lockfileVersion": 3, "packages": locked},
        "tool/package.json": {"name": "tool", "version": "1.0.0", "bin": {"make-site": "cli.js"}},
        "tool/cli.js": tool,
    }
    env = {"NODE_ENV": "production", "TOKEN": "t0ken"}

    built = await site.build("npm run build", files, env=env, is_default_build=True)

    assert (built.plan.install, built.plan.build) == ("npm ci", "npm run build")
    assert (built.folder / "index.html").read_text() == "production true t0ken"


async def test_programs_of_test_tools_are_not_downloaded(site: Site) -> None:
    tool = "if (!process.env.MONGOMS_DISABLE_POSTINSTALL) throw new Error('getaddrinfo ENOTFOUND mongodb.example.org')"
    package = {"scripts": {"postinstall": "node download.js", "build": "mkdir dist && touch dist/index.html"}}

    await site.build("npm run build", {"package.json": package, "download.js": tool}, is_default_build=True)

    assert "--ignore-scripts" not in site.log.system


async def test_a_lock_file_that_is_older_than_package_json_does_not_stop_an_installation(site: Site) -> None:
    package = {"name": "site", "version": "1.0.0", "scripts": {"build": "make-site"}}
    files = {
        "package.json": {**package, "dependencies": {"tool": "file:tool"}},
        "package-lock.json": {"name": "site", "version": "1.0.0", "lockfileVersion": 3, "packages": {"": package}},
        "tool/package.json": {"name": "tool", "version": "1.0.0", "bin": {"make-site": "cli.js"}},
        "tool/cli.js": "#!/usr/bin/env node\nrequire('fs').writeFileSync('index.html', 'made')\n",
    }

    built = await site.build("npm run build", files, is_default_build=True)

    assert (built.folder / "index.html").read_text() == "made"
    commands = [line for line in site.log.system if line.startswith(("$", "note:"))]
    assert commands == [
        "$ npm ci",
        "note: package-lock.json does not match package.json: some versions are chosen anew; run `npm install` and "
        "commit package-lock.json to fix them",
        "$ npm install",
        "$ npm run build",
    ]


async def test_an_install_script_that_cannot_download_does_not_stop_an_installation(site: Site) -> None:
    scripts = {
        "postinstall": "echo getaddrinfo ENOTFOUND files.example.test >&2; exit 1",
        "build": "echo made > index.html",
    }
    files = {"package.json": {"name": "site", "version": "1.0.0", "scripts": scripts}}

    built = await site.build("npm run build", files, is_default_build=True)

    assert (built.folder / "index.html").read_text() == "made\n"
    assert "$ npm install --ignore-scripts" in site.log.system


@pytest.mark.parametrize(("script", "is_given"), [("cd pages && node build.js", True), ("node other.js", False)])
async def test_an_old_bundler_of_pages_that_a_script_builds_gets_old_digests(
    site: Site, script: str, is_given: bool
) -> None:
    write = "require('fs').writeFileSync('/work/index.html', String(process.env.NODE_OPTIONS))"
    files = {
        "package.json": {"scripts": {"build": script}},
        "pages/package.json": {"devDependencies": {"webpack": "^4.46.0"}},
        "broken/package.json": "{",
        "pages/build.js": write,
        "other.js": write,
    }

    built = await site.build("npm run build", files, is_default_build=True)

    assert ("--openssl-legacy-provider" in (built.folder / "index.html").read_text()) is is_given


@pytest.mark.parametrize(("fetched_version", "is_given"), [("16.20.2", False), ("18.20.8", True)])
async def test_an_old_bundler_gets_old_digests_unless_an_old_node_was_fetched_for_it(
    site: Site, monkeypatch: pytest.MonkeyPatch, fetched_version: str, is_given: bool
) -> None:
    files = {
        "package.json": {"devDependencies": {"webpack": "file:webpack-4"}, "scripts": {"build": "node build.js"}},
        "webpack-4/package.json": {"name": "webpack", "version": "4.0.0"},
        "build.js": "require('fs').writeFileSync('index.html', process.env.NODE_OPTIONS)",
    }

    async def fetched(*_: object, **__: object) -> str:
        return fetched_version

    new = await site.build("npm run build", files, is_default_build=True)
    options = (new.folder / "index.html").read_text()
    monkeypatch.setattr(versions, "choose", fetched)
    old = await site.build("npm run build", files, is_default_build=True)

    assert "--openssl-legacy-provider" in options
    assert ("--openssl-legacy-provider" in (old.folder / "index.html").read_text()) is is_given


async def test_pip_fills_an_environment_that_holds_no_links(settings: Settings, tmp_path: Path) -> None:
    backend = textwrap.dedent("""
        import zipfile
        def build_wheel(folder, config_settings=None, metadata_directory=None):
            info = "made-1.0.dist-info"
            with zipfile.ZipFile(f"{folder}/made-1.0-py3-none-any.whl", "w") as wheel:
                wheel.writestr("made.py", "said = 'made from source'")
                wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: made\\nVersion: 1.0\\n")
                wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
                wheel.writestr(f"{info}/RECORD", "")
            return "made-1.0-py3-none-any.whl"
    """)
    files = {
        "requirements.txt": "./made\n",
        "main.py": "import made",
        "made/pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n",
        "made/backend.py": backend,
    }
    source = write_files(tmp_path / "source", files)
    command = ".venv/bin/python -c 'import made, sys; print(made.said, sys.prefix)'"
    log = Log()

    built = await Builder(settings, is_sandboxed=True).build(make_app_request(source, build_cmd=command), log)

    assert (built.plan.kind, built.plan.language, built.plan.start) == ("container", "python", "python main.py")
    assert "made from source /work/.venv\n" in log.text("stdout")
    assert not [path for path in source.rglob("*") if path.is_symlink()]
    assert next(source.glob(".venv/lib/python*/site-packages/made.py")).is_file()


@pytest.mark.deep
async def test_static_files_that_cannot_be_collected_are_a_line_in_the_log(settings: Settings, tmp_path: Path) -> None:
    never = "; python_version < '3'"
    files = {
        "requirements.txt": f"django{never}\ngunicorn{never}\n",
        "manage.py": "import os\nos.environ.setdefault('DJANGO_SETTINGS_MODULE', 'site_a.settings')\nexit(3)\n",
        "site_a/wsgi.py": "",
        "site_a/settings.py": "STATIC_ROOT = 'x'\n",
    }
    source, log = write_files(tmp_path / "source", files), Log()

    built = await Builder(settings, is_sandboxed=True).build(make_app_request(source), log)

    told = "python manage.py collectstatic --noinput failed: exit code 3; the app is deployed without"
    assert told in log.system
    assert f"start:    {built.plan.start}" in log.system
    assert built.plan.start.startswith("gunicorn site_a.wsgi --bind ${HOST:-0.0.0.0}:${PORT:-8080} ")


# Failures.


async def test_a_command_that_fails_is_told_by_its_code(site: Site) -> None:
    assert await site.failure("echo no; exit 7") == "the build command `echo no; exit 7` failed: exit code 7"
    assert site.printed == "no\n"


async def test_an_output_folder_that_is_missing_is_told_with_those_that_are_there(site: Site) -> None:
    told = await site.failure("mkdir elsewhere", build_dir="site")

    assert told == "after the build there is no folder site (buildDir); there are: elsewhere"


async def test_where_the_user_named_no_folder_the_one_that_was_made_is_taken(site: Site) -> None:
    built = await site.build("mkdir build; touch build/index.html", {"public/x": "1"})

    assert (built.folder.name, built.plan.output_dir) == ("build", "build")
    assert "there is no folder dist; the build has made build, which is published" in site.log.system


async def test_an_output_without_a_file_is_a_failure(site: Site) -> None:
    assert await site.failure("mkdir -p dist/a/b") == "there is no file in dist to publish"


async def test_an_output_that_leads_out_is_a_failure(site: Site, tmp_path: Path) -> None:
    write_files(tmp_path / "secret", {"file": "secret"})

    folder = await site.failure(f"ln -s {tmp_path / 'secret'} dist")
    inner = await site.failure(f"mkdir dist; ln -s {tmp_path / 'secret'} dist/leak")

    assert folder == "buildDir 'dist' is a link that leads out of the repository"
    assert inner == "'leak' is a link that leads out of the published folder"


@pytest.mark.settings(disk_reserve_mb=1 << 40)
async def test_no_build_starts_on_a_disk_that_is_nearly_full(site: Site) -> None:
    assert (await site.failure("echo begun")).startswith("the disk of this machine is nearly full")
    assert site.printed == ""


@pytest.mark.parametrize("name", ["A=B", "", "A\x00B"])
async def test_a_variable_that_cannot_be_set_is_refused(site: Site, name: str) -> None:
    assert "cannot be set" in await site.failure("true", env={name: "x"})


# Limits.


async def test_a_build_has_its_time_in_all(site: Site, settings: Settings) -> None:
    short = settings.model_copy(update={"build_minutes": 1 / 100})
    site.builder = Builder(short, is_sandboxed=True)

    told = await site.failure("sleep 3579.5 & sleep 3579.5")

    assert "` failed: the build took longer than" in told
    assert running("3579.5") == []


@pytest.mark.settings(build_memory_mb=160)
async def test_a_build_that_runs_out_of_memory_is_told_so(site: Site) -> None:
    hog = (
        "const held = []; for (let i = 0; i < 300; i++) held.push(Buffer.alloc(1 << 20, 1)); setTimeout(() => 0, 60000)"
    )

    told = await site.failure(f'node -e "{hog}"')

    assert told.endswith("it ran out of memory (160 MB): let it do less at once, or raise MOORAGE_BUILD_MEMORY_MB")


async def test_a_build_that_prints_without_end_is_ended(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "MAX_OUTPUT_BYTES", 100_000)

    told = await site.failure("while :; do echo 0123456789012345678901234567890; done")

    assert told.endswith("` failed: it printed too much")
    assert 30_000 < len(site.printed) <= 100_000


@pytest.mark.settings(builds=1)
async def test_a_build_that_has_to_wait_says_so(site: Site, tmp_path: Path) -> None:
    first = asyncio.create_task(
        site.build("echo begun; while [ ! -e go-on ]; do sleep 0.02; done; mkdir dist; touch dist/a")
    )
    while "begun" not in site.printed:
        await asyncio.sleep(0.01)
    waiting = Site(site.builder._settings, tmp_path / "other")
    waiting.builder = site.builder
    second = asyncio.create_task(waiting.build("mkdir dist; touch dist/b", cache="project-2"))
    while not any("waiting" in line for line in waiting.log.system):
        await asyncio.sleep(0.01)
    (tmp_path / "source-1" / "go-on").touch()

    assert ((await first).folder / "a").exists()
    assert ((await second).folder / "b").exists()


async def test_a_cancelled_build_leaves_nothing_running_and_gives_its_folders_back(site: Site, tmp_path: Path) -> None:
    building = asyncio.create_task(site.build("touch made; echo begun; (setsid sleep 3571.5 &) ; sleep 3571.5"))
    while "begun" not in site.printed:
        await asyncio.sleep(0.01)

    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await building

    assert running("3571.5") == []
    assert owners(tmp_path) == {os.getuid()}
    assert sorted(path.name for path in (tmp_path / "data" / "build-cache").iterdir()) == ["project-1"]


# Caches, and their isolation.


async def test_caches_are_kept_for_the_next_build_of_the_project_alone(site: Site) -> None:
    look = "cat $PIP_CACHE_DIR/x node_modules/.cache/y 2>/dev/null"
    keep = "mkdir -p $PIP_CACHE_DIR node_modules/.cache; echo pip > $PIP_CACHE_DIR/x; echo tool > node_modules/.cache/y"
    command = f"{look}; {keep}; mkdir dist; touch dist/z"

    seen = []
    for cache, use in (("project-1", True), ("project-1", True), ("project-2", True), ("project-1", False)):
        site.log = Log()
        await site.build(command, cache=cache, use_caches=use)
        seen.append(site.printed)

    assert seen == ["", "pip\ntool\n", "", ""]
    assert owners(site.folder / "data") == {os.getuid()}


async def test_secrets_of_one_build_are_nowhere_in_the_next(site: Site) -> None:
    leave = "env > /tmp/note; env > $HOME/note; mkdir dist; touch dist/a"
    look = "env; cat /tmp/* $HOME/* /proc/*/environ /cache/* /cache/*/* /*/note 2>/dev/null; mkdir dist; touch dist/a"

    await site.build(leave, env={"TOKEN": "s3cret-of-one"}, cache="project-1")
    await site.build(look, env={"OTHER": "x"}, cache="project-2")

    assert "OTHER=x" in site.printed
    assert "s3cret-of-one" not in site.printed


async def test_the_environment_of_the_platform_is_not_there(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_MASTER_KEY", "k3y-of-the-platform")

    await site.build("env; cat /proc/*/environ; mkdir dist; touch dist/a")

    assert "k3y-of-the-platform" not in site.printed
    assert "CI=true\n" in site.printed


async def test_warnings_that_are_errors_in_ci_do_not_fail_a_build(site: Site) -> None:
    told = "echo Treating warnings as errors because process.env.CI = true."

    await site.build(f'{told}; test "$CI" = false && mkdir dist && touch dist/a')

    assert site.printed.count("Treating warnings") == 2


async def test_the_platform_s_files_and_ports_cannot_be_reached(site: Site, tmp_path: Path) -> None:
    write_files(tmp_path / "data", {"moorage.db": "the store"})
    address = outside_address()
    with serving(address) as platform:
        tries = "; ".join(
            f"require('net').connect({platform.port}, '{host}')"
            f".on('connect', () => console.log('reached')).on('error', e => console.log('{host}', e.code))"
            for host in ("127.0.0.1", address)
        )
        command = f'cat {tmp_path}/data/moorage.db; ls {tmp_path}; node -e "{tries}"; mkdir dist; touch dist/a'

        await site.build(command)

    assert platform.visits == []
    assert "127.0.0.1 ECONNREFUSED\n" in site.printed
    assert f"{address} EACCES\n" in site.printed
    assert "the store" not in site.printed
    assert site.printed.count("No such file or directory") == 2


async def test_a_build_runs_as_a_user_of_its_own_where_that_is_possible(site: Site) -> None:
    await site.build("id -u; mkdir dist; touch dist/a")

    uid = int(site.log.text("stdout"))
    assert uid == (191_000 if os.getuid() == 0 else 0)


async def test_hostile_leftovers_are_no_failure_of_ours(site: Site) -> None:
    deep = "i=0; while [ $i -lt 400 ]; do mkdir d && cd d; i=$((i+1)); done; cd /work"
    command = (
        f"mkfifo pipe; mkdir dist shut; touch dist/a; cp /bin/true dist/run; chmod 4755 dist/run; chmod 0 shut; {deep}"
    )

    built = await site.build(command)

    assert stat.S_IMODE((built.folder / "run").stat().st_mode) == 0o755
    assert sorted(path.name for path in built.folder.iterdir()) == ["a", "run"]


# Without a sandbox.


async def test_without_a_sandbox_the_same_commands_run_in_a_clean_environment(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOORAGE_MASTER_KEY", "k3y-of-the-platform")
    source = write_files(tmp_path / "source", {"README": "x"})
    command = "pwd; env; node --version; npm --version; setsid sleep 3577.5 & mkdir dist; touch dist/a"
    log = Log()

    built = await Builder(settings, is_sandboxed=False).build(make_request(source, build_cmd=command), log)

    assert log.text("stdout").splitlines()[0] == str(source)
    assert "k3y-of-the-platform" not in log.text()
    assert "CI=true\n" in log.text()
    assert (built.folder / "a").exists()
    assert running("3577.5") == []
