"""Retries: what may be retried, and how long to back off. Pure: no clock, no I/O.

A failed call is retried only if it had no effect and the reason may pass by itself. An append with an unknown outcome
is not sent again, because it could be written twice, unless it is numbered: then the server stores it once.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tidelog.errors import DiskFullError, OverloadedError, TidelogError, UnavailableError
from tidelog.wire.durations import check_seconds

MAX_GIVE_UP_S: Final = 1_800.0
"""Maximum of ``Retry.give_up_s``: the server knows for an hour whether it has forgotten a producer."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Backoff and time limit of retries, in seconds.

    Attributes:
        base_s: First pause; each further one is twice as long.
        cap_s: Maximum pause.
        give_up_s: Time without a response after which readers (scans, consumers, workers, message streams, watches,
            calls of a queue) and producers that number their batches stop retrying, counted from the call or from the
            last response after it. It ends their calls also if the server is alive and does not answer. At most
            MAX_GIVE_UP_S, 1,800. Every other call ends with its timeout, which counts from the call.
    """

    base_s: float = 0.05
    cap_s: float = 5.0
    give_up_s: float = 60.0

    def __post_init__(self) -> None:
        # A timedelta becomes the number of its seconds.
        for name, value in (
            ("base_s", check_seconds("base_s", self.base_s, may_be_minimum=False)),
            ("cap_s", check_seconds("cap_s", self.cap_s, may_be_minimum=False)),
            ("give_up_s", check_seconds("give_up_s", self.give_up_s, maximum=MAX_GIVE_UP_S)),
        ):
            object.__setattr__(self, name, value)
        if self.base_s > self.cap_s:
            raise ValueError(f"expected 0 < base_s <= cap_s, got base_s={self.base_s} cap_s={self.cap_s}")

    def pauses_s(self, chance: random.Random | None = None) -> Iterator[float]:
        """Yield an endless series of pauses in seconds: doubling up to the cap, each scaled by a random [0.5, 1).

        The jitter spreads the retries of clients that lost the same server.
        """
        chance = chance or random.Random()
        pause_s = self.base_s
        while True:
            yield pause_s * (0.5 + chance.random() / 2)
            pause_s = min(2 * pause_s, self.cap_s)


DEFAULT_RETRY: Final = Retry()


def retry_after_s(error: TidelogError) -> float:
    """Return the delay in seconds that the server requests before a retry; 0 if it requests none."""
    return error.retry_after_s if isinstance(error, OverloadedError) else 0.0


def may_repeat(error: TidelogError) -> bool:
    """Return whether the client may retry a call that ended with ``error`` by itself."""
    # A full disk is temporary too, but an operator must act: raise at once.
    is_passing = isinstance(error, UnavailableError) and not isinstance(error, DiskFullError)
    return is_passing and error.effect == "none"
