"""Report known vulnerabilities of the locked dependencies; `make audit` runs it with the Python of pip-audit.

Without an argument pip-audit asks its advisory service. With a folder or ZIP file of advisories in the OSV format, a
server on loopback answers from those instead, so that a machine without network can be checked too. The exit code is 1
where a vulnerability is known, and 0 otherwise; packages that could not be checked are counted in the last line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

LOCKS = ("runtime.txt", "build.txt", "dev.txt")
Advisories = dict[str, list[dict[str, Any]]]


def main(arguments: list[str]) -> int:
    here = Path(__file__).parent
    locks = [here / name for name in LOCKS]
    if not arguments:
        return report(run_pip_audit(locks, []))
    server = serve(read_advisories(Path(arguments[0])))
    address = f"http://127.0.0.1:{server.server_address[1]}/v1/query"
    try:
        return report(run_pip_audit(locks, ["--vulnerability-service", "osv", "--osv-url", address]))
    finally:
        server.shutdown()


def run_pip_audit(locks: list[Path], options: list[str]) -> list[dict[str, Any]]:
    """Return one entry for each locked package: its known vulnerabilities, or why it was not checked."""
    found: dict[str, dict[str, Any]] = {}
    for lock in locks:
        with tempfile.TemporaryDirectory() as cache:
            argv = [sys.executable, "-m", "pip_audit", "--requirement", str(lock), "--no-deps", "--disable-pip"]
            argv += ["--format", "json", "--progress-spinner", "off", "--cache-dir", cache, *options]
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
        try:
            entries = json.loads(done.stdout)["dependencies"]
        except (ValueError, KeyError):
            why = (done.stderr.strip().splitlines() or ["no answer"])[-1]
            entries = [{"name": lock.name, "skip_reason": f"pip-audit failed: {why}"}]
        found |= {f"{each['name']}=={each.get('version', '?')}": each for each in entries}
    return list(found.values())


def report(entries: list[dict[str, Any]]) -> int:
    vulnerable = [each for each in entries if each.get("vulns")]
    skipped = [each for each in entries if "skip_reason" in each]
    for each in vulnerable:
        for vuln in each["vulns"]:
            fixed = ", ".join(vuln["fix_versions"]) or "no release"
            print(f"audit: {each['name']} {each['version']}: {vuln['id']} (fixed in: {fixed})")
    print(
        f"audit: {len(entries) - len(skipped)} packages checked, {len(vulnerable)} with known vulnerabilities, "
        f"{len(skipped)} not checked"
    )
    if skipped:
        print(f"audit: not checked, for example: {skipped[0]['name']}: {skipped[0]['skip_reason']}")
        print("audit: without network, pass advisories in the OSV format: make audit ADVISORIES=advisories.zip")
    return 1 if vulnerable else 0


def read_advisories(path: Path) -> Advisories:
    """Read OSV advisories, by the canonical name of the Python package that they are about."""
    by_package: Advisories = defaultdict(list)
    for text in _documents(path):
        advisory = json.loads(text)
        packages = {
            canonicalize_name(affected["package"]["name"])
            for affected in advisory.get("affected", [])
            if affected.get("package", {}).get("ecosystem") == "PyPI"
        }
        for name in packages:
            by_package[name].append(advisory)
    return by_package


def _documents(path: Path) -> Iterator[str]:
    if path.is_dir():
        for each in sorted(path.rglob("*.json")):
            yield each.read_text(encoding="utf-8")
        return
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".json"):
                yield archive.read(name).decode()


def affecting(advisories: Advisories, name: str, version: str) -> list[dict[str, Any]]:
    """Return the advisories that apply to a version of a package."""
    return [each for each in advisories.get(canonicalize_name(name), []) if _is_affected(each, name, version)]


def _is_affected(advisory: dict[str, Any], name: str, version: str) -> bool:
    for affected in advisory["affected"]:
        if canonicalize_name(affected.get("package", {}).get("name", "")) != canonicalize_name(name):
            continue
        if version in affected.get("versions", []):
            return True
        if any(
            _is_in_range(each["events"], Version(version))
            for each in affected.get("ranges", [])
            if each["type"] == "ECOSYSTEM"
        ):
            return True
    return False


def _is_in_range(events: list[dict[str, str]], version: Version) -> bool:
    """Return whether the events, ordered by version, leave a version affected."""
    is_affected = False
    for event in events:
        for kind, text in event.items():
            try:
                at = Version("0" if text == "0" else text)
            except InvalidVersion:
                continue
            if kind == "introduced" and version >= at:
                is_affected = True
            elif (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
                is_affected = False
    return is_affected


def serve(advisories: Advisories) -> ThreadingHTTPServer:
    """Answer queries of pip-audit on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            vulns = affecting(advisories, query["package"]["name"], query["version"])
            body = json.dumps({"vulns": vulns} if vulns else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
            """Print nothing for each query."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
