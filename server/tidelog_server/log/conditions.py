"""What must hold of a vchannel for an append to be taken. Pure."""

from dataclasses import dataclass
from typing import Final

from tidelog_server.core.errors import FencingTokenMismatchError, LastTickMismatchError

NO_FENCING_TOKEN: Final = 0


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions of one append.

    They are checked where its ticks are taken, so nothing can come between. What counts is everything that was taken
    before, durable or not: it stands before this append in the log in any case.

    Source: compare-and-append of shared logs, and the fencing tokens of lease-based locks (Kleppmann, "How to do
    distributed locking", 2016).

    Attributes:
        expected_last_tick: Last tick that the vchannel must have, 0 for none ever; None for any.
        fencing_token: The token that the vchannel must have; NO_FENCING_TOKEN for any.
    """

    expected_last_tick: int | None = None
    fencing_token: int = NO_FENCING_TOKEN

    def check(self, vchannel: str, *, last_tick: int, fencing_token: int) -> None:
        """Raise unless a vchannel with this last tick and this token meets the conditions.

        Raises:
            FencingTokenMismatchError, LastTickMismatchError: They carry the actual value.
        """
        # The token first: a writer that was fenced off must not be told to look and try again.
        if self.fencing_token not in (NO_FENCING_TOKEN, fencing_token):
            raise FencingTokenMismatchError(
                vchannel=vchannel, fencing_token=self.fencing_token, actual_fencing_token=fencing_token
            )
        if self.expected_last_tick not in (None, last_tick):
            assert self.expected_last_tick is not None
            raise LastTickMismatchError(
                vchannel=vchannel, expected_last_tick=self.expected_last_tick, last_tick=last_tick
            )


UNCONDITIONAL: Final = Conditions()
