"""Image references."""

from __future__ import annotations

import pytest

from moorage.runtime.images.references import Reference, parse

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag", "digest"),
    [
        ("busybox", "docker.io", "library/busybox", "latest", None),
        ("busybox:1.36", "docker.io", "library/busybox", "1.36", None),
        ("docker.io/busybox", "docker.io", "library/busybox", "latest", None),
        ("index.docker.io/team/tool", "docker.io", "team/tool", "latest", None),
        ("team/tool:v1", "docker.io", "team/tool", "v1", None),
        ("ghcr.io/team/deep/tool:v1", "ghcr.io", "team/deep/tool", "v1", None),
        ("GHCR.io/team/tool", "ghcr.io", "team/tool", "latest", None),
        ("localhost/tool", "localhost", "tool", "latest", None),
        ("localhost:5000/tool:a_B.c-1", "localhost:5000", "tool", "a_B.c-1", None),
        ("[::1]:5000/tool", "[::1]:5000", "tool", "latest", None),
        (f"busybox@{DIGEST}", "docker.io", "library/busybox", None, DIGEST),
        (f"ghcr.io/a/b:1@{DIGEST}", "ghcr.io", "a/b", "1", DIGEST),
        ("a__b/c---d/e.f_g", "docker.io", "a__b/c---d/e.f_g", "latest", None),
        (f"tool:{'t' * 128}", "docker.io", "library/tool", "t" * 128, None),
    ],
)
def test_names_are_read_as_every_container_tool_reads_them(
    text: str, registry: str, repository: str, tag: str | None, digest: str | None
) -> None:
    assert parse(text, "docker.io") == Reference(registry, repository, tag, digest)


@pytest.mark.parametrize(
    "text",
    [
        "", "Busybox", "team/Tool", "team//tool", "/tool", "tool/", "a..b", "a___b", "-a", "a-", "a b", "tool:",
        "tool:-x", f"tool:{'t' * 129}", "tool@sha256:abc", f"tool@{DIGEST}0", "tool@md5:" + "0" * 32,
        "https://ghcr.io/team/tool", "ghcr.io:99999/tool", "ghcr.io:0/tool", "user@ghcr.io/tool", "ghcr.io/",
        "-x.io/tool", "a" * 256, "tööl", "tool\n", "tool\0", "ghcr.io/../x", "a/" * 260 + "b",
    ],
)  # fmt: skip
def test_what_is_no_name_of_an_image_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+ \w+"):
        parse(text, "docker.io")


def test_another_default_registry_holds_the_names_without_one() -> None:
    mirror = "mirror.example.com:5000"

    assert str(parse("busybox", mirror)) == "mirror.example.com:5000/library/busybox:latest"
    assert str(parse("team/tool", mirror)) == "mirror.example.com:5000/team/tool:latest"
    assert str(parse("docker.io/busybox", mirror)) == "docker.io/library/busybox:latest"


@pytest.mark.parametrize("text", ["busybox", "ghcr.io/a/b:1", f"a/b@{DIGEST}", f"a/b:c@{DIGEST}"])
def test_a_reference_reads_back_what_it_writes(text: str) -> None:
    reference = parse(text)

    assert parse(str(reference)) == reference


def test_a_digest_is_asked_for_before_a_tag() -> None:
    assert parse(f"tool:1@{DIGEST}").wanted == DIGEST
    assert parse("tool:1").wanted == "1"
