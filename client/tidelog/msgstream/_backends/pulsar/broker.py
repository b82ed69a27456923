"""The connection to a Pulsar broker."""

import asyncio
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from tidelog._closing import AsyncClosing, Closing
from tidelog.errors import ClosedError, TidelogError, UnavailableError
from tidelog.msgstream._backends.pulsar.admin import PulsarAdmin
from tidelog.msgstream._backends.pulsar.handshake import Greeting, Proof, greet_within
from tidelog.msgstream._backends.pulsar.library import error_of_exception, pulsar
from tidelog.msgstream._backends.pulsar.names import full_topic
from tidelog.msgstream._errors import StreamStateError
from tidelog.transport.credentials import TlsOptions, TokenSource
from tidelog.transport.retry import DEFAULT_RETRY, may_repeat

DEFAULT_PULSAR_URL: Final = "pulsar://127.0.0.1:6650"
DEFAULT_NAMESPACE: Final = "public/default"
DEFAULT_OPERATION_TIMEOUT_S: Final = 30
_CONNECT_WITHIN_MS: Final = 10_000
"""Time after which an attempt to connect is given up, as by the library; less with a short operation timeout."""
_MAX_CALLS: Final = 32
"""Calls of the library that wait at a time; further ones wait for a thread."""
_log: Final = logging.getLogger("tidelog")
_Result = TypeVar("_Result")


