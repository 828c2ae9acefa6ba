"""Plans as text, and the input that creates a project: without a platform."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.cli import manifest
from moorage.cli.manifest import Action, Change, FieldChange
from moorage.cli.manifest.changes import MASK
from moorage.cli.manifest.reading import Manifest, parse
from moorage.client.models import AutoInput, ContainerInput, StaticInput


def parsed(text: str) -> Manifest:
    return parse(text, Path("moorage.toml"))


def test_a_plan_has_a_sign_for_each_resource_and_each_value(capsys: pytest.CaptureFixture[str]) -> None:
    changes = [
        Change("project", "shop", Action.UPDATE, [
            FieldChange("tier", "free", "micro"),
            FieldChange("env.NEW", None, "1"),
            FieldChange("env.OLD", "2", None, needs_prune=True),
        ]),
        Change("database", "shop-db", Action.CREATE, [FieldChange("type", None, "postgresql")]),
        Change("monitor", "same", Action.NOTHING),
        Change("domain", "old.example.com", Action.DELETE, needs_prune=True),
    ]  # fmt: skip

    manifest.show(changes)

    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "~ project shop",
        "    ~ tier     free → micro",
        "    + env.NEW  1",
        "    - env.OLD  2  (only with --prune)",
        "+ database shop-db",
        "    + type  postgresql",
        "- domain old.example.com  (only with --prune)",
    ]
    assert shown.err == "1 to create, 1 to change, 0 to delete, 2 kept without --prune\n"


def test_secret_looking_values_are_masked_and_control_characters_are_dropped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fields = [
        FieldChange("env.STRIPE_KEY", "sk_old", "sk_new").masked(),
        FieldChange("env.CACHE", None, "redis://me:hunter2@cache:6379").masked(),
        FieldChange("env.TITLE", None, "\x1b]0;owned\x07ok").masked(),
        FieldChange("slack-webhook", None, "$SLACK").masked(),
    ]

    manifest.show([Change("project", "shop\x1b[2J", Action.UPDATE, fields)])

    shown = capsys.readouterr().out
    assert f"env.STRIPE_KEY  {MASK} → {MASK}" in shown
    assert f"redis://me:{MASK}@cache:6379" in shown
    assert "+ slack-webhook   $SLACK" in shown
    assert "\x1b" not in shown
    assert "sk_" not in shown


def test_the_kind_chooses_the_input_and_arguments_have_precedence() -> None:
    text = '[project]\nname = "shop"\nhealth-check-path = "/up"\ntier = "micro"\nenv = { A = "1", B = "2" }\n'

    auto = manifest.project_input(parsed(text), repository_name="demo/shop", env={"B": "3"}, secrets={"KEY": "x"})
    container = manifest.project_input(parsed(text + 'kind = "container"\n'), repository_name="demo/shop")

    assert isinstance(auto, AutoInput)
    assert {each.name: each.value for each in auto.env or []} == {"A": "1", "B": "3"}
    assert [each.name for each in auto.secrets or []] == ["KEY"]
    assert isinstance(container, ContainerInput)
    assert (container.language, container.health_check_path) == ("auto", "/up")
    assert container.tier
    assert container.tier.key == "micro"


def test_a_static_project_leaves_out_settings_of_apps() -> None:
    found = parsed('[project]\nname = "site"\nkind = "static"\nbuild-dir = "out"\ntier = "micro"\n')

    site = manifest.project_input(found, repository_name="demo/site")

    assert isinstance(site, StaticInput)
    assert (site.name, site.build_dir) == ("site", "out")
