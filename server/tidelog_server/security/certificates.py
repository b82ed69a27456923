"""Certificates: checks of the server's certificate and key, names of client certificates, and the deny list.

Functions import ``cryptography`` themselves: a server without certificates starts faster.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog_server.core.limits import MIB
from tidelog_server.core.names import is_plain

if TYPE_CHECKING:
    from cryptography import x509

MAX_SECURITY_FILE_BYTES: Final = 1 * MIB

_SPIFFE: Final = "spiffe://"


class CertificateError(ValueError):
    """A certificate, key or list is unusable; the message names the file, the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Files of the server's TLS. ``client_ca`` is None if clients need no certificate."""

    cert: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """A checked pair of certificate and key.

    Attributes:
        chain: Certificate and intermediate certificates, PEM.
        key: Private key of the certificate, PEM.
        client_ca: CA certificates for clients, PEM; None if clients need no certificate.
        expires_s: Earliest expiry in the chain, in seconds of the wall clock.
        serial: Serial of the certificate, hexadecimal, for logs.
    """

    chain: bytes
    key: bytes
    client_ca: bytes | None
    expires_s: float
    serial: str

    def __repr__(self) -> str:
        return f"ServerCertificate(serial={self.serial})"


def read_file(path: Path) -> bytes:
    """Return the content of a file. Raises CertificateError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SECURITY_FILE_BYTES + 1)
    except OSError as error:
        raise CertificateError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_SECURITY_FILE_BYTES:
        raise CertificateError(f"{path} has more than {MAX_SECURITY_FILE_BYTES} bytes, the maximum: name another file")
    return content


def load_server_certificate(files: CertificateFiles, now_s: float) -> ServerCertificate:
    """Return the certificate and key in ``files`` if they are valid now.

    Raises:
        CertificateError: A file cannot be read, the key does not belong to the certificate, or a certificate has
            expired or is not valid yet.
    """
    chain_pem, key_pem = read_file(files.cert), read_file(files.key)
    chain = _certificates(chain_pem, files.cert)
    _check_key(chain[0], key_pem, files)
    now = datetime.fromtimestamp(now_s, UTC)
    for certificate in chain:
        if certificate.not_valid_after_utc <= now:
            raise CertificateError(
                f"a certificate in {files.cert} expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC: "
                "renew it"
            )
    if chain[0].not_valid_before_utc > now:
        raise CertificateError(f"{files.cert} is not valid before {chain[0].not_valid_before_utc:%Y-%m-%d %H:%M} UTC")
    client_ca = None
    if files.client_ca is not None:
        client_ca = read_file(files.client_ca)
        _certificates(client_ca, files.client_ca)
    expires_s = min(certificate.not_valid_after_utc for certificate in chain).timestamp()
    return ServerCertificate(chain_pem, key_pem, client_ca, expires_s, f"{chain[0].serial_number:x}")


def _certificates(pem: bytes, path: Path) -> "list[x509.Certificate]":
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise CertificateError(f"{path} contains no certificates in PEM: {error}") from error


def _check_key(certificate: "x509.Certificate", key_pem: bytes, files: CertificateFiles) -> None:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    try:
        key = load_pem_private_key(key_pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        # Without the text of the error: no part of a key must appear in a log.
        raise CertificateError(f"{files.key} contains no private key in PEM, or one with a password") from error
    public = [
        each.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        for each in (key.public_key(), certificate.public_key())
    ]
    if public[0] != public[1]:
        raise CertificateError(
            f"the key {files.key} does not belong to the certificate {files.cert}: set a matching pair"
        )


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A client certificate that gRPC has verified.

    Attributes:
        serial: Serial, hexadecimal.
        name: SPIFFE id, or else the first DNS name; empty if it has neither. Never the common name, which
            authorities do not vouch for.
        spiffe_ids: All SPIFFE ids.
        expires_s: Expiry, in seconds of the wall clock.
    """

    serial: str
    name: str
    spiffe_ids: tuple[str, ...]
    expires_s: float


def parse_client_certificate(pem: bytes) -> ClientCertificate:
    """Return the serial, names and expiry of a certificate. Raises CertificateError."""
    from cryptography import x509

    uris: list[str] = []
    names: list[str] = []
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        with suppress(x509.ExtensionNotFound):
            extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            uris = extension.value.get_values_for_type(x509.UniformResourceIdentifier)
            names = extension.value.get_values_for_type(x509.DNSName)
    except ValueError as error:
        raise CertificateError("the client's certificate cannot be read") from error
    spiffe_ids = tuple(uri for uri in uris if uri.startswith(_SPIFFE))
    # Several SPIFFE ids are ignored: the standard allows exactly one.
    name = spiffe_ids[0] if len(spiffe_ids) == 1 else names[0] if names and not spiffe_ids else ""
    if not is_plain(name):
        raise CertificateError("the client's certificate has a name with control characters, or one that is not plain")
    return ClientCertificate(
        f"{certificate.serial_number:x}", name, spiffe_ids, certificate.not_valid_after_utc.timestamp()
    )


@dataclass(frozen=True, slots=True)
class DenyList:
    """Certificates that are refused although their authority vouches for them.

    Attributes:
        entries: Serials in lower-case hexadecimal without leading zeros, and SPIFFE ids.
    """

    entries: frozenset[str] = frozenset()

    def denies(self, certificate: ClientCertificate) -> bool:
        """Return whether a certificate is on the list."""
        return certificate.serial in self.entries or not self.entries.isdisjoint(certificate.spiffe_ids)


def parse_deny_list(text: bytes, path: Path) -> DenyList:
    """Return the list in a file: a serial (hexadecimal, colons allowed) or SPIFFE id per line; ``#`` begins a comment.

    Raises:
        CertificateError: A line is neither of them.
    """
    entries = set()
    try:
        lines = text.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CertificateError(f"{path} is not UTF-8 text") from error
    for number, line in enumerate(lines, start=1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        if not entry.startswith(_SPIFFE):
            try:
                entry = f"{int(entry.replace(':', ''), 16):x}"
            except ValueError:
                raise CertificateError(
                    f"{path}:{number} is neither a serial in hexadecimal nor a SPIFFE id: correct the line"
                ) from None
        entries.add(entry)
    return DenyList(frozenset(entries))
