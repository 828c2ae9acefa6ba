"""`python -m moorage.runtime.shim FOLDER PADDING`: the fork server of shims."""

from __future__ import annotations

import sys

# A shim makes no TLS connections and asyncio works without `ssl`: this saves 1 MB per replica.
sys.modules["ssl"] = None  # type: ignore[assignment]

from moorage.runtime.shim.main import main  # noqa: E402

main(sys.argv[1:])
