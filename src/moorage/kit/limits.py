"""What the system lets one process have."""

from __future__ import annotations

import resource


def open_many() -> None:
    """Let this process have as many open files as it may: thousands of connections and cells need them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
