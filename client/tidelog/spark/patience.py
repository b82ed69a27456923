"""Retries of the driver's calls while the server is unreachable."""

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from tidelog import DeadlineError, Retry, UnavailableError
from tidelog.spark.connection import Connection

_log = logging.getLogger("tidelog")
_Answer = TypeVar("_Answer")
_PASSING: Final = (UnavailableError, DeadlineError)


def patiently(connection: Connection, ask: Callable[[], _Answer]) -> _Answer:
    """Return the result of ``ask``, which must be read-only, retrying it while the server is unreachable.

    Logs one warning with the reason when it starts to wait.

    Raises:
        UnavailableError, DeadlineError: The server did not respond within ``connection.server_timeout_s``.
    """
    give_up_s = time.monotonic() + connection.server_timeout_s
    pauses_s = Retry().pauses_s()
    waited_since_s = 0.0
    while True:
        begun_s = time.monotonic()
        try:
            answer = ask()
        except _PASSING as error:
            pause_s = next(pauses_s)
            if time.monotonic() + pause_s > give_up_s:
                raise
            if not waited_since_s:
                waited_since_s = begun_s
                _log.warning(
                    "waiting for the server at %s, for up to %d s (option serverTimeout): %s",
                    connection.endpoint, connection.server_timeout_s, error,
                )  # fmt: skip
            # The driver has no event loop, and Spark waits for this call.
            time.sleep(pause_s)
        else:
            if waited_since_s:
                _log.info(
                    "the server at %s responds again, after %.1f s", connection.endpoint, begun_s - waited_since_s
                )
            return answer
