"""Headers, libraries and programs that the machine lacks, by the output of a failed program."""

from __future__ import annotations

import re

# Headers, libraries and programs that native modules need, by the Debian package that has them.
DEBIAN = {
    "libpq-dev": ("libpq-fe.h", "postgres_ext.h", "pg_config", "pq", "libpq"),
    "libmariadb-dev": ("mysql.h", "mysql_config", "mariadb_config", "mysqlclient", "mariadb", "libmariadb"),
    "libssl-dev": ("openssl/ssl.h", "openssl/*", "ssl", "crypto", "openssl", "libssl"),
    "libffi-dev": ("ffi.h", "ffi", "libffi"),
    "zlib1g-dev": ("zlib.h", "z", "zlib"),
    "libjpeg-dev": ("jpeglib.h", "jpeg", "libjpeg"),
    "libpng-dev": ("png.h", "png", "libpng", "libpng16"),
    "libtiff-dev": ("tiffio.h", "tiff", "libtiff-4"),
    "libfreetype-dev": ("ft2build.h", "freetype", "freetype2"),
    "libxml2-dev": ("libxml/*", "xml2", "libxml-2.0", "xml2-config"),
    "libxslt1-dev": ("libxslt/*", "libexslt/*", "xslt", "exslt", "libxslt", "xslt-config"),
    "libsqlite3-dev": ("sqlite3.h", "sqlite3"),
    "libcairo2-dev": ("cairo.h", "cairo/*", "cairo"),
    "libpango1.0-dev": ("pango/*", "pangocairo", "pango-1.0", "pango"),
    "libgif-dev": ("gif_lib.h", "gif"),
    "librsvg2-dev": ("librsvg/*", "rsvg-2", "librsvg-2.0"),
    "libvips-dev": ("vips/*", "vips", "vips-cpp"),
    "libcurl4-openssl-dev": ("curl/*", "curl", "curl-config", "libcurl"),
    "libldap2-dev": ("ldap.h", "lber.h", "ldap", "lber"),
    "libsasl2-dev": ("sasl/*", "sasl.h", "sasl2"),
    "libkrb5-dev": ("gssapi.h", "gssapi/*", "krb5.h", "krb5-config", "gssapi_krb5"),
    "libgmp-dev": ("gmp.h", "gmp"),
    "libmpfr-dev": ("mpfr.h", "mpfr"),
    "libyaml-dev": ("yaml.h", "yaml"),
    "libbz2-dev": ("bzlib.h", "bz2"),
    "liblzma-dev": ("lzma.h", "lzma"),
    "libmagic-dev": ("magic.h", "magic"),
    "libmemcached-dev": ("libmemcached/*", "memcached"),
    "unixodbc-dev": ("sql.h", "sqlext.h", "odbc", "odbcinst"),
    "libhdf5-dev": ("hdf5.h", "hdf5"),
    "libgdal-dev": ("gdal.h", "gdal-config", "gdal_version.h", "gdal"),
    "libgeos-dev": ("geos_c.h", "geos-config", "geos", "geos_c"),
    "libproj-dev": ("proj.h", "proj"),
    "libopenblas-dev": ("cblas.h", "openblas", "blas", "lapack"),
    "libxmlsec1-dev": ("xmlsec/*", "xmlsec1"),
    "libsystemd-dev": ("systemd/*", "systemd", "libsystemd"),
    "libudev-dev": ("libudev.h", "udev", "libudev"),
    "libusb-1.0-0-dev": ("libusb.h", "libusb-1.0/*", "usb-1.0", "libusb-1.0"),
    "portaudio19-dev": ("portaudio.h", "portaudio", "portaudio-2.0"),
    "libsndfile1-dev": ("sndfile.h", "sndfile"),
    "libzmq3-dev": ("zmq.h", "zmq", "libzmq"),
    "libsodium-dev": ("sodium.h", "sodium", "libsodium"),
    "libdbus-1-dev": ("dbus/*", "dbus-1"),
    "libglib2.0-dev": ("glib.h", "glib-2.0", "gobject-2.0"),
    "python3-dev": ("Python.h", "pyconfig.h"),
    "build-essential": ("gcc", "cc", "g++", "c++", "make", "x86_64-linux-gnu-gcc", "aarch64-linux-gnu-gcc", "stdio.h"),
    "pkg-config": ("pkg-config",),
    "cmake": ("cmake",),
    "ninja-build": ("ninja",),
    "gfortran": ("gfortran",),
    "cargo": ("cargo", "rustc"),
    "default-jdk": ("javac", "java"),
    "git": ("git",),
}  # fmt: skip
_BY_NEED = {need: package for package, needs in DEBIAN.items() for need in needs}
_HEADER = re.compile(r"fatal error: ['\"]?([\w./+-]+\.h(?:pp)?)['\"]?(?:: No such file| file not found)")
_LIBRARY = re.compile(r"cannot find -l([\w.+-]+)")
_MODULE = re.compile(
    r"(?:Package|No package) ['\"]?([\w.+-]+)['\"]?(?: was not found| found)|Dependency \"([\w.+-]+)\" not found"
)
_PROGRAM = re.compile(
    r"(pg_config|mysql_config|mariadb_config|\w{1,60}-config) (?:executable )?not found"
    r"|\b(?!Error\b)([\w+-]{1,60}): (?:command )?not found"
    r"|(?:command|program|executable) ['\"]([\w+-]+)['\"] (?:failed: No such file|not found)"
    r"|error: command '([\w+/-]+)' failed: No such file|spawn ([\w+-]+) ENOENT|Can not find valid (pkg-config) name"
    r"|not found: (make|gcc|g\+\+|cc)\b|can't find Rust compiler|exec: \"([\w+-]+)\": executable file not found"
)
_CERTIFICATE = re.compile(
    r"SELF_SIGNED_CERT|UNABLE_TO_GET_ISSUER_CERT|UNABLE_TO_VERIFY_LEAF_SIGNATURE|CERTIFICATE_VERIFY_FAILED"
    r"|self-signed certificate|unable to get local issuer certificate|UnknownIssuer|SSL certificate problem"
    r"|certificate signed by unknown authority|server certificate verification failed"
)


def explain_missing(output: str) -> str | None:
    """Return a sentence that names the missing part and its Debian package, or None."""
    if untrusted := explain_certificate(output):
        return untrusted
    for kind, pattern in (("the header", _HEADER), ("the library", _LIBRARY), ("the library", _MODULE)):
        if match := pattern.search(output):
            return _install(f"{kind} {_first(match)}", _first(match))
    for match in _PROGRAM.finditer(output):
        name = _first(match).rpartition("/")[2] or "rustc"
        if name in _BY_NEED:
            return _install(f"the program {name}", name)
    return None


def explain_certificate(output: str) -> str | None:
    """Return one sentence if a download failed because a CA is not trusted, or None."""
    if not _CERTIFICATE.search(output):
        return None
    return (
        "a server's certificate is not trusted: the operator sets MOORAGE_EXTRA_CA to a file with the CA certificates "
        "of the network and the usual ones, and starts the platform again"
    )


def _first(match: re.Match[str]) -> str:
    return next((group for group in match.groups() if group), "")


def _install(missing: str, name: str) -> str:
    package = _BY_NEED.get(name) or _BY_NEED.get(f"{name.partition('/')[0]}/*") or _BY_NEED.get(name.rpartition("/")[2])
    if package is None:
        return f"{missing} is missing on this machine: install its system package, or use a package with wheels"
    return f"{missing} is missing on this machine: install the Debian package {package} (apt install {package})"
