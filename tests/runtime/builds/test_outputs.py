"""Results of builds that are not what was expected: they fail with a sentence, and nothing wrong goes live."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.build_support import make_request, write_files

from moorage.runtime.builds import collect, outputs
from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.ports import BuildFailed

SITE = {"package.json": {"devDependencies": {"vite": "7"}, "scripts": {"build": "vite build"}}}


def published(source: Path, files: dict[str, Any], made: dict[str, Any], **changed: Any) -> tuple[str, list[str]]:
    """Return the folder that is published where a build makes these files, and the lines of the log."""
    write_files(source, files)
    request = make_request(source, **{"wanted": "auto", **changed})
    folder = detect.open_base(request)
    plan, before = detect.make_plan(request, folder), set(folder.names())
    lines: list[str] = []
    write_files(source, made)
    return outputs.find(request, folder, plan, before, lines.append), lines


def started(source: Path, files: dict[str, Any], made: dict[str, Any], **changed: Any) -> str:
    """Return the start command that passes the check after a build that makes these files."""
    write_files(source, files)
    request = make_request(source, **{"wanted": "auto", **changed})
    folder = detect.open_base(request)
    plan = detect.make_plan(request, folder)
    write_files(source, made)
    outputs.check_start(request, detect.open_base(request), plan)
    return plan.start


def test_a_build_without_an_index_page_fails_with_what_it_made(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed) as failed:
        published(tmp_path, SITE, {"dist/lib.js": "x", "dist/style.css": "x"})

    assert str(failed.value) == (
        "the folder dist has no index.html after the build, so it is not published (it has: lib.js, style.css): set "
        "buildDir to the folder with the site, or startCmd if this is an app"
    )


def test_an_output_folder_with_a_name_that_no_folder_can_have_fails_the_build(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match="there is no folder a"):
        published(tmp_path, SITE, {"dist/index.html": "x"}, build_dir="a" * 300)


@pytest.mark.parametrize("link", ['<script src="dist/lib.js">', "<link rel=stylesheet href=./dist/lib.css>"])
def test_the_page_of_a_library_is_published_with_the_files_that_it_uses(tmp_path: Path, link: str) -> None:
    output, lines = published(tmp_path, {**SITE, "index.html": f"<html>{link}"}, {"dist/lib.js": "x"})

    assert output == ""
    assert lines == ["dist has no index.html; the base folder, whose index.html uses it, is published"]


def test_a_page_that_does_not_use_the_output_is_not_published(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match=r"the folder dist has no index\.html"):
        published(tmp_path, {**SITE, "index.html": '<script src="/src/main.js">'}, {"dist/lib.js": "x"})


def test_several_folders_with_an_index_page_are_named(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match=r"there are dist/de/index\.html, dist/en/index\.html"):
        published(tmp_path, SITE, {"dist/en/index.html": "x", "dist/de/index.html": "x"})


def test_the_only_folder_of_the_output_with_an_index_page_is_published(tmp_path: Path) -> None:
    output, lines = published(tmp_path, SITE, {"dist/shop/browser/index.html": "x", "dist/shop/licenses.txt": "x"})

    assert output == "dist/shop/browser"
    assert lines == ["dist has no index.html; dist/shop/browser, the only folder in it that has one, is published"]


def test_a_new_folder_with_an_index_page_is_published_whatever_its_name(tmp_path: Path) -> None:
    output, lines = published(tmp_path, SITE, {"_static/index.html": "x", "node_modules/a/index.html": "x"})

    assert (output, lines) == (
        "_static",
        ["there is no folder dist; the build has made _static, which is published"],
    )


def test_the_fallback_page_of_a_single_page_app_becomes_its_index(tmp_path: Path) -> None:
    output, _ = published(tmp_path, SITE, {"dist/200.html": "app"})

    assert (tmp_path / output / "index.html").read_text() == "app"


def test_a_build_that_changes_files_in_place_publishes_the_base_folder(tmp_path: Path) -> None:
    files = {"package.json": {"scripts": {"build": "sass a:b"}}, "index.html": "x"}

    output, lines = published(tmp_path, files, {"style.css": "x"})

    assert output == ""
    assert lines == ["the build has made no folder: the base folder, which has index.html, is published"]


@pytest.mark.parametrize("files", [{"package.json": {"name": "x"}}, {"tool.py": "x", "notes.md": "x"}])
def test_sources_are_not_published_as_a_site(tmp_path: Path, files: dict[str, Any]) -> None:
    with pytest.raises(BuildFailed, match=r"the base folder has no index\.html, so it is not published"):
        published(tmp_path, files, {}, wanted="static")


def test_a_folder_that_the_user_chose_is_published_without_an_index_page(tmp_path: Path) -> None:
    chosen, _ = published(tmp_path / "a", SITE, {"files/a.pdf": "x"}, build_dir="files")
    static, _ = published(tmp_path / "b", {"a.pdf": "x"}, {}, wanted="static")

    assert (chosen, static) == ("files", "")


def test_sources_beside_the_pages_are_left_out(tmp_path: Path) -> None:
    kept = {"index.html": "x", "app.js": "x", "robots.txt": "x"}
    write_files(tmp_path, {**kept, "package.json": "{}", "deploy.py": "x", ".gitignore": "x", "requirements.txt": ""})

    removed = collect.leave_out(tmp_path, has_sources=True)

    assert removed == [".gitignore", "deploy.py", "package.json", "requirements.txt"]
    assert {path.name for path in tmp_path.iterdir()} == set(kept)


def test_a_start_script_whose_file_the_build_did_not_make_fails_before_the_start(tmp_path: Path) -> None:
    package = {"scripts": {"build": "tsc", "start": "NODE_ENV=production node dist/index.js"}}

    with pytest.raises(BuildFailed) as failed:
        started(tmp_path, {"package.json": package}, {"dist/src/index.js": "x"})

    assert str(failed.value) == (
        "the start command `npm start` of package.json runs dist/index.js, which does not exist after `npm run build`: "
        "its `build` script should create it, or set startCmd"
    )


@pytest.mark.parametrize(
    ("scripts", "made", "changed"),
    [
        ({"build": "x", "start": "node dist/main"}, {"dist/main.js": ""}, {}),
        ({"start": "node ."}, {}, {}),
        ({"start": "npm run build && node dist/a.js", "build": "x"}, {}, {}),
        ({"prestart": "make", "start": "node out/a.js"}, {}, {}),
        ({"start": "node -r dotenv/config dist/a.js"}, {}, {}),
        ({"start": "node missing.js"}, {}, {"start_cmd": "node missing.js"}),
        ({"start": "bun run dev"}, {}, {}),
    ],
)
def test_a_start_that_may_work_is_tried(
    tmp_path: Path, scripts: dict[str, str], made: dict[str, str], changed: dict[str, str]
) -> None:
    assert started(tmp_path, {"package.json": {"scripts": scripts}}, made, **changed)


def test_a_build_into_a_folder_with_pages_publishes_that_folder(tmp_path: Path) -> None:
    files = {"package.json": {"scripts": {"build": "rollup -c"}}, "public/index.html": "x"}

    output, lines = published(tmp_path, files, {"public/build/bundle.js": "x"})

    assert output == "public"
    assert lines == ["the build has made no folder: the folder public, which has index.html, is published"]
