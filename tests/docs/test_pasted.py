"""README and tutorials, pasted block by block on a new platform: no command fails."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs import pasted
from tests.platform.running import Running, running
from tests.ports import free_port

pytestmark = pytest.mark.group("pasted-docs")
PAGE_TIMEOUT_S = 600.0  # installing FastAPI on a loaded machine takes most of it


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A home folder with a clone; in a short path, because sockets are below it."""
    home = Path(tempfile.mkdtemp(prefix="md-", dir="/tmp"))
    (home / "moorage").mkdir()
    (home / "moorage" / ".venv").symlink_to(pasted.ROOT / ".venv")
    (home / ".gitconfig").write_text("[user]\nname = Ada\nemail = ada@example.com\n")
    yield home
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def platform(home: Path) -> Iterator[Running]:
    data = home / "moorage" / ".moorage"
    with running(data) as platform:
        yield platform
    shutil.rmtree(data / "run", ignore_errors=True)  # Apps and databases end without their folder.


@pytest.mark.deep
@pytest.mark.parametrize("page", pasted.PAGES)
def test_every_command_of_a_page_succeeds_and_prints_the_shown_output(page: str, platform: Running, home: Path) -> None:
    names = {"8080": "api", "8081": "gateway", "8082": "edge"}
    ports = {default: platform.ports[name] for default, name in names.items()} | {"9000": free_port()}

    outputs = pasted.paste(page, ports, home, PAGE_TIMEOUT_S)

    last = list(outputs)[-1]
    assert last == "end", f"block {last} failed:\n{pasted.blocks(page)[int(last)].text}\n{outputs[last]}"
    for number, block in enumerate(pasted.blocks(page)):
        for expected in block.expected:
            assert expected in outputs[str(number)]


@pytest.mark.parametrize("page", pasted.PAGES)
def test_the_commands_of_a_page_are_valid_shell(page: str) -> None:
    script = pasted.script(page, {"8080": 8080})

    checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)

    assert checked.stderr == ""
    assert len(pasted.blocks(page)) > 0


def test_the_readme_deploys_a_site_in_under_ten_lines() -> None:
    (block,) = pasted.blocks("README.md")

    assert len(block.text.splitlines()) < 10


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("```sh\necho one\n```\n\n```sh\nA=2\n```\n\n```sh\n[ $A = 2 ]\n```\n", "end"),
        ("```sh\necho one\n```\n\n```sh\nfalse\necho two\n```\n", "1"),
        ("```sh\nX=$(false | cat)\n```\n", "0"),
        ("```sh fails\nfalse\n```\n\n```\nfalse\n```\n", "end"),
        ("```sh fails\ntrue\n```\n", "0"),
        ("```sh\nsleep 60\n```\n", "0"),
    ],
)
def test_a_failed_command_ends_the_page(tmp_path: Path, text: str, last: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)

    outputs = pasted.paste(str(page), {"8080": 8080}, tmp_path, timeout_s=2)

    assert list(outputs)[-1] == last
