"""Build pages with bundlers that hash with MD4, which OpenSSL 3 and thus newer versions of Node.js refuse."""

from __future__ import annotations

import re

from moorage.runtime.builds.environment import Retry

OPTION = "--openssl-legacy-provider"
NOTE = f"a bundler uses a digest that newer versions of Node.js refuse: the build is repeated with {OPTION}"
_REFUSED = re.compile(r"ERR_OSSL_EVP_UNSUPPORTED|error:0308010C|digital envelope routines::unsupported")


def retry(build: str) -> Retry:
    """Return the build with the option that allows old digests, for a build that failed without it."""
    command = f'export NODE_OPTIONS="$NODE_OPTIONS {OPTION}"; {build}'
    return Retry(_REFUSED, NOTE, f"the build command with {OPTION}", ["/bin/sh", "-c", command])
