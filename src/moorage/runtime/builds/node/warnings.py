"""Build pages whose linter has complaints: they are no reason not to deploy.

Create React App treats warnings as errors where the variable CI is set. The platform sets it so that no tool asks
questions. Vue CLI lints during a build too, and stops at errors that its development server only shows.
"""

from __future__ import annotations

import re

from moorage.runtime.builds.environment import Retry

RETRY = Retry(
    re.compile(r"Treating warnings as errors because process\.env\.CI = true"),
    "the linter has warnings, which are errors where CI is true: the pages are built with CI=false",
    "the build command with CI=false",
    prepare="export CI=false",
)
VUE_RETRY = Retry(
    re.compile(r"\A(?>[\s\S]*?\b\d{1,9} problems? \(\d{1,9} errors?, )[\s\S]*?Build failed with errors\."),
    "the linter has errors: the pages are built without it",
    "the build command without the linter",
    prepare="sed -i 's/vue-cli-service build/& --skip-plugins eslint/' package.json",
)
