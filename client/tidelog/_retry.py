"""What may be repeated, and how long to wait before. Pure: no clock, no I/O.

A failed call is repeated only when it had no effect and the reason may pass by itself. An append whose outcome is
unknown is never sent again, for it could be written twice, unless it is numbered: then the server takes it once.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tidelog._errors import DiskFullError, OverloadedError, TidelogError, UnavailableError

MAX_GIVE_UP_S: Final = 1_800.0
"""The longest ``Retry.give_up_s``: the server knows for an hour whether it has forgotten a producer."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How calls are repeated.

    Attributes:
        base_s: The first pause; each further one is twice as long.
        cap_s: The longest pause.
        give_up_s: A reader gives up after this time without an answer: a scan, consumer, message stream or call of a
            queue. So does a producer that numbers its batches; every other call ends with its timeout. At most
            MAX_GIVE_UP_S.
    """

    base_s: float = 0.05
    cap_s: float = 5.0
    give_up_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 < self.base_s <= self.cap_s:
            raise ValueError(f"expected 0 < base_s <= cap_s, got base_s={self.base_s} cap_s={self.cap_s}")
        if not self.give_up_s <= MAX_GIVE_UP_S:
            raise ValueError(f"give_up_s is {self.give_up_s}, expected at most {MAX_GIVE_UP_S}")

    def pauses_s(self, chance: random.Random | None = None) -> Iterator[float]:
        """Yield pauses without end, in seconds: doubling up to the cap, each scaled by a chance in [0.5, 1).

        The chance keeps clients apart that all lost the same server.
        """
        chance = chance or random.Random()
        pause_s = self.base_s
        while True:
            yield pause_s * (0.5 + chance.random() / 2)
            pause_s = min(2 * pause_s, self.cap_s)


DEFAULT_RETRY: Final = Retry()


def retry_after_s(error: TidelogError) -> float:
    """Return how long the server asks to wait before the same may work; 0 if it does not say."""
    return error.retry_after_s if isinstance(error, OverloadedError) else 0.0


def may_repeat(error: TidelogError) -> bool:
    """Tell whether the call that ended with ``error`` may be made again without asking anyone."""
    # A full disk passes too, but only after an operator acted: better to say so at once.
    is_passing = isinstance(error, UnavailableError) and not isinstance(error, DiskFullError)
    return is_passing and error.effect == "none"
