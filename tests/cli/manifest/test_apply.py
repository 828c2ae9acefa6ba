"""moorage.toml on a running platform: every kind of resource is made once, changed and removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.importing.import_cases import CASES
from tests.cli.live import Shell
from tests.e2e.projects_support import new_name, page
from tests.products.functions.support import zip_of
from tests.products.repositories.support import Checkout

from moorage.cli import manifest
from moorage.cli.manifest import Change, writing
from moorage.client import NotFound
from moorage.client.models import SecretUpsert

pytestmark = pytest.mark.group("cli-live")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "folder"
    path.mkdir()
    return path


@pytest.fixture
def project(shell: Shell) -> str:
    """A small site on the platform."""
    name = new_name("toml")
    shell.sites.publish(name, {"index.html": page("hello")})
    return name


def write(folder: Path, text: str) -> None:
    (folder / "moorage.toml").write_text(text)


def differences(shell: Shell, folder: Path) -> list[Change]:
    wanted = manifest.load(folder)
    assert wanted is not None
    return [each for each in manifest.plan(shell.client, wanted) if manifest.is_difference(each)]


def apply_once(shell: Shell, folder: Path, *options: str) -> str:
    """Apply a file, check that nothing is left to do, and return the output."""
    applied = shell("apply", folder, *options)
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert differences(shell, folder) == []
    return applied.stdout + applied.stderr


def test_settings_of_a_project_are_applied_once(shell: Shell, folder: Path, project: str) -> None:
    write(
        folder,
        f"""
        [project]
        name = "{project}"
        build-cmd = "make site"
        build-dir = "out"
        enable-analytics = true
        deploy-guard = true
        [project.env]
        COLOUR = "blue"
        """,
    )

    shown = apply_once(shell, folder)
    again = shell.ok("apply", folder)

    detail = shell.client.projects.read(project)
    assert f"~ project {project}" in shown
    assert again == "no difference between moorage.toml and the platform\n"
    assert (detail.build_cmd, detail.build_dir, detail.enable_analytics) == ("make site", "out", True)
    assert {each.name: each.value for each in detail.env} == {"COLOUR": "blue"}


def test_a_variable_of_the_platform_stays_until_prune(shell: Shell, folder: Path, project: str) -> None:
    write(folder, f'[project]\nname = "{project}"\nenv = {{ A = "1", B = "2" }}\n')
    apply_once(shell, folder)
    write(folder, f'[project]\nname = "{project}"\nenv = {{ A = "3" }}\n')

    shell.ok("apply", folder)
    kept = {each.name: each.value for each in shell.client.projects.read(project).env}
    apply_once(shell, folder, "--prune", "--yes")

    assert kept == {"A": "3", "B": "2"}
    assert {each.name: each.value for each in shell.client.projects.read(project).env} == {"A": "3"}


def test_domains_and_rules_are_added_kept_and_pruned(shell: Shell, folder: Path, project: str) -> None:
    rules = f"""
        [project]
        name = "{project}"
        [[domains]]
        domain = "www.{project}.example.com"
        [[domains]]
        domain = "CAFÉ.{project}.example.com"
        [[redirects]]
        source = "/old"
        destination = "/new"
        status = 301
        [[redirects]]
        source = "/docs/*"
        destination = "/help/*"
        status = 302
        [[headers]]
        source = "/*"
        name = "X-Frame-Options"
        value = "DENY"
        """
    write(folder, rules)
    apply_once(shell, folder)
    write(folder, rules.replace('"/old"', '"/older"').replace("www.", "shop."))

    shell.ok("apply", folder)
    kept = [each.source for each in shell.client.rules.list_redirects(project)]
    apply_once(shell, folder, "--prune", "--yes")

    assert kept == ["/older", "/docs/*", "/old"]
    assert [each.source for each in shell.client.rules.list_redirects(project)] == ["/older", "/docs/*"]
    assert {each.domain for each in shell.client.domains.list(project)} == {
        f"xn--caf-dma.{project}.example.com",
        f"shop.{project}.example.com",
    }
    assert [each.value for each in shell.client.rules.list_header(project)] == ["DENY"]


def test_the_order_of_redirects_is_applied(shell: Shell, folder: Path, project: str) -> None:
    rules = ['[[redirects]]\nsource = "/a"\ndestination = "/b"\nstatus = 302\n',
             '[[redirects]]\nsource = "/*"\ndestination = "https://example.com/*"\nstatus = 302\n']  # fmt: skip
    write(folder, f'[project]\nname = "{project}"\n' + "".join(reversed(rules)))
    apply_once(shell, folder)
    write(folder, f'[project]\nname = "{project}"\n' + "".join(rules))

    apply_once(shell, folder)

    assert [each.source for each in shell.client.rules.list_redirects(project)] == ["/a", "/*"]


@pytest.mark.deep
def test_monitors_and_alerts_are_applied_changed_and_pruned(shell: Shell, folder: Path, project: str) -> None:
    text = f"""
        [project]
        name = "{project}"
        [[monitors]]
        name = "{project}-home"
        url = "/index.html"
        interval = 300
        status-codes = ["200", "301"]
        headers = {{ Accept = "text/html" }}
        [[monitors.alerts]]
        metric = "status"
        condition = "lt"
        threshold = 1
        notifications = {{ email = false, slack = true }}
        slack-webhook = {{ env = "SLACK" }}
        [[monitors.alerts]]
        metric = "response_time"
        condition = "gt"
        threshold = 900
        severity = "critical"
        """
    write(folder, text)
    refused = shell("apply", folder)
    shell.ok("apply", folder, SLACK="https://hooks.example.com/secret-part")
    assert differences(shell, folder) == []
    write(folder, text.replace("interval = 300", "interval = 600").replace("threshold = 900", "threshold = 1500"))
    apply_once(shell, folder)
    write(folder, text.partition('[[monitors.alerts]]\n        metric = "response_time"')[0])
    shell.ok("apply", folder)
    (monitor,) = [each for each in shell.client.monitors.list() if each.name == f"{project}-home"]
    kept = shell.client.monitors.list_alerts(monitor.id)
    apply_once(shell, folder, "--prune", "--yes")
    left = shell.client.monitors.list_alerts(monitor.id)
    write(folder, f'monitors = []\n[project]\nname = "{project}"\n')
    apply_once(shell, folder, "--prune", "--yes")

    assert refused.returncode == 1
    assert "needs the variable SLACK" in refused.stderr
    assert monitor.url is not None
    assert monitor.url.endswith("/index.html")
    assert monitor.project_id == shell.client.projects.read(project).id
    assert (monitor.interval, len(kept), [each.metric for each in left]) == (300, 2, ["status"])
    assert (left[0].has_slack_webhook, kept[1].threshold) == (True, 1500)
    assert [each for each in shell.client.monitors.list() if each.name == f"{project}-home"] == []


@pytest.mark.deep
def test_schedules_are_applied_and_removed_by_name_only(shell: Shell, folder: Path) -> None:
    function, other, name = new_name("fn"), new_name("other"), new_name("nightly")
    code = zip_of({"main.js": "exports.main = () => ({})", "package.json": '{"main": "main.js"}'})
    shell.client.functions.create(name=function, runtime="nodejs", file=code)
    shell.client.schedules.create(name=other, function=function, cron_schedule="@daily")
    text = f"""
        [[schedules]]
        name = "{name}"
        function = "{function}"
        cron-schedule = "0 3 * * *"
        timezone = "Europe/Berlin"
        params = {{ full = true, list = [1, 2] }}
        """
    write(folder, text)
    apply_once(shell, folder)
    write(folder, text.replace("0 3", "30 4"))
    apply_once(shell, folder)
    changed = [each.cron_schedule for each in shell.client.schedules.list() if each.name == name]
    write(folder, "schedules = []\n")
    apply_once(shell, folder, "--prune", "--yes")
    untouched = {each.name for each in shell.client.schedules.list()}
    write(folder, f'[removed]\nschedules = ["{name}"]\n')
    shell.ok("apply", folder)
    kept = {each.name for each in shell.client.schedules.list()}
    apply_once(shell, folder, "--prune", "--yes")

    assert changed == ["30 4 * * *"]
    assert {name, other} <= untouched
    assert name in kept
    assert {each.name for each in shell.client.schedules.list()} & {name, other} == {other}


@pytest.mark.deep
def test_cronjobs_are_applied_changed_and_removed(shell: Shell, folder: Path) -> None:
    name = new_name("report")
    text = f"""
        [[cronjobs]]
        name = "{name}"
        cron-schedule = "0 5 * * 1"
        public-image = "alpine:3.20"
        command = "echo hello"
        env = {{ MODE = "fast" }}
        """
    write(folder, text)
    apply_once(shell, folder)
    write(folder, text.replace("hello", "changed").replace('"fast"', '"slow"'))
    apply_once(shell, folder)
    detail = shell.client.cronjobs.read(name)
    write(folder, f'[removed]\ncronjobs = ["{name}"]\n')
    apply_once(shell, folder, "--prune", "--yes")

    assert (detail.command, detail.image_source) == ("echo changed", "public_image")
    assert [each.value for each in detail.env] == ["slow"]


@pytest.mark.deep
def test_a_database_is_linked_changed_and_deleted_only_with_its_name(shell: Shell, folder: Path, project: str) -> None:
    name = f"{project}-db"
    text = f"""
        [project]
        name = "{project}"
        secrets = ["DATABASE_URL"]
        [[databases]]
        name = "{name}"
        type = "postgresql"
        version = "16.4.0"
        instance-type = "micro"
        [databases.backups]
        enabled = true
        retention-period = "3d"
        """
    write(folder, text)
    apply_once(shell, folder)
    write(folder, text.replace('"micro"', '"mini"').replace("3d", "5d"))
    apply_once(shell, folder)
    detail, backups = shell.client.databases.read(name), shell.client.databases.list_backups(name)
    write(folder, f'databases = []\n[project]\nname = "{project}"\n')
    shell.ok("apply", folder)
    piped = shell("apply", folder, "--prune")
    wrong = shell.terminal("apply", folder, "--prune", keys={"with its data: ": "other\n"})
    assert shell.client.databases.read(name).name == name
    right = shell.terminal("apply", folder, "--prune", keys={"with its data: ": f"{name}\n", "above? [y/N]: ": "y\n"})

    assert detail.project_id == shell.client.projects.read(project).id
    assert (detail.instance_type, backups.config and backups.config.retention_period) == ("mini", "5d")
    assert (piped.returncode, wrong.code, right.code) == (1, 1, 0)
    assert "confirm that with --yes" in piped.stderr
    assert "nothing was changed" in wrong.text
    assert is_gone(shell, name)


def is_gone(shell: Shell, name: str) -> bool:
    try:
        return shell.client.databases.read(name).status == "deleting"
    except NotFound:
        return True


def test_a_setting_that_cannot_change_stops_before_anything_is_changed(
    shell: Shell, folder: Path, project: str
) -> None:
    write(folder, f'[project]\nname = "{project}"\nkind = "container"\nbuild-cmd = "x"\n')

    refused = shell("apply", folder)

    assert refused.returncode == 1
    assert f"moorage.toml:3: project {project}: kind is 'static' on the platform; only a new project" in refused.stderr
    assert shell.client.projects.read(project).build_cmd != "x"


def test_an_error_of_the_api_names_the_resource_its_line_and_the_changes_before_it(
    shell: Shell, folder: Path, project: str
) -> None:
    write(
        folder,
        f"""[project]
