"""Ships in PostgreSQL. The platform gives the address of the database as DATABASE_URL."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

DATABASE_URL = os.environ["DATABASE_URL"]


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    with psycopg.connect(DATABASE_URL) as db:
        db.execute("CREATE TABLE IF NOT EXISTS ship (name text PRIMARY KEY, berth int NOT NULL)")
    yield


app = FastAPI(title="Ships", lifespan=lifespan)


class Ship(BaseModel):
    name: str
    berth: int


@app.get("/")
def list_ships() -> list[Ship]:
    with psycopg.connect(DATABASE_URL) as db:
        rows = db.execute("SELECT name, berth FROM ship ORDER BY name").fetchall()
    return [Ship(name=name, berth=berth) for name, berth in rows]


@app.post("/ships", status_code=201)
def add_ship(ship: Ship) -> Ship:
    try:
        with psycopg.connect(DATABASE_URL) as db:
            db.execute("INSERT INTO ship (name, berth) VALUES (%s, %s)", (ship.name, ship.berth))
    except psycopg.errors.UniqueViolation:
        raise HTTPException(409, f"{ship.name} is here already") from None
    return ship
