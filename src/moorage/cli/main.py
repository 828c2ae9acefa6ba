"""The `moorage` command."""

from __future__ import annotations

import sys

HELP = frozenset(("--help", "-h"))


def main() -> None:
    """Run the command line; exit with a code above 0 and the reason if it fails."""
    if sys.argv[1:2] == ["up"] and not HELP & set(sys.argv):
        _begin_start()  # before the imports of the commands
    from moorage.cli.commands import app

    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `moorage projects list | head`
        sys.stderr.close()
        sys.exit(141)
    except ModuleNotFoundError as error:
        if (error.name or "moorage").partition(".")[0] == "moorage":
            raise
        install = "pip install 'moorage[server]'"
        _fail(f"this command runs the platform itself and needs {error.name}; install it with: {install}")
    except Exception as error:  # noqa: BLE001 - explained or raised again
        _explain(error)


def _begin_start() -> None:
    try:
        from moorage.platform import head_start
    except ModuleNotFoundError:
        return  # explained by the command itself
    head_start.begin()


def _explain(error: Exception) -> None:
    """Print an error that the user can mend; anything else is a bug and keeps its traceback."""
    from moorage.errors import CannotStart

    if isinstance(error, CannotStart | OSError) or type(error).__name__ == "CannotDecrypt":
        _fail(str(error))
    if "moorage.client.errors" in sys.modules:
        from moorage.cli.output import errors
        from moorage.client.errors import ClientError

        if isinstance(error, ClientError):
            errors.show(error)
            sys.exit(1)
    raise error


def _fail(message: str) -> None:
    from moorage.cli.output.terminal import note

    note(f"moorage: {message}")
    sys.exit(2)


if __name__ == "__main__":
    main()
