"""Makes an authority, and certificates of a server and a client that it signed, for trying TLS out.

    python make_certificates.py FOLDER --name=HOST_OR_ADDRESS[,HOST_OR_ADDRESS...]...

Leaves ``authority.pem``, ``server.pem``, ``server.key``, ``client.pem`` and ``client.key`` in FOLDER. Certificates that
are there, name the same hosts and live for 30 more days are kept, so it can run before each start. The authority's
key is not written anywhere: an operator who needs more certificates makes all of them again. For production, use your
own authority.
"""

import argparse
import ipaddress
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = timedelta(days=90)
RENEW_BEFORE = timedelta(days=30)
# Clocks of the machines that look at a certificate may be behind.
SKEW = timedelta(minutes=5)
FILES = ("authority.pem", "server.pem", "server.key", "client.pem", "client.key")


def main(arguments: Sequence[str]) -> int:
    """Make what is missing or about to expire, and say what was done."""
    parser = argparse.ArgumentParser(description="Make certificates for trying TLS out.")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--name", action="append", required=True, help="host name or address of the server, or several with commas"
    )
    parsed = parser.parse_args(arguments)
    names = [name for text in parsed.name for name in map(str.strip, text.split(",")) if name]
    os.umask(0o077)
    if are_good(parsed.folder, names):
        print(f"the certificates in {parsed.folder} are good: nothing to do")
        return 0
    make(parsed.folder, names)
    print(f"made certificates for {', '.join(names)} in {parsed.folder}, good for {LIFE.days} days")
    return 0


def are_good(folder: Path, names: Sequence[str]) -> bool:
    """Return whether all files exist, for these names, and live for a while."""
    if not all((folder / file).is_file() for file in FILES):
        return False
    certificates = [x509.load_pem_x509_certificate((folder / file).read_bytes()) for file in FILES if "key" not in file]
    if any(each.not_valid_after_utc < datetime.now(UTC) + RENEW_BEFORE for each in certificates):
        return False
    _, server, _ = certificates
    return server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value == alternative_names(names)


def make(folder: Path, names: Sequence[str]) -> None:
    """Replace all files, the authority first."""
    folder.mkdir(parents=True, exist_ok=True)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = common_name("Tidelog test authority")
    authority = (
        started(authority_name, authority_name, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    write(folder / "authority.pem", authority.public_bytes(serialization.Encoding.PEM))
    roles = (
        ("server", alternative_names(names), ExtendedKeyUsageOID.SERVER_AUTH),
        ("client", alternative_names(["client"]), ExtendedKeyUsageOID.CLIENT_AUTH),
    )
    for role, role_names, purpose in roles:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            started(common_name(f"Tidelog {role}"), authority_name, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(key_usage(signs_certificates=False), critical=True)
            .add_extension(role_names, critical=False)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
            .sign(authority_key, hashes.SHA256())
        )
        write(folder / f"{role}.key", private_bytes(key))
        write(folder / f"{role}.pem", certificate.public_bytes(serialization.Encoding.PEM))


def started(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    """Return a certificate that lacks extensions and a signature."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + LIFE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def common_name(text: str) -> x509.Name:
    """Return a name for people; who is who is decided by alternative names."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def alternative_names(names: Sequence[str]) -> x509.SubjectAlternativeName:
    """Return host names and addresses as a certificate has them."""
    return x509.SubjectAlternativeName([alternative_name(name) for name in names])


def alternative_name(name: str) -> x509.GeneralName:
    """Return an address as such, anything else as a host name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
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


def private_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as a PEM file has it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def write(path: Path, content: bytes) -> None:
    """Replace a file at once, so that a server that looks just then sees the old one or the new one."""
    new_path = path.with_name(f"{path.name}.new")
    new_path.write_bytes(content)
    new_path.replace(path)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
