"""Topics of a broker, through its administration API: the client protocol can neither create nor delete them."""

import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Final

from tidelog.errors import PermissionDeniedError, ServerError, UnauthenticatedError, UnavailableError
from tidelog.msgstream._backends.pulsar.names import admin_path

_TIMEOUT_S: Final = 30.0
_NO_CONTENT_TYPE: Final = {"Content-Type": "application/json"}


class PulsarAdmin:
    """The administration API at an address. Its calls block."""

    def __init__(self, url: str, token: Callable[[], str | None], tls: ssl.SSLContext | None) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._tls = tls

    def create_topic(self, topic: str) -> None:
        """Create a topic without partitions unless it exists. Raises TidelogError."""
        self.call("PUT", admin_path(topic), ignored=(409,))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its messages and subscriptions, if it exists. Raises TidelogError."""
        self.call("DELETE", f"{admin_path(topic)}?force=true", ignored=(404,))

    def call(self, method: str, path: str, ignored: tuple[int, ...] = ()) -> bytes:
        """Call the API, and return the body of the answer; empty if its status is one of ``ignored``.

        Raises:
            UnauthenticatedError, PermissionDeniedError: The broker refuses the token.
            UnavailableError: The API cannot be reached.
            ServerError: Another answer.
        """
        token = self._token()
        headers = _NO_CONTENT_TYPE | ({"Authorization": f"Bearer {token}"} if token else {})
        body = b"" if method in ("PUT", "POST") else None
        request = urllib.request.Request(self._url + path, data=body, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._tls) as answer:
                found: bytes = answer.read()
                return found
        except urllib.error.HTTPError as error:
            if error.code in ignored:
                return b""
            kind = {401: UnauthenticatedError, 403: PermissionDeniedError}.get(error.code, ServerError)
            raise kind(f"{method} {self._url}{path} was answered with {error.code} {error.reason}") from error
        except OSError as error:
            raise UnavailableError(
                f"the administration API {self._url} cannot be reached ({error}): check admin_url"
            ) from error
