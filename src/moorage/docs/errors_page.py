"""The page of all error codes."""

from __future__ import annotations

import re
from typing import Any

from moorage import errors
from moorage.core.http.answer import STATUS
from moorage.core.http.openapi.schema_text import Schemas
from moorage.docs.markdown import code, table
from moorage.docs.markdown import page as join

EXAMPLE = """```json
{
  "success": false,
  "error": {
    "code": "bad_request",
    "message": "The request is not valid",
    "fields": {"autoScaling.minReplicas": "should be a whole number"},
    "traceId": "4bf92f3577b34da6"
  }
}
```"""


def page(document: dict[str, Any]) -> str:
    """Return the page: the shape of a failure, and all error codes."""
    schemas = Schemas(document)
    failure = schemas.fields({"$ref": "#/components/schemas/Failure"})
    known = meanings()
    codes = [(code(name), str(status), known[name][0], code(known[name][1])) for name, status in STATUS.items()]
    return join(
        "# Errors",
        "Every failure has the same shape:",
        EXAMPLE,
        table(("Name", "Type", "Present"), [(code(f.path), f.type, "always" if f.required else "") for f in failure]),
        "`fields` names each bad field as it was sent. `traceId` is also the answer's header `x-request-id` and stands "
        "in every log line of the request. 429 carries `Retry-After`, in seconds.",
        "## Codes",
        table(("Code", "Status", "When", "Raised as"), codes),
    )


def meanings() -> dict[str, tuple[str, str]]:
    """Return meaning and class of each code, parsed from the tree in `errors.py`."""
    branches = re.findall(r"^[├└]── (\w+) +(\w+) {2,}(.+)$", errors.__doc__ or "", re.MULTILINE)
    return {name: (meaning[:1].upper() + meaning[1:], raised) for raised, name, meaning in branches}
