"""Builds that fail in a known way and are repeated with another command."""

from __future__ import annotations

import pytest

from moorage.runtime.builds.environment import Retry
from moorage.runtime.builds.node import sharp, warnings


@pytest.mark.parametrize(
    ("retry", "output"),
    [
        (sharp.retry("astro build"), '[vite]: Rollup failed to resolve import "sharp" from "/work/a.js".'),
        (sharp.retry("astro build"), "Error: Could not find Sharp."),
        (warnings.retry("npm run build"), "Treating warnings as errors because process.env.CI = true."),
    ],
)
def test_a_known_failure_is_recognised(retry: Retry, output: str) -> None:
    assert retry.pattern.search(output)


def test_the_command_itself_follows_the_remedy() -> None:
    assert sharp.retry("astro build").argv[2].endswith("sharp@0.33 && astro build")
    assert warnings.retry("npm run build").argv[2] == "export CI=false; npm run build"
