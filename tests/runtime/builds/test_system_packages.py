"""Failed builds of native modules: what is missing on the machine, and the package that has it."""

from __future__ import annotations

import pytest

from moorage.runtime.builds.diagnosis import explain


@pytest.mark.parametrize(
    ("output", "what", "package"),
    [
        ("src/x.c:3:10: fatal error: libpq-fe.h: No such file or directory\n", "header libpq-fe.h", "libpq-dev"),
        ("x.c:1:10: fatal error: Python.h: No such file or directory", "header Python.h", "python3-dev"),
        ("a.h:1: fatal error: openssl/evp.h: No such file or directory", "header openssl/evp.h", "libssl-dev"),
        ("fatal error: 'ffi.h' file not found", "header ffi.h", "libffi-dev"),
        ("/usr/bin/ld: cannot find -ljpeg: No such file or directory", "library jpeg", "libjpeg-dev"),
        ("Error: pg_config executable not found.", "program pg_config", "libpq-dev"),
        ("OSError: mysql_config not found", "program mysql_config", "libmariadb-dev"),
        ("/bin/sh: 1: xml2-config: not found", "program xml2-config", "libxml2-dev"),
        ("Package cairo was not found in the pkg-config search path.", "library cairo", "libcairo2-dev"),
        ("No package 'vips-cpp' found", "library vips-cpp", "libvips-dev"),
        ('Dependency "openblas" not found', "library openblas", "libopenblas-dev"),
        ("sh: 1: make: not found", "program make", "build-essential"),
        ("gyp ERR! stack Error: not found: make", "program make", "build-essential"),
        ("error: command 'gcc' failed: No such file or directory", "program gcc", "build-essential"),
        ("error: can't find Rust compiler", "program rustc", "cargo"),
    ],
)
def test_output_of_a_compiler_names_a_debian_package(output: str, what: str, package: str) -> None:
    said = explain(f"building...\n{output}\nmore")

    assert said is not None
    assert f"the {what} is missing on this machine" in said
    assert f"apt install {package}" in said


def test_an_unknown_header_is_named_without_a_package() -> None:
    said = explain("x.c:1:10: fatal error: rare/thing.h: No such file or directory")

    assert said is not None
    assert "rare/thing.h is missing" in said


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("  × No solution found\n  ╰─▶ Because ffmpegg was not found in the package registry and you require ffmpegg",
         "the package index has no ffmpegg: correct its name"),
        ('main.go:3:8: x.test/m@v1: Get "https://x.test/m": dial tcp: lookup x.test: no such host', "go mod vendor"),
        ("main.go:4:2: missing go.sum entry for module providing package x.test/m", "go mod tidy"),
        ("npm error code SELF_SIGNED_CERT_IN_CHAIN\nnpm error request to https://x.test/a failed", "MOORAGE_EXTRA_CA"),
        ("pip: SSLError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", "MOORAGE_EXTRA_CA"),
        ("  Caused by: invalid peer certificate: UnknownIssuer", "MOORAGE_EXTRA_CA"),
        ("fatal: unable to access 'https://x.test/': SSL certificate problem: self-signed", "MOORAGE_EXTRA_CA"),
        ("go: x.test/m@v1: tls: failed: x509: certificate signed by unknown authority", "MOORAGE_EXTRA_CA"),
        ("everything is wrong", None),
    ],
)  # fmt: skip
def test_other_failures_are_explained_where_the_fix_is_known(output: str, said: str | None) -> None:
    explained = explain(output)

    assert explained is None if said is None else said in str(explained)
