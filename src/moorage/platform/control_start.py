"""Start of the control process: `python -m moorage.platform.control_start [agent|gateway] [--wait FD]`.

With `--wait`, it imports its modules while `moorage up` still reads the settings, and gets its environment from the
descriptor. It exits if the descriptor is closed without one.
"""

from __future__ import annotations

import gc
import json
import os
import sys

from moorage.core.kit import imports

# Modules that serve requests, jobs and builds. An idle platform has none, and its modules take half of the memory.
ON_FIRST_USE = (
    *("moorage.", "moorage.runtime.builds.detection.table"),
    *("difflib", "email.message", "html", "importlib.metadata", "logging.config", "tarfile", "tomllib"),
    *("joserfc.", "pydantic", "yarl"),
    *("cryptography.x509", "cryptography.hazmat.primitives.serialization"),
)


def main() -> None:
    # A collection finds nothing while modules are imported: 6 % less CPU. `tune_garbage_collector` enables it again.
    gc.disable()
    imports.execute_on_first_use(*ON_FIRST_USE)
    from moorage.platform.control import main as run

    if "--wait" in sys.argv:
        at = sys.argv.index("--wait")
        with open(int(sys.argv[at + 1]), "rb") as pipe:
            environment = pipe.read()
        del sys.argv[at : at + 2]
        if not environment:
            return
        os.environ.clear()
        os.environ.update(json.loads(environment))
    run()


if __name__ == "__main__":
    main()
