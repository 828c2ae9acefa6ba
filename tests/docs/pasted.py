"""Commands of the docs as one shell script for each page, and the output of each block.

A block labelled `sh` is pasted. `sh fails` marks one whose last command has to fail. A block labelled `text` is part of
the output of the block before it. Blocks without a label are shown only.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
TUTORIALS = ("steps", "site", "app", "function", "database", "monitor")
PAGES = ("README.md", *(f"docs/tutorial/first-{name}.md" for name in TUTORIALS))

_FENCED = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "@@ block"
# A request that the platform refuses is a failed command. `-f` and `--fail-with-body` exclude each other.
_PROLOGUE = """set -eEm -o pipefail
curl() { case "$*" in -sf*) command curl "$@" ;; *) command curl --fail-with-body "$@" ;; esac; }
"""


@dataclass
class Block:
    """Commands to paste, and the texts that they have to print."""

    text: str
    must_fail: bool = False
    expected: list[str] = field(default_factory=list)


def blocks(page: str) -> list[Block]:
    found: list[Block] = []
    for label, text in _FENCED.findall((ROOT / page).read_text(encoding="utf-8")):
        if label in ("sh", "sh fails"):
            found.append(Block(text, must_fail=label == "sh fails"))
        elif label == "text":
            found[-1].expected.append(text.strip())
    return found


def script(page: str, ports: dict[str, int]) -> str:
    """Return the script of a page, with other ports than the default ones."""
    parts = [_PROLOGUE]
    for number, block in enumerate(blocks(page)):
        parts.append(f"echo; echo '{_MARK} {number}'\n")
        parts.append(f"set +e\n{block.text}[ $? -ne 0 ] || exit 99\nset -e\n" if block.must_fail else block.text)
    parts.append(f"echo; echo '{_MARK} end'\n")
    return re.sub("|".join(ports), lambda match: str(ports[match[0]]), "".join(parts))


def paste(page: str, ports: dict[str, int], home: Path, timeout_s: float) -> dict[str, str]:
    """Run the script of a page in a folder of its own; return the output by block, and `end` after the last one."""
    folder = home / Path(page).stem
    folder.mkdir()
    env = {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    env["MOORAGE_URL"] = f"http://localhost:{ports['8080']}"  # The default of the command has the default port.
    process = subprocess.Popen(
        ["bash", "-c", script(page, ports)], cwd=folder, env=env, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        process.kill()
        output = (error.stdout or b"").decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        output += f"\n[stopped after {timeout_s:.0f} s]"
    pieces = re.split(rf"^{_MARK} (\w+)\n", output, flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))
