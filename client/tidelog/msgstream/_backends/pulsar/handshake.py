"""The first exchange with a broker, made once before the library connects.

The library retries a refused connection and a refused token alike until its timeout, and reports a timeout for both.
This exchange tells them apart, and returns the limits of the broker.

Source: Pulsar's binary protocol, https://pulsar.apache.org/docs/next/developing-binary-protocol/
"""

import socket
import ssl
import struct
import time
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

from tidelog.errors import InvalidRequestError, TidelogError, UnauthenticatedError, UnavailableError
from tidelog.wire.protowire import LENGTH, VARINT, WireFormatError, fields, key_of, tag_of, varint, varint_field

_CONNECT: Final = 2
_CONNECTED: Final = 3
_ERROR: Final = 14
_PROTOCOL_VERSION: Final = 19
_AUTHENTICATION_ERROR: Final = 3
_DEFAULT_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651}
_DEFAULT_MESSAGE_BYTES: Final = 5 << 20
_ANSWER_WITHIN_S: Final = 5.0
_MAX_FRAME_BYTES: Final = 1 << 20
_RETRY_S: Final = 0.2


class Greeting(NamedTuple):
    """What a broker says of itself.

    Attributes:
        version: Its version, such as ``Pulsar Server4.0.7``.
        max_message_bytes: Size of its largest message.
    """

    version: str
    max_message_bytes: int


class Proof(NamedTuple):
    """How a client proves who it is.

    Attributes:
        method: Pulsar's name for it; empty without a proof.
        content: The token; empty for a certificate, which TLS carries.
    """

    method: str = ""
    content: str = ""

    @classmethod
    def of(cls, token: str | None, *, has_certificate: bool) -> Self:
        """Return the proof of a client with a token or a certificate; the token wins."""
        if token is not None:
            return cls("token", token)
        return cls("tls") if has_certificate else cls()


def greet_within(url: str, proof: Proof, tls: ssl.SSLContext | None, timeout_s: float) -> Greeting:
    """Exchange greetings with one of the brokers of ``url``; retry while none can be reached.

    Raises:
        InvalidRequestError: The address is invalid.
        UnauthenticatedError: The broker refuses the token or the client certificate.
        UnavailableError: No broker could be reached within ``timeout_s`` seconds.
    """
    ends_s = time.monotonic() + timeout_s
    while True:
        try:
            return greet(url, proof, tls)
        except UnavailableError:
            if time.monotonic() + _RETRY_S > ends_s:
                raise
            time.sleep(_RETRY_S)


def greet(url: str, proof: Proof, tls: ssl.SSLContext | None) -> Greeting:
    """Exchange greetings with the first broker of ``url`` that can be reached. Raises as ``greet_within``."""
    scheme, separator, hosts = url.partition("://")
    if not separator or scheme not in _DEFAULT_PORTS:
        raise InvalidRequestError(
            f"the address {url!r} of Pulsar is invalid: expected pulsar://host:port or pulsar+ssl://host:port"
        )
    failed: list[str] = []
    for host in hosts.split(","):
        try:
            parts = urlsplit(f"//{host}")
            address = parts.hostname or "", parts.port or _DEFAULT_PORTS[scheme]
        except ValueError as error:
            raise InvalidRequestError(f"the address {url!r} of Pulsar is invalid: {error}") from error
        try:
            return _greet(address, proof, (tls or ssl.create_default_context()) if scheme == "pulsar+ssl" else None)
        except (OSError, WireFormatError, struct.error) as error:
            failed.append(f"{host}: {error}")
    raise UnavailableError(
        f"Pulsar cannot be reached ({'; '.join(failed)}): check the address, that the broker runs, and TLS"
    )


def _greet(address: tuple[str, int], proof: Proof, tls: ssl.SSLContext | None) -> Greeting:
    with socket.create_connection(address, timeout=_ANSWER_WITHIN_S) as plain:
        connection = plain if tls is None else tls.wrap_socket(plain, server_hostname=address[0])
        with connection:
            command = _connect(proof)
            connection.sendall(struct.pack(">II", len(command) + 4, len(command)) + command)
            return _greeting(connection)


def _connect(proof: Proof) -> bytes:
    """Return the command CONNECT."""
    body = _text(1, b"tidelog") + varint_field(tag_of(4, VARINT), _PROTOCOL_VERSION)
    if proof.method:
        body += _text(3, proof.content.encode()) + _text(5, proof.method.encode())
    return varint_field(tag_of(1, VARINT), _CONNECT) + _text(_CONNECT, body)


def _greeting(connection: socket.socket) -> Greeting:
    command = dict(fields(_received(connection)))
    kind = command.get(tag_of(1, VARINT))
    if kind == _CONNECTED:
        body: dict[int, Any] = dict(fields(command[tag_of(_CONNECTED, LENGTH)]))
        max_bytes = body.get(tag_of(3, VARINT), _DEFAULT_MESSAGE_BYTES)
        return Greeting(bytes(body[tag_of(1, LENGTH)]).decode(errors="replace"), max_bytes)
    if kind != _ERROR:
        # A broker with TLS for clients asks for more; the library answers that.
        return Greeting("unknown", _DEFAULT_MESSAGE_BYTES)
    body = dict(fields(command[tag_of(_ERROR, LENGTH)]))
    text = bytes(body.get(tag_of(3, LENGTH), b"")).decode(errors="replace")
    error: type[TidelogError] = UnavailableError
    if body.get(tag_of(2, VARINT)) == _AUTHENTICATION_ERROR:
        error = UnauthenticatedError
    raise error(f"Pulsar refuses the connection ({text}): check the token or the client certificate")


def _received(connection: socket.socket) -> bytes:
    """Return the next command."""
    total, size = struct.unpack(">II", _exactly(connection, 8))
    if not size + 4 <= total <= _MAX_FRAME_BYTES:
        raise WireFormatError(f"a frame of {total} bytes with a command of {size}")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionError("the broker closed the connection")
        received += part
    return received


def _text(number: int, value: bytes) -> bytes:
    return key_of(number, LENGTH) + varint(len(value)) + value