name = "{project}"
build-cmd = "applied"

[[monitors]]
name = "bad"
url = "/"
interval = 5
""",
    )

    refused = shell("apply", folder)

    assert refused.returncode == 1
    assert "cannot create monitor bad at moorage.toml:5" in refused.stderr
    assert f"(already applied: project {project})" in refused.stderr
    assert "  moorage.toml:8 interval: " in refused.stderr
    assert "trace id: " in refused.stderr


def test_a_missing_secret_is_named_and_ends_with_code_1(shell: Shell, folder: Path, project: str) -> None:
    write(folder, f'[project]\nname = "{project}"\nsecrets = ["STRIPE_KEY"]\n')

    refused = shell("apply", folder)
    shell.client.projects.update(project, secrets=[SecretUpsert(name="STRIPE_KEY", value="value")])

    assert refused.returncode == 1
    assert "! secret STRIPE_KEY is not set" in refused.stdout
    assert shell("apply", folder).returncode == 0


def test_a_project_that_does_not_exist_is_left_to_deploy(shell: Shell, folder: Path) -> None:
    write(folder, '[project]\nname = "never-made"\n[[monitors]]\nname = "x"\nurl = "/"\n')

    refused = shell("apply", folder)

    assert "+ project never-made" in refused.stdout
    assert refused.returncode == 1
    assert "`moorage deploy` creates it from this folder" in refused.stderr


def test_diff_has_colours_on_a_terminal_and_a_code_for_scripts(shell: Shell, folder: Path, project: str) -> None:
    write(folder, f'[project]\nname = "{project}"\nenv = {{ API_TOKEN = "hunter2", MODE = "x" }}\n')

    shown = shell.terminal("diff", folder)
    piped = shell("diff", folder, "--exit-code")

    assert "\x1b[33m~ project" in shown.raw
    assert "hunter2" not in shown.raw + piped.stdout + shell.ok("diff", folder, "--json")
    assert "\x1b" not in piped.stdout
    assert piped.returncode == 1
    shell.ok("apply", folder)
    assert shell("diff", folder, "--exit-code").returncode == 0


@pytest.mark.deep
def test_a_project_of_a_repository_is_created_with_everything_that_belongs_to_it(
    shell: Shell, folder: Path, tmp_path: Path
) -> None:
    name = new_name("whole")
    work = Checkout.init(tmp_path / "work")
    work.commit(index_html=page("whole"), job_js="console.log(1)", package_json="{}")
    shell.sites.push(work, f"demo/{name}")
    write(
        folder,
        f"""
        [project]
        name = "{name}"
        repository-name = "demo/{name}"
        kind = "static"
        build-cmd = ""
        deploy-guard = true
        env = {{ MODE = "x" }}
        [[redirects]]
        source = "/a"
        destination = "/b"
        status = 302
        [[cronjobs]]
        name = "{name}-job"
        cron-schedule = "@daily"
        language = "nodejs"
        start-cmd = "node job.js"
        [[monitors]]
        name = "{name}"
        url = "/"
        [[monitors.alerts]]
        metric = "status"
        condition = "lt"
        threshold = 1
        enabled = false
        """,
    )

    apply_once(shell, folder)

    project = shell.client.projects.read(name)
    monitor = next(each for each in shell.client.monitors.list() if each.name == name)
    assert project.deploy_guard
    assert shell.client.cronjobs.read(f"{name}-job").repository_name == f"demo/{name}"
    assert monitor.url == f"{project.project_url}/"
    assert [each.enabled for each in shell.client.monitors.list_alerts(monitor.id)] == [False]


def test_imported_rules_are_accepted_by_the_platform(shell: Shell, folder: Path, project: str) -> None:
    for case in CASES:
        rules: dict[str, Any] = {key: case.toml[key] for key in ("redirects", "headers") if key in case.toml}
        if rules:
            write(folder, writing.new(writing.Draft({"name": project}, rules)))
            wanted = manifest.load(folder)
            assert wanted is not None

            manifest.apply(shell.client, manifest.plan(shell.client, wanted), prune=True)

            assert differences(shell, folder) == []


def test_a_project_is_made_from_an_image(shell: Shell, folder: Path) -> None:
    name = new_name("toml-image")
    for tag in ("1", "2"):
        write(folder, f'[project]\nname = "{name}"\nkind = "container"\npublic-image = "127.0.0.1:9/acme/app:{tag}"\n')

        apply_once(shell, folder)

        assert shell.client.projects.read(name).public_image == f"127.0.0.1:9/acme/app:{tag}"
