"""Probes of TLS files. They report problems as findings and do not raise. Arguments are plain values."""

import stat
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from tidelog_server.commands.probes import Finding, Severity

_WARN_BEFORE: Final = timedelta(days=30)
_READABLE_BY_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def check_tls_files(
    cert: Path, key: Path, client_ca: Path | None = None, *, name: str = "tls", now: datetime | None = None
) -> list[Finding]:
    """Check a certificate chain, its private key, and the CA of clients.

    Args:
        cert: PEM file of the chain, the server's certificate first.
        key: PEM file of the unencrypted private key.
        client_ca: PEM file of the CA certificates; None if clients need no certificate.
        name: Prefix of each finding's name, such as ``tls`` or ``etcd``.
        now: Time at which the certificates must be valid; None for now.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    now = now or datetime.now(UTC)
    findings: list[Finding] = []
    chain: Sequence[x509.Certificate] = ()
    try:
        chain = x509.load_pem_x509_certificates(cert.read_bytes())
    except (OSError, ValueError) as error:
        findings.append(_unreadable(f"{name} certificate", cert, error))
    findings += [_validity(f"{name} certificate", cert, each, now) for each in chain]
    try:
        private = load_pem_private_key(key.read_bytes(), password=None)
        findings.append(_permissions(f"{name} key", key))
        if chain and private.public_key() != chain[0].public_key():
            findings.append(
                Finding(
                    f"{name} key", Severity.FAILURE, f"{key} does not match {cert}: use a certificate with its own key"
                )
            )
    except (OSError, ValueError, TypeError) as error:
        findings.append(_unreadable(f"{name} key", key, error))
    if client_ca is not None:
        try:
            authorities = x509.load_pem_x509_certificates(client_ca.read_bytes())
            findings += [_validity(f"{name} client authority", client_ca, each, now) for each in authorities]
        except (OSError, ValueError) as error:
            findings.append(_unreadable(f"{name} client authority", client_ca, error))
    return findings


def _validity(check: str, path: Path, certificate: object, now: datetime) -> Finding:
    from cryptography import x509

    assert isinstance(certificate, x509.Certificate)
    subject = certificate.subject.rfc4514_string() or "no subject"
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    text = f"{path}: {subject}, until {end:%Y-%m-%d %H:%M} UTC"
    if now < begin:
        return Finding(check, Severity.FAILURE, f"{text}; not valid before {begin:%Y-%m-%d %H:%M}: check the clock")
    if end <= now:
        return Finding(check, Severity.FAILURE, f"{text}: expired; replace the file and send SIGHUP")
    if end - now < _WARN_BEFORE:
        return Finding(check, Severity.WARNING, f"{text}: expires in {(end - now).days} days; renew it")
    return Finding(check, Severity.OK, text)


def _permissions(check: str, path: Path) -> Finding:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _READABLE_BY_OTHERS:
        return Finding(check, Severity.WARNING, f"{path} has mode {mode:04o}: other users can access it; use chmod 600")
    return Finding(check, Severity.OK, f"{path} has mode {mode:04o}")


def _unreadable(check: str, path: Path, error: Exception) -> Finding:
    cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error).splitlines()[0][:120]
    return Finding(check, Severity.FAILURE, f"cannot use {path} ({cause}): correct the path or the file")
