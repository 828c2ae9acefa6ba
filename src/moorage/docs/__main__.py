"""`python -m moorage.docs FOLDER`, the command of `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

from moorage.docs import reference


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m moorage.docs FOLDER", file=sys.stderr)
        return 2
    for path in reference.write(Path(arguments[0])):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
