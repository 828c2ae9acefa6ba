"""Check the certificate of the operator, or the ordered one: its files, names, expiry, and the latest order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from moorage.gateway import operator_certificate
from moorage.gateway.wildcard import files as wildcard_files
from moorage.platform.doctor.findings import Check, State
from moorage.settings import BadSettings, Settings

NAME = "certificate"
SOON = timedelta(days=14)


def check(settings: Settings) -> Check:
    try:
        certificate = operator_certificate.find(settings)
    except BadSettings as error:
        return Check(NAME, State.FAIL, str(error), "give a certificate and its key in PEM, readable by this user")
    shown = "none"
    if certificate is not None:
        shown = f"{', '.join(certificate.names)} until {certificate.not_after:%Y-%m-%d}"
    if settings.orders_certificate and (why := wildcard_files.find_error(settings)):
        fix = "correct the cause; changed settings are tried at the next start"
        return Check(NAME, State.WARN, f"{shown}; the latest order: {why}", fix)
    if certificate is None:
        if settings.orders_certificate:
            return Check(NAME, State.WARN, "none was issued yet", "start the platform, which orders one")
        return Check(NAME, State.OK, shown)
    if certificate.not_after - datetime.now(UTC) < SOON:
        return Check(NAME, State.WARN, shown, "renew it: the new files are loaded without a restart")
    needed = {settings.domain, settings.function_hosts_domain} - {""}
    missing = sorted(domain for domain in needed if not certificate.covers(f"a.{domain}"))
    if missing:
        names = " and ".join(f"*.{domain}" for domain in missing)
        return Check(NAME, State.WARN, shown, f"names below it are issued one by one: add {names}")
    return Check(NAME, State.OK, shown)
