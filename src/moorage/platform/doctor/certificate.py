"""Check the operator's certificate: its files, its names and its expiry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from moorage.gateway import operator_certificate
from moorage.platform.doctor.findings import Check, State
from moorage.settings import BadSettings, Settings

NAME = "certificate"
SOON = timedelta(days=14)


def check(settings: Settings) -> Check:
    try:
        certificate = operator_certificate.find(settings)
    except BadSettings as error:
        return Check(NAME, State.FAIL, str(error), "give a certificate and its key in PEM, readable by this user")
    if certificate is None:
        return Check(NAME, State.OK, "none")
    shown = f"{', '.join(certificate.names)} until {certificate.not_after:%Y-%m-%d}"
    if certificate.not_after - datetime.now(UTC) < SOON:
        return Check(NAME, State.WARN, shown, "renew it: the new files are loaded without a restart")
    needed = {settings.domain, settings.function_hosts_domain} - {""}
    missing = sorted(domain for domain in needed if not certificate.covers(f"a.{domain}"))
    if missing:
        names = " and ".join(f"*.{domain}" for domain in missing)
        return Check(NAME, State.WARN, shown, f"names below it are issued one by one: add {names}")
    return Check(NAME, State.OK, shown)
