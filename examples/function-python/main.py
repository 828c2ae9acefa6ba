"""A web action: the query, the form or the JSON body are in `params`."""

import os
from datetime import UTC, datetime


def main(params: dict) -> dict:
    name = str(params.get("name", "sailor"))
    print("greeting", name)
    greeting = os.environ.get("GREETING", "Ahoy")
    return {"statusCode": 200, "body": {"text": f"{greeting}, {name}!", "at": datetime.now(UTC).isoformat()}}
