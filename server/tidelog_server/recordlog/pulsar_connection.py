"""The connection to an Apache Pulsar: its options, its client, and its administration API."""

import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlsplit

import pulsar
import structlog

from tidelog_server.recordlog.engine import (
    EngineUnavailableError,
    LogDeniedError,
    LogExistsError,
    LogMissingError,
    LogSetupError,
)
from tidelog_server.recordlog.options import read_options

ANSWER_WITHIN_S: Final = 10
"""Seconds that a call waits for an answer of Pulsar."""
TOKEN: Final = "TIDELOG_PULSAR_TOKEN"
"""The variable with a token, if the options name no other."""
OPTIONS: Final = frozenset({
    "authParams", "tlsTrustCertsFilePath", "tlsCertificateFilePath", "tlsKeyFilePath", "tlsEnableHostnameVerification",
    "listenerName",
})  # fmt: skip
"""Options that a user may set, with the names and values of Pulsar's client.conf."""
_log = structlog.get_logger()
_CONNECT_WITHIN_MS: Final = 5_000
_TOKEN_PREFIXES: Final = ("token:", "file://")
_MAX_REDIRECTS: Final = 5
_MESSAGE: Final = "Message:"
_DENIED: Final = frozenset({"AuthorizationError"})
_REFUSED: Final = frozenset({"AuthenticationError", "ErrorGettingAuthenticationData"})


