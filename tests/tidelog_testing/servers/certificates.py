"""Certificates, signed tokens and their keys, created on demand."""

import base64
import datetime
import ipaddress
import json
import time
import uuid
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID
from jwt.warnings import InsecureKeyLengthWarning

_HOUR: Final = datetime.timedelta(hours=1)
ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "tidelog-test"


@dataclass(frozen=True)
class Pair:
    """A certificate with its key.

    Attributes:
        serial: Hexadecimal.
    """

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def serial(self) -> str:
        return f"{self.certificate.serial_number:x}"

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write both files, the key first, and return their paths: certificate and key."""
        paths = folder / f"{name}.pem", folder / f"{name}.key"
        for path, content in zip(reversed(paths), (self.key_pem, self.pem), strict=True):
            new = path.with_suffix(path.suffix + ".new")
            new.write_bytes(content)
            new.rename(path)
        return paths


def make_pair(
    name: str,
    issuer: Pair | None = None,
    *,
    is_authority: bool = False,
    dns: tuple[str, ...] = (),
    uris: tuple[str, ...] = (),
    has_loopback: bool = False,
    begins_in: datetime.timedelta = -_HOUR,
    ends_in: datetime.timedelta = 24 * _HOUR,
) -> Pair:
    """Return a certificate for ``name``, signed by ``issuer`` or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names: list[x509.GeneralName] = [x509.DNSName(each) for each in dns]
    names += [x509.UniformResourceIdentifier(each) for each in uris]
    if has_loopback:
        names += [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins_in)
        .not_valid_after(now + ends_in)
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Pair(builder.sign(issuer.key if issuer else key, hashes.SHA256()), key)


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for loopback that is its own authority, and its key; return their paths."""
    return make_pair("server", is_authority=True, has_loopback=True).write(folder, "self-signed")


@dataclass(frozen=True)
class Authority:
    """A certificate authority, and the files of a server that it vouches for."""

    pair: Pair
    folder: Path
    ca: Path

    @classmethod
    def make(cls, folder: Path, name: str = "authority") -> "Authority":
        """Create an authority and write its certificate to ``folder``."""
        pair = make_pair(name, is_authority=True)
        ca = folder / f"{name}-ca.pem"
        ca.write_bytes(pair.pem)
        return cls(pair, folder, ca)

    def server(self, name: str = "server", **terms: Any) -> dict[str, Any]:
        """Return settings of a server on loopback with a new certificate."""
        cert, key = make_pair(name, self.pair, has_loopback=True, **terms).write(self.folder, name)
        return {"tls__cert": cert, "tls__key": key}

    def client(self, name: str, **terms: Any) -> Pair:
        """Create a client's certificate and write it to the folder."""
        pair = make_pair(name, self.pair, **terms)
        pair.write(self.folder, name)
        return pair


class Signer:
    """Signs tokens like an identity provider.

    Attributes:
        kind: EdDSA, ES256, RS256 or PS256.
    """

    def __init__(self, kid: str = "key-1", *, kind: str = "EdDSA", bits: int = 2_048) -> None:
        self.kid = kid
        self.kind = kind
        self.key: Any
        if kind == "EdDSA":
            self.key = ed25519.Ed25519PrivateKey.generate()
        elif kind == "ES256":
            self.key = ec.generate_private_key(ec.SECP256R1())
        else:
            self.key = rsa.generate_private_key(65_537, bits)

    @property
    def jwk(self) -> dict[str, Any]:
        """The public key, in the format of a key set."""
        public, common = self.key.public_key(), {"kid": self.kid, "use": "sig"}
        if self.kind == "EdDSA":
            x = public.public_bytes(Encoding.Raw, PublicFormat.Raw)
            return {"kty": "OKP", "crv": "Ed25519", "x": _text(x), **common}
        numbers = public.public_numbers()
        if self.kind == "ES256":
            return {"kty": "EC", "crv": "P-256", "x": _number(numbers.x), "y": _number(numbers.y), **common}
        return {"kty": "RSA", "alg": self.kind, "n": _number(numbers.n), "e": _number(numbers.e), **common}

    @property
    def public_pem(self) -> bytes:
        pem: bytes = self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return pem

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Return valid claims; a claim set to None is omitted."""
        now_s = int(time.time())
        claims = {
            "iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now_s, "exp": now_s + 600,
            "jti": uuid.uuid4().hex, "roles": ["tester"], **changed,
        }  # fmt: skip
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, header: dict[str, Any] | None = None, **changed: Any) -> str:
        """Return a token that is valid except for ``changed``."""
        return self.signed({"typ": "JWT", "kid": self.kid, **(header or {})}, self.claims(**changed))

    def signed(self, header: dict[str, Any], claims: dict[str, Any]) -> str:
        """Return a token with this header and ``alg``, and these claims."""
        with warnings.catch_warnings():
            # A test may want a key that is too small.
            warnings.simplefilter("ignore", InsecureKeyLengthWarning)
            return jwt.encode(claims, self.key, self.kind, headers={"typ": "", **header})


def write_key_set(path: Path, *signers: Signer) -> Path:
    """Write the public keys of signers and return the path."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"keys": [signer.jwk for signer in signers]}))
    return new.rename(path)


def forged(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    """Return a token with any header and signature."""
    parts = [_text(json.dumps(part).encode()) for part in (header, claims)]
    return ".".join([*parts, _text(signature)])


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _number(value: int) -> str:
    return _text(value.to_bytes((value.bit_length() + 7) // 8, "big"))
