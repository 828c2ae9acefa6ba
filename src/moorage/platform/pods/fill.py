"""`python -m moorage.platform.pods.fill`: the agent in the pod that fills a volume with files of another machine."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from moorage.runtime.engines.kubernetes.filling import receiving, wire

VOLUME = Path("/data")


def main() -> int:
    # Process 1 of a container ignores signals that it does not handle.
    signal.signal(signal.SIGTERM, _exit)
    token, chain = (os.environ.pop(name) for name in (wire.TOKEN_VARIABLE, wire.CERTIFICATE_VARIABLE))
    host = os.environ.get("HOST", "0.0.0.0")  # noqa: S104 - the address of the pod
    is_complete = receiving.serve(token, chain, VOLUME, host, wire.PORT)
    if not is_complete:
        print("the platform has not connected for some time: the volume is not complete", file=sys.stderr)
    return 0 if is_complete else 1


def _exit(number: int, _: Any) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
