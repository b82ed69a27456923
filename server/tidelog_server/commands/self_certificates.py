"""Makes an authority, and certificates of a server and a client that it signed, for development and for trying TLS out.

``tidelog serve --tls-self`` uses it, and a container before its server::

    python -m tidelog_server.commands.self_certificates FOLDER --name=HOST_OR_ADDRESS[,HOST_OR_ADDRESS...]...

Leaves ``authority.pem``, ``server.pem``, ``server.key``, ``client.pem`` and ``client.key`` in a folder, readable by
this user only. Certificates that are there, name the same hosts and live for 30 more days are kept, so it can run
before each start. The authority's key is discarded, so it cannot sign further certificates.
"""

import argparse
import ipaddress
import stat
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tidelog_server.runtime.clock import SystemClock
from tidelog_server.storage.format.durable_files import make_folder, replace_file

AUTHORITY: Final = "authority.pem"
SERVER: Final = "server.pem"
SERVER_KEY: Final = "server.key"
LIFE: Final = timedelta(days=90)
RENEW_BEFORE: Final = timedelta(days=30)
# Clocks of the machines that look at a certificate may be behind.
_SKEW: Final = timedelta(minutes=5)
_ROLES: Final = (("server", ExtendedKeyUsageOID.SERVER_AUTH), ("client", ExtendedKeyUsageOID.CLIENT_AUTH))
_NOBODY_ELSE: Final = stat.S_IRWXG | stat.S_IRWXO


def main(arguments: Sequence[str]) -> int:
    """Make what is missing or about to expire, and print what was done."""
    parser = argparse.ArgumentParser(description="Make certificates for trying TLS out.")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--name", action="append", required=True, help="host name or address of the server, or several with commas"
    )
    parsed = parser.parse_args(arguments)
    names = [name for text in parsed.name for name in map(str.strip, text.split(",")) if name]
    is_new = ensure_certificates(parsed.folder, names, datetime.fromtimestamp(SystemClock().wall_ms() / 1_000, UTC))
    done = f"made for {', '.join(names)}, valid for {LIFE.days} days" if is_new else "valid: nothing to do"
    sys.stdout.write(f"the certificates in {parsed.folder}: {done}\n")
    return 0


def ensure_certificates(folder: Path, names: Sequence[str], now: datetime) -> bool:
    """Make all files unless valid ones for the same names are there; return whether they were made.

    Raises:
        OSError: The folder cannot be made, or a file in it cannot be read or written.
        ValueError: A name is neither an address nor a host name in ASCII.
    """
    wanted = _alternative_names(names)
    make_folder(folder)
    if _are_good(folder, wanted, now):
        return False
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = _common_name("Tidelog test authority")
    authority = (
        _started(authority_name, authority_name, authority_key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    replace_file(folder / AUTHORITY, authority.public_bytes(serialization.Encoding.PEM))
    for role, purpose in _ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _started(_common_name(f"Tidelog {role}"), authority_name, key, now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(wanted if role == "server" else _alternative_names([role]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
            .sign(authority_key, hashes.SHA256())
        )
        # Each at once, the key first: a server that looks just then sees the old file or the new one.
        replace_file(folder / f"{role}.key", _private_bytes(key))
        replace_file(folder / f"{role}.pem", certificate.public_bytes(serialization.Encoding.PEM))
    return True


def _are_good(folder: Path, wanted: x509.SubjectAlternativeName, now: datetime) -> bool:
    """Return whether all files are there, belong together, have these names, and live for a while."""
    try:
        authority = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
        server, client = (_certificate(folder, role, authority) for role, _ in _ROLES)
        names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (FileNotFoundError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        # An attempt that a crash ended leaves files of two authorities.
        return False
    return names == wanted and all(
        each.not_valid_before_utc <= now < each.not_valid_after_utc - RENEW_BEFORE
        for each in (authority, server, client)
    )


def _certificate(folder: Path, role: str, authority: x509.Certificate) -> x509.Certificate:
    """Return the certificate of a role. Raises what ``_are_good`` takes for a reason to make all of them again."""
    key_path = folder / f"{role}.key"
    certificate = x509.load_pem_x509_certificate((folder / f"{role}.pem").read_bytes())
    certificate.verify_directly_issued_by(authority)
    key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
    if key.public_key() != certificate.public_key():
        raise ValueError(f"{key_path} belongs to another certificate")
    if key_path.stat().st_mode & _NOBODY_ELSE:
        raise ValueError(f"{key_path} may be known to others")
    return certificate


def _started(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    """Return a certificate that lacks extensions and a signature."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + LIFE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _common_name(text: str) -> x509.Name:
    """Return a name for people; who is who is decided by alternative names."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative_names(names: Sequence[str]) -> x509.SubjectAlternativeName:
    """Return host names and addresses as a certificate has them. Raises ValueError."""
    return x509.SubjectAlternativeName([_alternative_name(name) for name in names])


def _alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return what a key may be used for: to sign certificates, or in a handshake."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
