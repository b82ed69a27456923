"""Findings of ``tidelog doctor`` about TLS files. Method: generated certificates: valid, expired, swapped, garbled."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tidelog_server.commands.probes import Severity
from tidelog_server.commands.probes_tls import check_tls_files

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def issue(folder: Path, name: str, *, days: float, mode: int = 0o600) -> tuple[Path, Path]:
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=100))
        .not_valid_after(NOW + timedelta(days=days))
        .sign(private, hashes.SHA256())
    )
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    cert.write_bytes(certificate.public_bytes(Encoding.PEM))
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    key.chmod(mode)
    return cert, key


def worst(*findings: object) -> list[tuple[str, Severity]]:
    from tidelog_server.commands.probes import Finding

    assert all(isinstance(each, Finding) for each in findings)
    return [(each.check, each.severity) for each in findings if isinstance(each, Finding) and each.severity]


def test_a_good_pair_is_fine(tmp_path: Path) -> None:
    cert, key = issue(tmp_path, "good", days=90)
    findings = check_tls_files(cert, key, cert, now=NOW)
    assert [each.check for each in findings] == ["tls certificate", "tls key", "tls client authority"]
    assert worst(*findings) == []


@pytest.mark.parametrize(("days", "severity"), [(-1, Severity.FAILURE), (20, Severity.WARNING)])
def test_what_expires_is_told(tmp_path: Path, days: float, severity: Severity) -> None:
    cert, key = issue(tmp_path, "old", days=days)
    assert worst(*check_tls_files(cert, key, now=NOW)) == [("tls certificate", severity)]


def test_a_key_of_another_certificate_fails(tmp_path: Path) -> None:
    cert, _ = issue(tmp_path, "one", days=90)
    _, key = issue(tmp_path, "other", days=90)
    assert worst(*check_tls_files(cert, key, now=NOW)) == [("tls key", Severity.FAILURE)]


def test_a_key_that_others_may_read_is_a_warning(tmp_path: Path) -> None:
    cert, key = issue(tmp_path, "open", days=90, mode=0o644)
    assert worst(*check_tls_files(cert, key, now=NOW)) == [("tls key", Severity.WARNING)]


def test_files_that_are_missing_or_garbled_fail_by_name(tmp_path: Path) -> None:
    cert, key = issue(tmp_path, "good", days=90)
    cert.write_text("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")
    findings = check_tls_files(cert, tmp_path / "absent", key, name="etcd", now=NOW)
    assert worst(*findings) == [
        ("etcd certificate", Severity.FAILURE),
        ("etcd key", Severity.FAILURE),
        ("etcd client authority", Severity.FAILURE),
    ]
    assert "absent" in findings[1].text
