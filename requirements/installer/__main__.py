"""Run one command of the setup; the Makefile calls it.

requirements/setup runtime|dev|bench|audit VENV    install a group of locked packages
requirements/setup engines VENV                    install database software
requirements/setup up VENV [ARGUMENT]...           start the platform
requirements/setup run TITLE PROGRAM [ARGUMENT]... run a program with progress
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from requirements.installer import engines
from requirements.installer.environment import Environment
from requirements.installer.failures import SetupFailed, explain_os_error
from requirements.installer.progress import Steps

INTERRUPTED = 130


def main(command: str, first: str, *rest: str) -> int:
    venv = Path(first).absolute()
    if command == "run":
        return run(first, list(rest))
    if command == "engines":
        engines.install(venv)
    elif command == "up":
        engines.start_platform(venv, list(rest))
    elif command == "background":
        engines.run_in_background(venv, int(rest[0]), rest[1])
    else:
        Environment(venv).ensure(command)
    return 0


def run(title: str, argv: list[str]) -> int:
    with Steps(1).step(title) as step:
        done = step.run(argv, env=os.environ)
    if done.code != 0 or done.output:
        print(done.output, file=sys.stderr, flush=True)
    return done.code


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except SetupFailed as error:
        print(f"setup: {error}", file=sys.stderr)
    except OSError as error:
        print(f"setup: {explain_os_error(error, Path(sys.argv[2]))}", file=sys.stderr)
    except KeyboardInterrupt:
        print("\nsetup: stopped; the next run goes on from here", file=sys.stderr)
        sys.exit(INTERRUPTED)
    sys.exit(1)
