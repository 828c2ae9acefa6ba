"""`python -m tests.failed_again`: run the tests that failed in the last run once more, one after another.

pytest's own `--last-failed` would collect all tests, and has no limit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
MOST = 100  # More than that is no accident of the machine.


def names() -> list[str]:
    """Return the names of failed tests, as pytest takes them."""
    return sorted(json.loads(FAILED.read_text())) if FAILED.is_file() else []


def main() -> int:
    failed = names()
    if not 0 < len(failed) <= MOST:
        print(f"{len(failed)} tests failed: they are not run again", file=sys.stderr)
        return 1
    print(f"running {len(failed)} failed tests once more:", *failed, sep="\n  ", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", *sys.argv[1:], *failed], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
