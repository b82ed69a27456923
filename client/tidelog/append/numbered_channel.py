"""Numbers of a named producer on the vchannels of a channel (D-186). Pure."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from tidelog.errors import InvalidRequestError

NUMBERED_KEPT: Final = 1_024
"""Maximum number of producers on channels that a client remembers; one that is forgotten has to be opened again."""


class NumberedChannel:
    """A producer that was opened on a channel.

    Its appends are numbered from 1, one after the other. The server numbers the batches of each vchannel, and keeps
    with the last one the number of its append. So after a crash the append with the greatest number is repeated: its
    parts that are in the log have the last numbers of their vchannels, and the others the next ones.

    Attributes:
        channel: The channel.
        vchannels: Number of vchannels: that of the first opening.
        last_call: Number of the last append that was begun, by this process or an earlier one.
    """

    def __init__(self, channel: str, sequences: Sequence[int], calls: Sequence[int]) -> None:
        """Continue a producer.

        Args:
            channel: The channel.
            sequences: Sequence of its last batch on each vchannel.
            calls: Number of the append of that batch, on each vchannel.
        """
        self.channel = channel
        self.vchannels = len(sequences)
        self._sequences = list(sequences)
        self._calls = list(calls)
        self.last_call = max(calls)
        # Whether parts of the last append may be missing.
        self._is_complete = self.last_call == 0
        self._is_busy = False

    @property
    def complete_call(self) -> int:
        """Number of the last append that is in the log whole, for certain."""
        return self.last_call if self._is_complete else self.last_call - 1

    @contextmanager
    def call(self, number: int, indices: Sequence[int]) -> Generator[list[int], None, None]:
        """Yield the sequences of the parts of an append, on the vchannels with these indices.

        It is complete if ``acknowledged`` was called for all of them within the block.

        Raises:
            InvalidRequestError: It is neither the next append nor the last one again, or another one is in progress.
        """
        if self._is_busy:
            raise InvalidRequestError(
                f"append {self.last_call} of the producer on '{self.channel}' is in progress: await it before the next"
            )
        expected = self.complete_call + 1
        if number not in (self.last_call or 1, expected):
            raise InvalidRequestError(
                f"the append has the number {number}, expected {expected}: up to {expected - 1} they are complete",
                values={"field": "sequence", "expected_sequence": str(expected)},
            )
        self.last_call, self._is_complete, self._is_busy = number, False, True
        try:
            yield [self._sequences[index] + (self._calls[index] != number) for index in indices]
            self._is_complete = all(self._calls[index] == number for index in indices)
        finally:
            self._is_busy = False

    def acknowledged(self, index: int) -> None:
        """Record that the part of the append in progress on a vchannel is in the log."""
        if self._calls[index] != self.last_call:
            self._calls[index] = self.last_call
            self._sequences[index] += 1


class NumberedChannels:
    """The producers that a client has opened on channels."""

    def __init__(self) -> None:
        self._opened: dict[tuple[str, str], NumberedChannel] = {}

    def get(self, channel: str, producer_id: str) -> NumberedChannel | None:
        """Return a producer; None if this client has not opened it."""
        return self._opened.get((channel, producer_id))

    def put(self, producer_id: str, numbered: NumberedChannel) -> None:
        """Remember a producer that was opened, instead of an earlier opening."""
        self._opened.pop((numbered.channel, producer_id), None)
        self._opened[numbered.channel, producer_id] = numbered
        if len(self._opened) > NUMBERED_KEPT:
            del self._opened[next(iter(self._opened))]
