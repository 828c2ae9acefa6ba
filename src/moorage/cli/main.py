"""The `moorage` command."""

from __future__ import annotations

import sys

from moorage.platform import head_start

HELP = frozenset(("--help", "-h"))


def main() -> None:
    """Run the command line; exit with code 2 and the reason if a start fails."""
    if sys.argv[1:2] == ["up"] and not HELP & set(sys.argv):
        head_start.begin()  # before the imports of the commands
    from moorage.cli.commands import app
    from moorage.core.kit.crypto import CannotDecrypt
    from moorage.errors import CannotStart

    try:
        app()
    except (CannotStart, CannotDecrypt, OSError) as error:
        print(f"moorage: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
