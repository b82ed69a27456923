"""A client of pandora's HTTP interface, as a Tidelog server has it below ``mailboxes.http_prefix``.

Source: pandora's HTTP client, version of January 2020.
"""

import http.client
import select
import ssl
import time
import weakref
from collections import deque
from collections.abc import MutableMapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from tidelog._closing import Closing
from tidelog.pandora.errors import InvalidStatusCodeError, NoDataAvailableError, invalid_status_code
from tidelog.pandora.keys import Key, print_key_string
from tidelog.pandora.message import KEY_CLIENT_TIME, KEY_LEASE_TIME, KEY_RECEIVER, KEY_SENDER, utc_now
from tidelog.pandora.values import Values, encode_values, parse_values, values_of
from tidelog.pandora_formats.go_times import format_duration, format_time
from tidelog.wire.durations import check_seconds, seconds_of

Body = MutableMapping[str, str | Sequence[str]]
"""The fields of a message; a text is a field with one value."""

_KEY_DELAY: Final = "delay"
_NO_DATA: Final = 204
_OK: Final = 200
_MAX_ANSWER_BYTES: Final = 16 << 20
_MAX_IDLE: Final = 16
# Less than the 10 s after which a server closes idle connections.
_IDLE_S: Final = 5.0
_CONTENT_TYPE: Final = "application/x-www-form-urlencoded"


class _Idle(NamedTuple):
    """A connection, and since when it is idle by the monotonic clock."""

    since_s: float
    connection: http.client.HTTPConnection


class HttpClient(Closing):
    """Sends, fetches and acknowledges messages by HTTP. Safe for concurrent calls: each has a connection of its own.

    A connection is used again for 5 seconds. ``close``, the end of a ``with`` block, or the end of the object closes
    those that are idle.

    Args:
        url: URL below which the endpoints are, such as ``http://127.0.0.1:7421/pandora``.
        token: Token of the caller; none if it is empty.
        tls: TLS options for ``https``: which certificates are trusted, and that of the client.
        timeout: Maximum time that the server may take to accept a connection, and to answer.

    Raises:
        ValueError: The URL is neither ``http`` nor ``https``, or has no host.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        timeout: timedelta = timedelta(seconds=30),
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the URL {url!r} is invalid, expected one such as http://127.0.0.1:7421/pandora")
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._timeout_s = check_seconds("timeout", seconds_of("timeout", timeout), may_be_minimum=False)
        self._idle: deque[_Idle] = deque(maxlen=_MAX_IDLE)
        # Closes them when the client is not referenced any more.
        self._close = weakref.finalize(self, _close_all, self._idle)
        self._headers = {"Content-Type": _CONTENT_TYPE, **({"Authorization": f"Bearer {token}"} if token else {})}

    def send(self, sender: str, receiver: str, delay: timedelta, body: Body) -> str:
        """Send a body from one mailbox to another, both of which are created if missing; return the message's id.

        Args:
            sender: Mailbox of the sender.
            receiver: Mailbox of the receiver.
            delay: Time until the message is due; due at once if it is negative.
            body: The fields. ``delay``, ``sender``, ``receiver`` and ``clientTime`` are set in it.

        Raises:
            InvalidStatusCodeError: The server refused the message. If its status code is 500 or more, the message may
                have been sent; 500 also means that it was sent before.
            InvalidHeaderEncodingError: UTF-8 cannot encode the body or a name.
            OSError: The server did not answer. The message may have been sent.
        """
        body[_KEY_DELAY] = _duration_text(delay)
        body[KEY_SENDER] = sender
        body[KEY_RECEIVER] = receiver
        body[KEY_CLIENT_TIME] = format_time(utc_now())
        answer = self._post("/send", values_of(body))
        return answer.get("mid", [""])[0]

    def fetch(self, receiver: str, lock_for: timedelta) -> Values:
        """Lease the message of a mailbox that was due first; return its fields and those of its header.

        Args:
            receiver: The mailbox.
            lock_for: Duration of the lease; zero or less is that of the server, 5 minutes.

        Raises:
            NoDataAvailableError: No message is due and without a lease.
            InvalidStatusCodeError: The server refused the call; 400 for an unknown mailbox.
            OSError: The server did not answer. A message may be under a lease.
        """
        return self._post("/fetch", {KEY_RECEIVER: [receiver], KEY_LEASE_TIME: [_duration_text(lock_for)]})

    def ack(self, mid: Key | str, lid: Key | str, status: int) -> None:
        """Acknowledge a leased message.

        Args:
            mid: Id of the message, as ``fetch`` returned it.
            lid: Id of its lock.
            status: ``AckStatus.CONFIRMED`` or ``AckStatus.REJECTED``.

        Raises:
            InvalidStatusCodeError: The server refused the call: 400 for another status, 500 without a valid lease.
            OSError: The server did not answer. The message may be acknowledged.
        """
        self._post("/ack", {"mid": [_key_text(mid)], "lid": [_key_text(lid)], "statusCode": [str(int(status))]})

    def close(self) -> None:
        """Close the idle connections; later calls use new ones. Idempotent."""
        self._close()

    def _post(self, endpoint: str, form: Values) -> Values:
        status, content = self._request(self._path + endpoint, encode_values(form))
        if status == _NO_DATA:
            raise NoDataAvailableError
        if status != _OK:
            raise invalid_status_code(status, content.decode("utf-8", "replace"))
        try:
            return parse_values(content)
        except ValueError as error:
            raise InvalidStatusCodeError(f"the answer is invalid: {error}", effect="unknown") from error

    def _request(self, path: str, content: bytes) -> tuple[int, bytes]:
        connection = self._connection()
        try:
            connection.request("POST", path, content, self._headers)
            response = connection.getresponse()
            answer = response.status, response.read(_MAX_ANSWER_BYTES)
            is_over = response.will_close or not response.isclosed()
        except http.client.HTTPException as error:
            connection.close()
            raise ConnectionError(f"{self._host} did not answer as an HTTP server: {error!r}") from error
        except BaseException:
            connection.close()
            raise
        if is_over or len(self._idle) == _MAX_IDLE or not self._close.alive:
            connection.close()
        else:
            self._idle.append(_Idle(time.monotonic(), connection))
        return answer

    def _connection(self) -> http.client.HTTPConnection:
        """Return a connection that is idle, or a new one."""
        while True:
            try:
                since_s, connection = self._idle.pop()
            except IndexError:
                break
            if time.monotonic() - since_s < _IDLE_S and not _is_readable(connection):
                return connection
            connection.close()
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._tls)


def _close_all(idle: deque[_Idle]) -> None:
    while idle:
        idle.pop().connection.close()


def _is_readable(connection: http.client.HTTPConnection) -> bool:
    """Return whether the server has closed an idle connection, or sent what no request asked for."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _duration_text(duration: timedelta) -> str:
    return format_duration(duration // timedelta(microseconds=1) * 1_000)


def _key_text(key: Key | str) -> str:
    return key if isinstance(key, str) else print_key_string(key)
