"""All commands of `moorage`, in two groups. The modules are imported when their command is used."""

from __future__ import annotations

from typing import Annotated, ClassVar

import typer

from moorage import __version__
from moorage.cli.help import MAX_WIDTH, Entry, LazyCommands, prepare_completion

# Command, module and summary: the first paragraph of the command's help, which a test compares.
USED = (
    ("login", "session.login", "Sign in to a platform and store the credential."),
    ("logout", "session.login", "Forget the credential of a context."),
    ("whoami", "session.login", "Show the platform, the user, the organization and the role."),
    ("context", "session.commands", "Platforms and organizations that you signed in to."),
    ("deploy", "deploy.command", "Deploy a folder and print its address."),
    ("init", "manifest.starting", "Write moorage.toml for a folder."),
    ("diff", "manifest.commands", "Show the difference between moorage.toml and the platform."),
    ("apply", "manifest.commands", "Make the platform as moorage.toml says."),
    ("import", "importing.commands", "Write moorage.toml from the files of another platform."),
    ("schema", "manifest.starting", "Print the JSON Schema of moorage.toml, for editors."),
    ("detect", "detect", "Print the build plan that a deployment of a folder would have."),
    ("status", "overview.status", "Show everything of the organization, or one project, at a glance: problems first."),
    ("logs", "overview.logs", "Print the log lines of a project: its app, its deployments and its cronjobs."),
    ("open", "overview.opening", "Open the site of a project, or the console, in the browser."),
    ("projects", "resources.projects.commands", "Sites and apps: settings, usage and history."),
    ("deployments", "resources.projects.deployments", "Deployments of a project: logs, redeploy, rollback, previews."),
    ("domains", "resources.projects.domains", "Custom domains of a project."),
    ("redirects", "resources.projects.rules", "Redirects of a project."),
    ("headers", "resources.projects.rules", "Response headers of a project."),
    ("env", "resources.projects.variables", "Environment variables of a project."),
    ("secrets", "resources.projects.variables", "Secrets of a project."),
    (
        "exec",
        "resources.projects.execute",
        "Run a command in a fresh sandbox of the live release, with its environment.",
    ),
    (
        "functions",
        "resources.functions.commands",
        "Functions: deploy, call and observe them, or run one on this machine.",
    ),
    ("schedules", "resources.schedules", "Schedules: functions that run at fixed times."),
    ("databases", "resources.databases.commands", "Databases: create, connect, back up and restore them."),
    ("cronjobs", "resources.cronjobs", "Cronjobs: commands of a repository or an image that run on a schedule."),
    ("image", "images.commands", "Images: deploy images that were built elsewhere."),
    ("registries", "images.registries", "Registries: credentials of private image registries."),
    ("monitors", "resources.monitors", "Monitors: checks of web addresses."),
    ("alerts", "resources.alerts", "Alerts: messages about monitors."),
    ("tokens", "resources.accounts.tokens", "API tokens of the organization."),
    ("orgs", "resources.accounts.orgs", "Organizations, and the one that commands act on."),
    ("members", "resources.accounts.members", "Members of the organization, and invitations."),
    ("activity", "resources.accounts.activity", "Show the changes of the organization: who did what and when."),
    ("sessions", "resources.accounts.activity", "Your sessions: where you are signed in."),
    ("notifications", "resources.accounts.activity", "Your notifications."),
    (
        "mcp",
        "assistant.commands",
        "Serve the Model Context Protocol on standard input and output, for coding assistants.",
    ),
    ("completion", "session.completions", "Print the script that completes commands, options and names in a shell."),
)
OPERATED = (
    ("up", "operate.up", "Start the whole platform in the foreground; Ctrl-C stops it."),
    ("doctor", "operate.system", "Check this machine for the platform's requirements, with a fix for each gap."),
    ("admin", "operate.admin", "Operator commands: they need a running platform."),
    ("machines", "operate.machines", "Machines of the platform: list, drain and remove them."),
    ("engines", "operate.engines", "Database software of this machine."),
    ("backup", "operate.system", "Back up the store, artifacts, databases and keys to one file."),
    ("restore", "operate.system", "Restore a backup after a complete check; the platform must be stopped."),
    ("move", "operate.move", "Move the store to PostgreSQL, and the artifacts to S3; the platform must be stopped."),
    ("keys", "operate.keys", "Keys that encrypt secrets and sign sessions."),
    ("audit", "operate.audit", "Integrity of the activity feed."),
    ("serve", "operate.up", "Start an API process without workers (several may run on one PostgreSQL)."),
    ("work", "operate.up", "Start a worker process without the API (several may run on one PostgreSQL)."),
    (
        "edge",
        "operate.up",
        "Start an edge with its function workers (several may run on one PostgreSQL, each on its own machine).",
    ),
    (
        "gateway",
        "operate.up",
        "Start a public gateway for apps that run as pods (several may run on one PostgreSQL).",
    ),
    ("version", "operate.version", "Print the version."),
)
ENTRIES = tuple(
    Entry(name, title, f"moorage.cli.{module}", summary)
    for title, rows in (("Use a platform", USED), ("Run a platform", OPERATED))
    for name, module, summary in rows
)


class Commands(LazyCommands):
    entries: ClassVar = {entry.name: entry for entry in ENTRIES}


app = typer.Typer(
    name="moorage",
    cls=Commands,
    context_settings={"max_content_width": MAX_WIDTH, "help_option_names": ["--help", "-h"]},
    help="Moorage: sites, apps, functions, databases, schedules and monitors with one command.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
prepare_completion()


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    context: Annotated[
        str | None, typer.Option("--context", help="Context to use instead of the current one. [MOORAGE_CONTEXT]")
    ] = None,
    org: Annotated[str | None, typer.Option("--org", help="Organization to act on. [MOORAGE_ORG]")] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context is not None or org is not None:
        from moorage.cli.session import connect

        connect.options.context, connect.options.organization = context, org
