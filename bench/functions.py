"""The bars of edge functions and scheduled functions, each a benchmark of its own with a platform of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench import (
    function_cold,
    function_many,
    function_memory,
    function_noise,
    function_schedules,
    function_soak,
    function_warm,
)
from bench.figures import Figure

SOAK_S = function_soak.FULL.seconds
NAMES = tuple(f"functions-{case}" for case in ("warm", "many", "cold", "memory", "noise", "soak", "schedules"))


def run(name: str, folder: Path, *, quick: bool = False, soak_s: float = SOAK_S) -> list[Figure]:
    """Run one of `NAMES`."""
    case = name.removeprefix("functions-")
    if case == "warm":
        return function_warm.run(folder, function_warm.TINY if quick else function_warm.FULL)
    if case == "many":
        return function_many.run(folder, function_many.TINY if quick else function_many.FULL)
    if case == "cold":
        return function_cold.run(folder, function_cold.TINY if quick else function_cold.FULL)
    if case == "memory":
        return function_memory.run(folder, function_memory.TINY if quick else function_memory.FULL)
    if case == "noise":
        return function_noise.run(folder, function_noise.TINY if quick else function_noise.FULL)
    if case == "soak":
        return function_soak.run(folder, function_soak.TINY if quick else replace(function_soak.FULL, seconds=soak_s))
    return function_schedules.run(folder, function_schedules.TINY if quick else function_schedules.FULL)
