"""Writing down what checks found, and everything that follows from it, in one transaction.

A batch is written whole or not at all, and one that is written twice counts once: a prober that does not know whether
a batch arrived sends it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.products.monitors.alerts import expiry, incidents
from moorage.products.monitors.probing import tables as recording_tables
from moorage.products.monitors.probing.beats import Beat
from moorage.products.monitors.probing.tables import as_list
from moorage.products.monitors.tables import SPANS, Monitor

MOST_LATE_MS = 2**31 - 1  # that the store can hold; only a clock that was set says more
UNKNOWN = "\N{REPLACEMENT CHARACTER}"

Found = tuple[Monitor, Beat]


@across_organizations("a prober checks the monitors of everybody")
def record(tx: Tx, prober: str, beats: Sequence[Beat]) -> int:
    """Write down checks and judge alerts by them. Return how many counted.

    Those of monitors that are gone, that are paused or that another prober holds do not, and neither do those whose
    slot was written down before. Safe to repeat.
    """
    found = _new(tx, prober, beats)
    if not found:
        return 0
    # Before the rest: judging looks at the heartbeats of some time, these among them.
    tx.run_many(recording_tables.ADD_HEARTBEAT, [_heartbeat(beat) for _, beat in found])
    tx.run_many(recording_tables.ADD_TO_ROLLUP, [_rollup(beat, span_s) for _, beat in found for span_s in SPANS])
    tx.run_many(recording_tables.SET_STATE, [_state(beat) for _, beat in found])
    incidents.on_beats(tx, found)
    for monitor, beat in found:
        expiry.on_beat(tx, monitor.org_id, monitor, beat)
    return len(found)


@across_organizations("a prober checks the monitors of everybody")
def _new(tx: Tx, prober: str, beats: Sequence[Beat]) -> list[Found]:
    """Return the checks that count with their monitors, by monitor and then by slot; the monitors are locked."""
    ids = as_list({beat.monitor_id for beat in beats})
    held = {monitor.id: monitor for monitor in tx.all(recording_tables.HOLD, prober=prober, ids=ids)}
    mine = [beat for beat in beats if beat.monitor_id in held and held[beat.monitor_id].org_id == beat.org_id]
    wanted = {(beat.monitor_id, beat.slot): beat for beat in reversed(mine)}  # of two for one slot the first counts
    # Heartbeats are only written under the lock of their monitor, so what is not known now is new.
    known = set(tx.all(recording_tables.KNOWN, beats=as_list(wanted))) if wanted else set()
    return [(held[key[0]], _storable(wanted[key])) for key in sorted(wanted.keys() - known)]


def _storable(beat: Beat) -> Beat:
    """Return it without characters that no store takes. Servers choose some of the text, and might well send those."""
    found, certificate = beat.outcome, beat.outcome.certificate
    texts = (found.message, certificate.subject, certificate.issuer) if certificate else (found.message,)
    if all(map(str.isprintable, texts)):
        return beat
    if certificate is not None:
        subject, issuer = _printable(certificate.subject), _printable(certificate.issuer)
        certificate = replace(certificate, subject=subject, issuer=issuer)
    return replace(beat, outcome=replace(found, message=_printable(found.message), certificate=certificate))


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else UNKNOWN for character in text)


def _heartbeat(beat: Beat) -> dict[str, Any]:
    return {
        "org_id": beat.org_id,
        "monitor_id": beat.monitor_id,
        "slot": beat.slot,
        "at": beat.at,
        "status": beat.status,
        "response_ms": beat.outcome.response_ms,
        "code": beat.outcome.code,
        "message": beat.outcome.message,
    }


def _rollup(beat: Beat, span_s: int) -> dict[str, Any]:
    is_up = beat.outcome.is_up
    return {
        "org_id": beat.org_id,
        "monitor_id": beat.monitor_id,
        "span_s": span_s,
        "start": beat.slot - beat.slot % (span_s * 1000),
        "up": int(is_up),
        "down": int(not is_up),
        "response_sum": (beat.outcome.response_ms or 0) if is_up else 0,
    }


def _state(beat: Beat) -> dict[str, Any]:
    certificate = beat.outcome.certificate
    return {
        "org_id": beat.org_id,
        "monitor_id": beat.monitor_id,
        "status": beat.status,
        "response_ms": beat.outcome.response_ms,
        "code": beat.outcome.code,
        "at": beat.at,
        "slot": beat.slot,
        "late_ms": min(beat.lag_ms, MOST_LATE_MS),
        "skipped": beat.missed,
        "new_ssl_subject": certificate and certificate.subject,
        "new_ssl_issuer": certificate and certificate.issuer,
        "new_ssl_valid_to": certificate and certificate.valid_to,
        "new_ssl_fingerprint": certificate and certificate.fingerprint,
    }
