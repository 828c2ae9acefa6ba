"""Build pages with bundlers that hash with MD4, which OpenSSL 3 and thus newer versions of Node.js refuse."""

from __future__ import annotations

import re

from moorage.runtime.builds.environment import Retry

OPTION = "--openssl-legacy-provider"
NOTE = f"a bundler uses a digest that newer versions of Node.js refuse: the build is repeated with {OPTION}"
_REFUSED = re.compile(r"ERR_OSSL_EVP_UNSUPPORTED|error:0308010C|digital envelope routines::unsupported")


RETRY = Retry(
    _REFUSED, NOTE, f"the build command with {OPTION}", prepare=f'export NODE_OPTIONS="$NODE_OPTIONS {OPTION}"'
)
