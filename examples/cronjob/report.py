"""Print a report and exit: code 0 is a successful run, any other one a failed run."""

import os
import sys
from datetime import UTC, datetime

limit = int(os.environ.get("LIMIT", "3"))
ships = ["Ada", "Grace", "Hedy"]

print(f"{datetime.now(UTC):%Y-%m-%d}: {len(ships)} ships in the harbor, room for {limit}")
if len(ships) > limit:
    print("the harbor is too full", file=sys.stderr)
    sys.exit(1)
