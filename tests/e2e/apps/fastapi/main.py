"""An API that checks what it is sent, and streams."""

import os
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import FastAPI, Path
from fastapi.responses import StreamingResponse

app = FastAPI(title="Berths")


@app.get("/")
async def home() -> dict[str, str]:
    return {"harbor": os.environ["HARBOR"]}


@app.get("/berths/{number}")
async def berth(number: Annotated[int, Path(ge=1, le=99)]) -> dict[str, int]:
    return {"berth": number}


@app.get("/lines")
async def lines() -> StreamingResponse:
    async def say() -> AsyncIterator[str]:
        for number in range(1000):
            yield f"line {number}\n"

    return StreamingResponse(say(), media_type="text/plain")
