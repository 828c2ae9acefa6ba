"""`python -m moorage.docs REFERENCE [CLIENT]`, the command of `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

from moorage.docs import reference
from moorage.docs.client_source import write as client_source


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2):
        print("usage: python -m moorage.docs REFERENCE [CLIENT]", file=sys.stderr)
        return 2
    # The client first: the page of commands imports it.
    for folder in arguments[1:]:
        print(f"{len(client_source.write(reference.openapi_document(), Path(folder)))} files of {folder}")
    for path in reference.write(Path(arguments[0])):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
