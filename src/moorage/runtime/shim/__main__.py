"""`python -m moorage.runtime.shim FOLDER ROOM`: the fork server of the shims below a folder."""

from __future__ import annotations

import sys

# A shim speaks TLS with nobody, and asyncio does without it. There is a shim for every replica: this saves each 1 MB.
sys.modules["ssl"] = None  # type: ignore[assignment]

from moorage.runtime.shim.main import main  # noqa: E402

main(sys.argv[1:])