class PulsarBroker(Closing, AsyncClosing):
    """A connection to Apache Pulsar, for factories of message streams. The constructor does no I/O.

    Close it after its streams: with ``async with``, ``with``, ``aclose`` or ``close``. Any thread may use it.

    Attributes:
        service_url: Address of the broker.
        namespace: Tenant and namespace of names without them.
        greeting: What the broker says of itself; None before the first connection.
    """

    def __init__(
        self,
        service_url: str = DEFAULT_PULSAR_URL,
        *,
        admin_url: str | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        token: TokenSource | None = None,
        tls: TlsOptions | None = None,
        operation_timeout_s: int = DEFAULT_OPERATION_TIMEOUT_S,
        log_file: str | os.PathLike[str] = os.devnull,
    ) -> None:
        """Describe a broker.

        Args:
            service_url: Its address, ``pulsar://`` or ``pulsar+ssl://``; several brokers are separated by commas.
            admin_url: Address of the administration API, such as ``http://127.0.0.1:8080``. Needed to delete topics,
                and for subscriptions if the broker does not create topics.
            namespace: Tenant and namespace of topics that are named without them.
            token: A token, or a function that returns one.
            tls: Files of TLS; ``pulsar+ssl://`` without them trusts the authorities of the system.
            operation_timeout_s: Timeout of connecting, and of opening producers and readers. While the broker is away,
                calls are repeated until it has passed.
            log_file: File to which the library writes its own log, such as reconnects; by default it is discarded.
        """
        self.service_url = service_url
        self.namespace = namespace
        self._token = token
        self._last_token = ""
        self._tls = tls
        self._operation_timeout_s = operation_timeout_s
        self._log_file = log_file
        self._context = _context(tls)
        self._admin = None if admin_url is None else PulsarAdmin(admin_url, self._current_token, self._context)
        self.greeting: Greeting | None = None
        self._threads = ThreadPoolExecutor(_MAX_CALLS, thread_name_prefix="tidelog-pulsar")
        # Guards the two below, and is held while the client connects.
        self._lock = threading.Lock()
        self._client: Any = None
        self._is_closed = False

    def topic(self, name: str) -> str:
        """Return the full name of a topic."""
        return full_topic(name, self.namespace)

    def admin(self, what: str) -> PulsarAdmin:
        """Return the administration API. Raises StreamStateError without an address, naming ``what`` needs it."""
        if self._admin is None:
            raise StreamStateError(
                f"{what} needs the administration API of Pulsar: pass admin_url, such as http://127.0.0.1:8080"
            )
        return self._admin

    @property
    def has_admin(self) -> bool:
        """Whether an address of the administration API was given."""
        return self._admin is not None

    def client(self) -> Any:
        """Return the client of the library; connect it if necessary.

        Raises:
            ClosedError: The broker was closed.
            StreamStateError: The library is missing.
            UnauthenticatedError, UnavailableError, InvalidRequestError: See ``greet_within``.
        """
        library = pulsar()
        ends_s = time.monotonic() + self._operation_timeout_s
        with self._lock:
            if self._is_closed:
                raise ClosedError("the Pulsar broker is closed: create a new one")
            if self._client is None:
                has_certificate = self._tls is not None and self._tls.cert is not None
                proof = Proof.of(self._current_token(), has_certificate=has_certificate)
                self.greeting = greet_within(self.service_url, proof, self._context, ends_s - time.monotonic())
                # Why no logger of Python: threads of the library would wait for the GIL while they hold its locks.
                logger = library.FileLogger(library.LoggerLevel.Info, os.fspath(self._log_file))
                self._client = library.Client(
                    self.service_url,
                    operation_timeout_seconds=self._operation_timeout_s,
                    # Several attempts fit into the timeout.
                    connection_timeout_ms=min(_CONNECT_WITHIN_MS, self._operation_timeout_s * 1_000 // 3),
                    logger=logger,
                    **self._secrets(),
                )
            return self._client

    async def run(self, call: Callable[[], _Result], what: str, topic: str = "") -> _Result:
        """Run a call of the library on a thread, and return its result; repeat it while the broker is away.

        Why: the library repeats some steps by itself, but ends the call at once if, for example, a connection is not
        established in time, as to a broker that has just started.

        Args:
            call: The call; it may be repeated.
            what: What it does, such as ``finding a topic``.
            topic: The topic; empty without one.

        Raises:
            UnavailableError: The broker was away until ``operation_timeout_s`` had passed.
            TidelogError: The call failed.
        """
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self._operation_timeout_s
        pauses_s = DEFAULT_RETRY.pauses_s()
        while True:
            try:
                return await self.run_once(call, what, topic)
            except UnavailableError as error:
                pause_s = next(pauses_s)
                if not may_repeat(error) or loop.time() + pause_s > ends_s:
                    raise
                _log.warning("%s waits for the broker: %s", what, error)
                await asyncio.sleep(pause_s)

    async def run_once(self, call: Callable[[], _Result], what: str, topic: str = "") -> _Result:
        """Run a call of the library on a thread, and return its result; for a caller that repeats it by itself.

        Raises TidelogError.
        """

        def work() -> _Result:
            try:
                return call()
            except TidelogError:
                raise
            except pulsar().PulsarException as error:
                raise error_of_exception(error, what, topic) from error

        # Not the threads of the event loop: while a broker is away, these calls wait for seconds.
        executor = None if self._is_closed else self._threads
        return await asyncio.get_running_loop().run_in_executor(executor, work)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._is_closed = True
        with self._lock:
            client, self._client = self._client, None
        try:
            if client is not None:
                client.close()
        except pulsar().PulsarException as error:
            raise error_of_exception(error, "closing the connection") from error
        finally:
            self._threads.shutdown(wait=False)

    async def aclose(self) -> None:
        """Close the connection. Idempotent."""
        await asyncio.to_thread(self.close)

    def _secrets(self) -> dict[str, Any]:
        """Return the arguments of the library for the token and TLS."""
        library, tls = pulsar(), self._tls
        given: dict[str, Any] = {}
        if self._token is not None:
            given["authentication"] = library.AuthenticationToken(self._token_of_library)
        if tls is not None and tls.ca is not None:
            given["tls_trust_certs_file_path"] = str(tls.ca)
        if tls is not None and tls.cert is not None:
            files = {"certificate_path": str(tls.cert), "private_key_path": str(tls.key)}
            if self._token is None:
                given["authentication"] = library.AuthenticationTLS(**files)
            given |= {"tls_certificate_file_path": str(tls.cert), "tls_private_key_file_path": str(tls.key)}
        if self.service_url.startswith("pulsar+ssl"):
            given["tls_validate_hostname"] = True
        return given

    def _token_of_library(self) -> str:
        """Return the token, or the last one if that fails. Must not raise: the library would end the process."""
        try:
            self._last_token = self._current_token() or ""
        except Exception:  # noqa: BLE001 - see above
            _log.exception("the function that returns the token for Pulsar has failed, the last token is used")
        return self._last_token

    def _current_token(self) -> str | None:
        return self._token() if callable(self._token) else self._token


def _context(tls: TlsOptions | None) -> ssl.SSLContext | None:
    if tls is None:
        return None
    context = ssl.create_default_context(cafile=None if tls.ca is None else str(Path(tls.ca)))
    if tls.cert is not None and tls.key is not None:
        context.load_cert_chain(str(Path(tls.cert)), str(Path(tls.key)))
    return context
