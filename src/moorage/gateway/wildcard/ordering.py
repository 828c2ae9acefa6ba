"""Order of a certificate for the platform's own domains and all names below them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from joserfc.errors import JoseError
from joserfc.jwk import ECKey

from moorage.core.net.client import GuardedClient
from moorage.core.net.targets import OPERATOR_TARGETS
from moorage.gateway import operator_certificate
from moorage.gateway.wildcard.acme import AcmeClient, Challenge
from moorage.gateway.wildcard.dns_updates import DnsUpdates
from moorage.gateway.wildcard.errors import CannotOrder
from moorage.products.domains.dns import Resolver
from moorage.settings import Settings

ORDER_TIMEOUT_S = 600.0


async def order(settings: Settings, names: Sequence[str], log: Any) -> bytes:
    """Return a new key and the chain of its certificate, in PEM form; raises CannotOrder.

    The TXT records are removed in any case. May be repeated, within the rate limits of the authority.
    """
    updates = DnsUpdates(settings, Resolver(settings))
    account = await asyncio.to_thread(_account_key, settings)
    timeout_s = ORDER_TIMEOUT_S + settings.dns_update_wait_s
    async with GuardedClient(OPERATOR_TARGETS, user_agent="Moorage", authorities=settings.acme_ca) as http:
        acme = AcmeClient(http, settings.acme_directory, account)
        try:
            async with asyncio.timeout(timeout_s):
                bundle = await _order(acme, updates, names, settings.acme_email)
        except TimeoutError:
            raise CannotOrder(f"the order took longer than {timeout_s:g} s") from None
        finally:
            if errors := await updates.remove_added():
                log.warning("TXT records of the wildcard certificate were not removed", why=errors)
    return bundle


async def _order(acme: AcmeClient, updates: DnsUpdates, names: Sequence[str], email: str) -> bytes:
    await acme.log_in(email)
    ordered = await acme.order(names)
    challenges = [await acme.find_challenge(url) for url in ordered.authorizations]
    await _prove(acme, updates, [challenge for challenge in challenges if challenge is not None])
    key = ec.generate_private_key(ec.SECP256R1())
    chain = await acme.finish(ordered, _request(key, names))
    _check(chain, key)
    return _pem(key) + chain


async def _prove(acme: AcmeClient, updates: DnsUpdates, challenges: Sequence[Challenge]) -> None:
    """Add all records before the first lookup: a domain and its wildcard share one name."""
    values = defaultdict[str, list[str]](list)
    for challenge in challenges:
        values[challenge.domain].append(challenge.value)
    for domain, proofs in sorted(values.items()):
        await updates.add(domain, proofs)
    if values:
        await asyncio.sleep(updates.settings.dns_update_wait_s)
    for challenge in challenges:
        await acme.begin(challenge)
    for challenge in challenges:
        await acme.check(challenge)


def _check(chain: bytes, key: ec.EllipticCurvePrivateKey) -> None:
    try:
        certificate = x509.load_pem_x509_certificates(chain)[0]
        certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (ValueError, x509.ExtensionNotFound) as error:
        raise CannotOrder(f"the certificate authority sent no usable certificate: {error}") from error
    if certificate.public_key() != key.public_key():
        raise CannotOrder("the certificate authority sent a certificate of another key")


def _request(key: ec.EllipticCurvePrivateKey, names: Sequence[str]) -> bytes:
    """Return a certificate request in DER form."""
    alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    request = builder.add_extension(alternatives, critical=False).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.DER)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption())


def _account_key(settings: Settings) -> ECKey:
    """Return the key of this machine's account, made at the first order."""
    path = settings.folder("keys") / "acme" / "account.key"
    try:
        return ECKey.import_key(path.read_bytes())
    except (OSError, JoseError, ValueError):
        key = ECKey.generate_key("P-256")
        operator_certificate.write_private(path, key.as_pem(private=True))
        return key
