"""Versions of Node.js that repositories ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.build_support import write_files

from moorage.runtime.builds.detection.node_versions import find_wanted, matches, newest, older, parse
from moorage.runtime.builds.detection.reading import Folder


@pytest.mark.parametrize(
    ("wanted", "inside", "outside"),
    [
        ("18", "18.20.8", "19.0.0"),
        ("20.x", "20.9.1", "21.0.0"),
        ("v20.11", "20.11.7", "20.12.0"),
        ("20.11.1", "20.11.1", "20.11.2"),
        (">=16 <21", "20.19.6", "21.0.0"),
        (">= 18.17.0", "24.19.0", "18.16.9"),
        ("^18 || ^20", "20.1.0", "19.9.9"),
        ("^18.12.0||>=20.9.0", "18.12.0", "18.11.9"),
        ("~20.5", "20.5.9", "20.6.0"),
        ("^0.10.3", "0.10.48", "0.11.0"),
        ("14 - 16.5", "16.5.3", "16.6.0"),
        (">16", "17.0.0", "16.20.2"),
        ("<=18", "18.20.8", "19.0.0"),
        ("<18", "17.9.1", "18.0.0"),
        (">=18, <23", "22.1.0", "23.0.0"),
        ("18.x.x", "18.1.2", "17.0.0"),
        ("=20.1.0-rc.1", "20.1.0", "20.1.1"),
    ],
)
def test_ranges_have_the_meaning_that_npm_gives_them(wanted: str, inside: str, outside: str) -> None:
    assert matches(parse(inside) or (0, 0, 0), wanted)
    assert not matches(parse(outside) or (0, 0, 0), wanted)


def test_any_version_matches_a_star_and_none_an_invalid_range() -> None:
    assert matches((24, 19, 0), "*")
    assert matches((24, 19, 0), ">=0.0.0")
    assert not matches((24, 19, 0), "whatever")
    assert not matches((24, 19, 0), "<x")


def test_the_newest_release_of_a_range_is_chosen_without_release_candidates() -> None:
    versions = ["18.20.8", "20.9.0", "20.19.6", "20.20.0-rc.1", "22.0.0", "nonsense"]

    assert newest(versions, "^20") == "20.19.6"
    assert newest(versions, "<18") is None


@pytest.mark.parametrize(
    ("files", "source", "wanted"),
    [
        ({".nvmrc": "# of us\nv20.11.1\n"}, ".nvmrc", "^20.11.1"),
        ({".nvmrc": "lts/iron"}, ".nvmrc", "^20"),
        ({".nvmrc": "lts/*", "package.json": {"engines": {"node": "12"}}}, ".nvmrc", "*"),
        ({".node-version": "22\n"}, ".node-version", "22"),
        ({".tool-versions": "python 3.12\nnodejs 18.20.8\n"}, ".tool-versions", "^18.20.8"),
        ({"package.json": {"volta": {"node": "16.1.0"}}}, "volta of package.json", "^16.1.0"),
        ({"package.json": {"engines": {"node": "20.11.1"}}}, "engines of package.json", "20.11.1"),
        ({"package.json": {"engines": {"node": ">=16 <21"}}, ".nvmrc": "\n"}, "engines of package.json", ">=16 <21"),
    ],
)
def test_the_version_comes_from_the_files_of_version_managers_and_then_from_package_json(
    tmp_path: Path, files: dict[str, Any], source: str, wanted: str
) -> None:
    found = find_wanted(Folder(write_files(tmp_path, files), ""))

    assert found is not None
    assert (found.source, found.range) == (source, wanted)


@pytest.mark.parametrize(
    ("package", "nvmrc", "wanted"),
    [
        ({"devDependencies": {"webpack": "^4.46.0"}}, "", "16"),
        ({"devDependencies": {"react-scripts": "4.0.3"}, "engines": {"node": ">=10"}}, "", "16"),
        ({"dependencies": {"node-sass": "~4.14"}}, "", "14"),
        ({"devDependencies": {"webpack": "^4.46.0"}}, "18.20.0", "^18.20.0"),
        ({"devDependencies": {"webpack": "^4.46.0"}}, "lts/*", "16"),
        ({"devDependencies": {"webpack": "^5.90.0"}}, "", None),
        ({"devDependencies": {"webpack": "latest"}}, "", None),
        ({"dependencies": {"better-sqlite3": "12.8.0"}, "engines": {"node": ">=20.0.0 <=24.x.x"}}, "", "22"),
        ({"dependencies": {"better-sqlite3": "^13.0.1"}}, "", None),
        ({"dependencies": {"umi": "^4.4.4"}}, "", "22"),
        ({"dependencies": {"@strapi/strapi": "4.1.7"}, "engines": {"node": ">=10.0.0"}}, "", "18"),
        ({"dependencies": {"sqlite3": "^4.0.4", "better-sqlite3": "^7.4.0"}}, "", "14"),
        ({"dependencies": {"better-sqlite3": "^7.4.0"}}, "", "18"),
        ({"dependencies": {"next": "14.1.4", "react-lottie": "^1.2.4"}}, "", "20 >=18.17"),
        ({"dependencies": {"gatsby": "^5.14.6"}}, "", "22 >=18"),
        ({"dependencies": {"sqlite3": "^5.1.7", "bcrypt": "^5.0.0"}}, "", None),
    ],
)
def test_old_build_tools_ask_for_the_version_that_they_run_with(
    tmp_path: Path, package: dict[str, Any], nvmrc: str, wanted: str | None
) -> None:
    found = find_wanted(Folder(write_files(tmp_path, {"package.json": package, ".nvmrc": nvmrc}), ""))

    assert (found.range if found else None) == wanted


@pytest.mark.parametrize(
    ("package", "nvmrc", "source", "accepted", "refused"),
    [
        ({"dependencies": {"next": "14.2.3"}}, "v16.18.0", "next 14 of package.json", (18, 17, 0), (16, 18, 0)),
        ({"dependencies": {"next": "14.2.3"}}, "18.3.0", ".nvmrc", (18, 20, 0), (18, 16, 0)),
        ({"dependencies": {"astro": "^6.0.1"}}, "", "astro 6 of package.json", (22, 12, 0), (20, 20, 2)),
        ({"dependencies": {"next": "latest"}}, "", "next latest of package.json", (20, 9, 0), (18, 20, 0)),
        ({"devDependencies": {"vite": "^7.1"}, "engines": {"node": ">=18"}}, "", "engines", (22, 12, 0), (22, 11, 0)),
        ({"devDependencies": {"vite": "^7.1"}, "engines": {"node": "18 - 24"}}, "", "engines", (24, 1, 0), (26, 0, 0)),
        ({"packageManager": "pnpm@11.2.0"}, "20", "packageManager of package.json", (22, 13, 0), (20, 20, 0)),
        (
            {"dependencies": {"next": "16.0.1", "webpack": "4.1.0"}},
            "",
            "next 16 of package.json",
            (22, 1, 0),
            (16, 1, 0),
        ),
        ({"dependencies": {"next": "14.0.0", "sqlite3": "4.0.0"}}, "", "next 14", (20, 0, 0), (14, 21, 0)),
    ],
)
def test_new_tools_ask_for_a_version_that_they_run_with(
    tmp_path: Path,
    package: dict[str, Any],
    nvmrc: str,
    source: str,
    accepted: tuple[int, int, int],
    refused: tuple[int, int, int],
) -> None:
    found = find_wanted(Folder(write_files(tmp_path, {"package.json": package, ".nvmrc": nvmrc}), ""))

    assert found is not None
    assert found.source.startswith(source)
    assert (matches(accepted, found.range), matches(refused, found.range)) == (True, False)


@pytest.mark.parametrize(
    ("current", "engines", "output", "wanted"),
    [
        ((24, 1, 0), "", "gyp", "16"),
        ((16, 20, 0), "", "gyp", "14"),
        ((14, 21, 0), "", "gyp", ""),
        ((24, 1, 0), ">=12", "gyp", "16"),
        ((24, 1, 0), ">=20", "gyp", ""),
        ((24, 1, 0), "", "header", ""),
        ((24, 1, 0), "", "", ""),
    ],
)
def test_a_module_that_is_not_compiled_gets_an_older_version(
    tmp_path: Path, current: tuple[int, int, int], engines: str, output: str, wanted: str
) -> None:
    outputs = {
        "gyp": "../src/lock.cc:12:5: error: no member named 'Get'\ngyp ERR! build error \n",
        "header": "../src/lock.cc:1:10: fatal error: png.h: No such file\ngyp ERR! build error \n",
        "": "npm error 404",
    }
    folder = Folder(write_files(tmp_path, {"package.json": {"engines": {"node": engines}}}), "")

    assert older(folder, current, outputs[output]) == wanted


def test_a_package_of_a_workspace_uses_the_version_of_its_root_unless_it_names_one(tmp_path: Path) -> None:
    root = {"package.json": {"workspaces": ["*"]}, ".nvmrc": "20"}
    write_files(tmp_path, {**root, "a/package.json": {}, "b/package.json": {"engines": {"node": "22"}}, "c/x": ""})

    found = [find_wanted(Folder(tmp_path, name)) for name in ("a", "b", "c")]

    assert [each and each.text for each in found] == ["20", "22", None]
