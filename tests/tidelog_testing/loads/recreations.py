"""A channel that is trimmed, destroyed and re-created at the events of a reader, and what the reader may have read."""

import random
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count

from pyspark.sql import DataFrame

from tidelog import Client, Tick

MESSAGES = 24
WITHIN_S = 120
PLANNING, PLANNED = 0, 1
"""The first two events of each read."""

OF_TRIM = ("was trimmed",)
OF_RECREATION = ("was destroyed", "does not exist", "another one was created")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the channel in a round.

    Attributes:
        event: Number of the reader's event at which it is made.
        is_awaited: Whether the reader waits until the change is finished.
        trims: Whether one vchannel loses its first messages.
        recreates: Whether the channel is then destroyed and re-created.
    """

    event: int
    is_awaited: bool
    trims: bool
    recreates: bool

    @property
    def reasons(self) -> tuple[str, ...]:
        """Texts, one of which the error of a read that meets the change contains."""
        return OF_TRIM * self.trims + OF_RECREATION * self.recreates


class ChangingChannel:
    """The channel, and its content in each state: after a life was filled, and after a trim."""

    def __init__(self, client: Client, name: str, chance: random.Random) -> None:
        self._client, self._name, self._chance = client, name, chance
        self._lock = threading.Lock()
        self._states: list[list[bytes]] = []
        self._lives = count()
        self._ticks: dict[int, int] = {}

    @property
    def states(self) -> list[list[bytes]]:
        """Payloads of each state in the order of their ticks; the newest state is last."""
        with self._lock:
            return list(self._states)

    def create(self) -> None:
        """Create the channel and append the messages of a life, alternating between two vchannels."""
        self._client.create_channel(self._name, vchannels=2)
        life = next(self._lives)
        payloads = [b"%d:%02d" % (life, number) for number in range(MESSAGES)]
        for begin in range(0, MESSAGES, 3):
            first_tick = self._client.append(f"{self._name}/{begin % 2}", payloads[begin : begin + 3]).first_tick
            self._ticks |= {begin + place: int(first_tick) + place for place in range(3)}
        self._announce(payloads)

    def destroy(self) -> None:
        self._client.destroy_channels([self._name])

    def trim(self) -> None:
        """Trim a random number, at least 1, of messages of vchannel 0 of a complete life."""
        of_vchannel = [number for number in range(MESSAGES) if number // 3 % 2 == 0]
        first = self._chance.choice(of_vchannel[1:])
        self._client.trim(f"{self._name}/0", Tick(self._ticks[first]))
        gone = {number for number in of_vchannel if number < first}
        self._announce([payload for number, payload in enumerate(self.states[-1]) if number not in gone])

    def make(self, change: Change) -> None:
        if change.trims:
            self.trim()
        if change.recreates:
            self.destroy()
            self.create()

    def _announce(self, payloads: list[bytes]) -> None:
        with self._lock:
            self._states.append(payloads)


def life_of(state: list[bytes]) -> bytes:
    return state[0].split(b":")[0]


@dataclass
class Round:
    """One read, and the change made meanwhile.

    Attributes:
        channel: The channel that is read and changed.
        change: The change; None for a round without one.
        pool: Runs the thread that makes the change.
        taken: Payloads that the read has returned, or passed to a sink.
        empty_batches: Number of micro-batches without a row.
    """

    channel: ChangingChannel
    change: Change | None
    pool: ThreadPoolExecutor
    taken: list[bytes] = field(default_factory=list)
    empty_batches: int = 0
    _known: list[int] = field(default_factory=list)
    _making: Future[None] | None = None

    def event(self) -> None:
        """Count an event of the reader, and begin the change if it is due at this event."""
        if self.change is not None and len(self._known) == self.change.event:
            self._making = self.pool.submit(self.channel.make, self.change)
            if self.change.is_awaited:
                self._making.result(WITHIN_S)
        self._known.append(len(self.channel.states))

    def take(self, batch: DataFrame) -> None:
        """Collect a micro-batch."""
        rows = batch.collect()
        self.taken += [bytes(row.payload) for row in rows]
        self.empty_batches += not rows

    def judge(self, failure: Exception | None, *, is_lossy: bool) -> str:
        """Wait for the end of the change, check what was taken, and return whether it is complete or was refused."""
        if self._making is not None:
            self._making.result(WITHIN_S)
        taken = sorted(self.taken)
        # A batch planned before the new life was filled may be empty.
        assert not self.empty_batches or self._is_planned_beside, self._told(taken)
        if failure is None:
            assert self._is_whole(taken, is_lossy=is_lossy), self._told(taken)
            return "complete"
        reasons = self.change.reasons if self.change is not None and self._making is not None else ()
        if not any(reason in str(failure) for reason in reasons):
            raise AssertionError(f"the read failed, expected one of the reasons {reasons}") from failure
        # Micro-batches before the one that failed have no gap.
        assert any(taken == each[: len(taken)] for each in self._planned()), self._told(taken)
        return "refused"

    def _planned(self) -> list[list[bytes]]:
        """Return the states in which the channel may have been when the read was planned."""
        states, known = self.channel.states, self._known[PLANNING]
        return states[known - 1 :] if self._is_planned_beside else [states[known - 1]]

    def _is_whole(self, taken: list[bytes], *, is_lossy: bool) -> bool:
        if taken in self._planned():
            return True
        newest = self.channel.states[-1]
        is_new = self._is_planned_beside and life_of(newest) != life_of(self._planned()[0])
        # A plan made while the new life was filled has the messages below its cut.
        if is_new and taken == newest[: len(taken)]:
            return True
        return is_lossy and self._has_what_is_left(taken)

    def _has_what_is_left(self, taken: list[bytes]) -> bool:
        """Return whether ``taken`` is what a trim left, possibly with messages read before the trim."""
        states = self.channel.states
        begun = states[self._known[PLANNED] - 1]
        left = [state for state in states if life_of(state) == life_of(begun)][-1]
        return set(left) <= set(taken) <= set(begun) and len(set(taken)) == len(taken)

    @property
    def _is_planned_beside(self) -> bool:
        return self.change is not None and self.change.event == PLANNING and not self.change.is_awaited

    def _told(self, taken: list[bytes]) -> str:
        return f"read {taken}, expected one of {self._planned()}, with {self.change}"


def random_change(chance: random.Random) -> Change:
    trims, recreates = chance.choice([(True, False), (False, True), (False, True), (True, True)])
    event = chance.choice([PLANNING, PLANNED, PLANNED, chance.randrange(2, 9)])
    return Change(event, chance.random() < 0.5, trims, recreates)