class PulsarConnection:
    """Addresses and options of a Pulsar. Any thread may use it.

    Attributes:
        service_url: Address of the brokers.
        admin_url: Address of the administration API.
    """

    def __init__(self, service_url: str, admin_url: str = "", options: Mapping[str, str] | None = None) -> None:
        """Do no I/O, except to read the files of TLS.

        Args:
            service_url: Address of the brokers, ``pulsar://HOST:PORT`` or ``pulsar+ssl://``.
            admin_url: Address of the administration API; empty for Pulsar's port at the first host of ``service_url``.
            options: Options; see ``OPTIONS``.

        Raises:
            LogSetupError: An address or an option is not allowed.
        """
        self.service_url = service_url
        self.admin_url = (admin_url or _admin_url_of(service_url)).rstrip("/")
        self._options = dict(options or {})
        if unknown := sorted(set(self._options) - OPTIONS):
            allowed = ", ".join(sorted(OPTIONS))
            raise LogSetupError(
                f"the option {unknown[0]} of Pulsar's client may not be set; those allowed are {allowed}"
            )
        self._token = _token_source(self._options.get("authParams", ""))
        self._last_token = ""
        try:
            self._tls = self._tls_context()
        except (OSError, ssl.SSLError) as error:
            raise LogSetupError(f"a file of TLS for Pulsar cannot be used: {error}") from error
        self._opener = urllib.request.build_opener(_Redirects, urllib.request.HTTPSHandler(context=self._tls))

    @classmethod
    def load(cls, service_url: str, admin_url: str, options_file: str) -> "PulsarConnection":
        """Return the connection with the options in a file; without a file if its name is empty.

        Raises:
            LogSetupError: An address or an option is not allowed.
        """
        return cls(service_url, admin_url, read_options(Path(options_file)) if options_file else None)

    def client(self) -> pulsar.Client:
        """Return a client, which the caller closes; it connects in the background.

        Raises:
            LogSetupError: An address or an option is not allowed.
        """
        options = self._options
        given: dict[str, Any] = {}
        certificate = options.get("tlsCertificateFilePath"), options.get("tlsKeyFilePath")
        if self._token is not None:
            given["authentication"] = pulsar.AuthenticationToken(self._token_of_library)
        elif all(certificate):
            given["authentication"] = pulsar.AuthenticationTLS(*certificate)
        if all(certificate):
            given |= dict(zip(("tls_certificate_file_path", "tls_private_key_file_path"), certificate, strict=True))
        if ca := options.get("tlsTrustCertsFilePath"):
            given["tls_trust_certs_file_path"] = ca
        if name := options.get("listenerName"):
            given["listener_name"] = name
        try:
            return pulsar.Client(
                self.service_url,
                operation_timeout_seconds=ANSWER_WITHIN_S,
                connection_timeout_ms=_CONNECT_WITHIN_MS,
                tls_validate_hostname=self._verifies_host(),
                # Why no logger of Python: threads of the library would wait for the GIL while they hold its locks.
                logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
                **given,
            )
        except pulsar.PulsarException as error:
            raise unavailable(type(error).__name__, "connect") from error

    def call(self, method: str, path: str, doing: str, body: object = None) -> Any:
        """Call the administration API, and return the body of the answer; None if it is empty.

        Args:
            method: The method of HTTP.
            path: The path, without ``/admin/v2``.
            doing: Completes 'cannot'.
            body: Sent as JSON.

        Raises:
            LogMissingError: There is no such topic, or namespace.
            LogExistsError: What is to be created exists.
            LogDeniedError: This role may not do that, or the credentials are refused.
            LogSetupError: Another answer.
            EngineUnavailableError: The API cannot be reached, or a broker cannot answer now.
        """
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._current_token()}"
        data = None if method == "GET" else json.dumps(body).encode() if body is not None else b""
        request = urllib.request.Request(f"{self.admin_url}/admin/v2{path}", data=data, headers=headers, method=method)
        try:
            with self._opener.open(request, timeout=ANSWER_WITHIN_S) as answer:
                found = answer.read()
            return json.loads(found) if found else None
        except urllib.error.HTTPError as error:
            raise _of_status(error, doing) from error
        # A broker that ends within its answer, or something else than a broker.
        except (OSError, HTTPException, ValueError) as error:
            raise EngineUnavailableError(
                f"cannot {doing}: Pulsar's administration API at {self.admin_url} does not answer ({error})"
            ) from error

    def _verifies_host(self) -> bool:
        return self.service_url.startswith("pulsar+ssl") and (
            self._options.get("tlsEnableHostnameVerification", "true") != "false"
        )

    def _tls_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._options.get("tlsTrustCertsFilePath"))
        context.check_hostname = self._options.get("tlsEnableHostnameVerification", "true") != "false"
        certificate, key = self._options.get("tlsCertificateFilePath"), self._options.get("tlsKeyFilePath")
        if certificate and key:
            context.load_cert_chain(certificate, key)
        return context

    def _token_of_library(self) -> str:
        """Return the token, or the last one if its file cannot be read: an exception would end the process."""
        try:
            self._last_token = self._current_token()
        except LogDeniedError as error:
            _log.warning("pulsar_token_unreadable", reason=str(error))
        return self._last_token

    def _current_token(self) -> str:
        assert self._token is not None
        try:
            return self._token()
        except (OSError, ValueError) as error:
            raise LogDeniedError(f"the file of the token for Pulsar cannot be read: {error}") from error


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Repeats a call at the broker that has the topic, with its method and body."""

    max_redirections = _MAX_REDIRECTS

    def redirect_request(  # noqa: PLR0917 - the library's signature
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request:
        """Return the same call at another address."""
        return urllib.request.Request(newurl, data=req.data, headers=dict(req.headers), method=req.get_method())


def unavailable(result: str, doing: str) -> LogSetupError | EngineUnavailableError:
    """Return what a result of Pulsar's client means to a caller, by its name.

    Args:
        result: Its name, such as ``Timeout``.
        doing: Completes 'cannot'.
    """
    if result in _DENIED:
        return LogDeniedError(f"Pulsar does not permit to {doing}: grant it to the role of this server")
    if result in _REFUSED:
        return LogDeniedError(f"cannot {doing}: Pulsar refused the credentials: correct the options")
    if result == "InvalidUrl":
        return LogSetupError(f"cannot {doing}: engine.service_url must be pulsar://HOST:PORT or pulsar+ssl://HOST:PORT")
    if result == "MessageTooBig":
        return LogSetupError(f"cannot {doing}: maxMessageSize of the brokers is below that of a record: raise it")
    return EngineUnavailableError(f"cannot {doing}: Pulsar answered {result}")


def _of_status(error: urllib.error.HTTPError, doing: str) -> Exception:
    reason = _reason(error)
    text = f"cannot {doing}: Pulsar answered {error.code} ({reason})"
    match error.code:
        case 401:
            return LogDeniedError(f"{text}: correct the credentials in engine.options_file")
        case 403:
            return LogDeniedError(f"Pulsar does not permit to {doing}: grant it to the role of this server ({reason})")
        case 404:
            return LogMissingError(text)
        case 409:
            return LogExistsError(text)
        case code if code >= 500:
            return EngineUnavailableError(text)
    return LogSetupError(text)


def _reason(error: urllib.error.HTTPError) -> str:
    """Return why a call failed; of an error in the broker, its message without the stack."""
    try:
        text = str(json.loads(error.read())["reason"])
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return str(error.reason)
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in lines if line.startswith(_MESSAGE)), text).removeprefix(_MESSAGE).strip()


def _token_source(params: str) -> Callable[[], str] | None:
    """Return what returns the token that ``authParams`` names; None without one."""
    if not params:
        token = os.environ.get(TOKEN)
        return None if token is None else lambda: token
    if not params.startswith(_TOKEN_PREFIXES):
        raise LogSetupError("the option authParams must be token:TOKEN or file:///PATH")
    kind, _, value = params.partition(":")
    if kind == "token":
        return lambda: value
    path = Path(value.removeprefix("//"))
    return lambda: path.read_text().strip()


def _admin_url_of(service_url: str) -> str:
    parts = urlsplit(service_url.partition(",")[0])
    if parts.scheme not in ("pulsar", "pulsar+ssl") or not parts.hostname:
        raise LogSetupError(
            f"engine.service_url is '{service_url}', and must be pulsar://HOST:PORT or pulsar+ssl://HOST:PORT"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"https://{host}:8443" if parts.scheme == "pulsar+ssl" else f"http://{host}:8080"
