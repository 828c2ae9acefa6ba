"""Jekyll from the packages of the machine's Debian, for sites of GitHub Pages.

apt fetches and verifies the packages. They are unpacked into one folder with a program that sets the search paths, so
that nothing is installed on the machine. Builds mount the folder read-only.
"""

from __future__ import annotations

import contextlib
import platform
import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime import packages
from moorage.runtime.builds.ports import BuildFailed
from moorage.runtime.builds.python import debian
from moorage.runtime.builds.toolchain import toolchain_downloads
from moorage.runtime.workers import toolchain
from moorage.settings import Settings

Say = Callable[[str], None]

NAME = "jekyll-{}"  # folder of a release of Debian
PROGRAM = "bin/jekyll"
SITE = Path(__file__).with_name("jekyll_site.rb")
PACKAGES = (
    "jekyll",
    "jekyll-theme-minima",
    *(
        f"ruby-jekyll-{each}"
        for each in (
            *("archives", "avatar", "default-layout", "feed", "gist", "github-metadata", "include-cache"),
            *("last-modified-at", "mentions", "optional-front-matter", "paginate", "paginate-v2", "readme-index"),
            *("redirect-from", "relative-links", "seo-tag", "sitemap", "titles-from-headings", "toc"),
        )
    ),
)
REFUSAL = (
    "this machine cannot get Jekyll ({}): run `bundle exec jekyll build`, push the folder _site, and set its name as "
    "buildDir"
)
# Dependencies that are used from the machine: the C library belongs to its loader.
_MACHINES_OWN = re.compile(r"(?:libc6|libc-bin|libcrypt1|libgcc-s1|gcc-\d+-base|dpkg|perl|debconf|tar|openssl)(?:-|_)")
_LIBRARY = re.compile(r'"/usr/lib/[^"\n]*/(libsass)\.[^"\n]*"')
_DOCUMENTS = ("doc", "man", "lintian", "doc-base", "bash-completion", "systemtap", "locale")
# Debian compiles the search paths of Ruby in; gems are below three folders of the same layout.
_SCRIPT = """#!/bin/sh
home=$(dirname "$(dirname "$(readlink -f "$0")")")
version=$(basename "$home"/usr/lib/ruby/[0-9]*)
libraries=$(dirname "$(echo "$home"/usr/lib/*/libruby*.so.*.*.*)")
export LD_LIBRARY_PATH="$libraries"
own="$home/usr/lib/ruby"
export RUBYLIB="$own/vendor_ruby:$own/vendor_ruby/$version:$libraries/ruby/vendor_ruby/$version"
export RUBYLIB="$RUBYLIB:$own/$version:$libraries/ruby/$version"
gems="$home/usr/share/rubygems-integration"
export GEM_PATH="$gems/all:$gems/$version:$libraries/rubygems-integration/$version:$own/gems/$version"
export GEM_HOME="${TMPDIR:-/tmp}/gems" JEKYLL_NO_BUNDLER_REQUIRE=true JEKYLL_ENV="${JEKYLL_ENV:-production}"
export PAGES_DISABLE_NETWORK=1 PAGES_REPO_NWO="${PAGES_REPO_NWO:-owner/site}" LANG=C.UTF-8
exec "$home/usr/bin/ruby" "$home/bin/jekyll_site.rb" "$@"
"""


def ensure(settings: Settings, say: Say) -> Path:
    """Return the folder of Jekyll, fetched if needed; raises BuildFailed. Safe to run concurrently."""
    release = debian.release()
    own = settings.folder(toolchain_downloads.FOLDER)
    for folder in (own, toolchain_downloads.shared_folder()):
        if (folder / NAME.format(release)).is_dir():
            return _renewed(folder / NAME.format(release))
    with toolchain_downloads.locked(own):
        target = own / NAME.format(release)
        if not target.is_dir():
            say("fetching Jekyll from Debian, once for this machine")
            _fetch(release, own, target)
        return target


def _renewed(folder: Path) -> Path:
    """Give a folder that an earlier version fetched the program of this version, if it can be written."""
    program = folder / "bin" / SITE.name
    if program.is_file() and program.read_bytes() != SITE.read_bytes():
        with contextlib.suppress(OSError):
            fresh = program.with_name(f".new-{secrets.token_hex(8)}")
            shutil.copy(SITE, fresh)
            fresh.replace(program)
    return folder


def _fetch(release: str, own: Path, target: Path) -> None:
    scratch = own / f".new-{secrets.token_hex(8)}"
    scratch.mkdir(mode=0o700)
    try:
        if not release or shutil.which("apt-get", path=toolchain.SYSTEM_PATH) is None:
            raise BuildFailed(f"it is no Debian: {platform.platform()}")
        _download(release, scratch)
        assemble(scratch / "downloads", scratch / "fresh")
        debian.run([str(scratch / "fresh" / PROGRAM), "--version"], scratch)
        (scratch / "fresh").rename(target)
    except BuildFailed as error:
        raise BuildFailed(REFUSAL.format(error)) from error
    finally:
        folders.remove(scratch)


def _download(release: str, scratch: Path) -> None:
    options = debian.apt_options(release, scratch)
    (scratch / "status").touch()
    (scratch / "downloads" / "partial").mkdir(parents=True)
    # An empty list of installed packages: apt then downloads all dependencies, also those that this machine has.
    options += ["-o", f"Dir::State::status={scratch / 'status'}"]
    options += ["-o", f"Dir::Cache::archives={scratch / 'downloads'}"]
    debian.run(["apt-get", *options, "update"], scratch)
    install = ["install", "--yes", "--no-install-recommends", "--download-only", *PACKAGES]
    debian.run(["apt-get", *options, *install], scratch)


def assemble(downloads: Path, target: Path) -> None:
    """Unpack packages of Debian into a folder, with a program that starts Jekyll from there."""
    for path in sorted(downloads.glob("*.deb")):
        if not _MACHINES_OWN.match(path.name):
            debian.run(["dpkg-deb", "--extract", str(path), str(target)], downloads)
    for place in (target / "var", target / "etc", *(target / "usr/share" / name for name in _DOCUMENTS)):
        folders.remove(place)
    for path in target.glob("usr/share/rubygems-integration/all/gems/sassc-*/lib/sassc/native.rb"):
        path.write_text(_LIBRARY.sub(r'"\1.so.1"', path.read_text()))
    (target / "bin").mkdir()
    (target / PROGRAM).write_text(_SCRIPT)
    shutil.copy(SITE, target / "bin")
    packages.make_readable(target)
    (target / PROGRAM).chmod(0o755)
