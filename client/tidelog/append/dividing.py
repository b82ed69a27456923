"""Divides messages among the vchannels of a channel, and knows how many a channel has. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapreplace
from operator import attrgetter, itemgetter
from typing import Any, Final

from tidelog.append.sizes import Appendable
from tidelog.errors import InvalidRequestError, TidelogError
from tidelog.message import Message
from tidelog.wire.batch import Batch
from tidelog.wire.column_parts import runs_of, selected
from tidelog.wire.partitioning import NO_KEY, Partitioner, check_is_partitioner, indices_of

CHANNELS_KEPT: Final = 10_000
"""Maximum number of channels with several vchannels that a client remembers."""

_KEY: Final = attrgetter("key")


@dataclass(frozen=True, slots=True)
class Share:
    """Messages for one vchannel.

    Attributes:
        index: Index of the vchannel.
        messages: The messages, in order.
        places: Their places among all.
    """

    index: int
    messages: Sequence[Appendable]
    places: Sequence[int]


@dataclass(frozen=True, slots=True)
class FailedPart:
    """The messages of an append for one vchannel that were not acknowledged.

    Attributes:
        vchannel: Name of the vchannel, such as ``orders/3``.
        error: Why; its ``effect`` is ``unknown`` if they may be in the log.
        indices: Their places among the messages of the append, in order, from 0.
    """

    vchannel: str
    error: TidelogError
    indices: Sequence[int] = field(repr=False)


class VchannelTurns:
    """Chooses vchannels for messages without keys: the one that has received the fewest of them.

    So batches of one size take turns, and those of any sizes are balanced.
    """

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        # For each vchannel what it has received, a random number for ties, and its index.
        self._heap: list[tuple[int, float, int]] = []

    def next(self, vchannels: int, messages: int) -> int:
        """Return the index of the vchannel for this number of messages."""
        if len(self._heap) != vchannels:
            # At random, so that many short programs do not all begin with the same vchannel.
            self._heap = sorted((0, random.random(), index) for index in range(vchannels))
        given, order, index = self._heap[0]
        heapreplace(self._heap, (given + messages, order, index))
        return index


def check_partitioner(partitioner: Partitioner | None, name: str) -> None:
    """Check the partitioner for appends to ``name``.

    Raises:
        ValueError: It is invalid.
        InvalidRequestError: ``name`` is a vchannel, which needs none.
    """
    if partitioner is None:
        return
    check_is_partitioner(partitioner)
    if "/" in name:
        raise InvalidRequestError(
            f"a partitioner is given, but '{name}' is one vchannel: append to '{name.partition('/')[0]}', or leave it "
            "out"
        )


def of_one_vchannel(channel: str, count: int) -> InvalidRequestError:
    """Return the error of a condition on the last tick of a channel with several vchannels."""
    return InvalidRequestError(
        f"expected_last_tick is the tick of one vchannel, and '{channel}' has {count}: name one, such as '{channel}/0'",
        values={"field": "expected_last_tick", "vchannels": str(count)},
    )


def divide(
    messages: Sequence[Appendable],
    vchannels: int,
    partitioner: Partitioner | None,
    turns: VchannelTurns | None,
    *,
    is_plain: bool = False,
) -> list[Share]:
    """Return the messages for each vchannel that gets any, in the order of their indices.

    Args:
        messages: The messages, at least one.
        vchannels: Number of vchannels.
        partitioner: Chooses the vchannel of a key.
        turns: Chooses one vchannel for all messages without a key; None to refuse them.
        is_plain: True if all messages are bytes, which have no key.

    Raises:
        InvalidRequestError: A message has no key, and ``turns`` is None; or the partitioner has failed.
    """
    indices = None if is_plain else _indices(messages, vchannels, partitioner)
    unkeyed = len(messages) if indices is None else indices.count(NO_KEY)
    turn = 0
    if unkeyed:
        if turns is None:
            raise _no_key(0 if indices is None else indices.index(NO_KEY))
        turn = turns.next(vchannels, unkeyed)
    if indices is None or unkeyed == len(messages):
        return [Share(turn, messages, range(len(messages)))]
    if unkeyed:
        indices = [turn if index == NO_KEY else index for index in indices]
    return _shares(messages, indices)


def _indices(messages: Sequence[Appendable], vchannels: int, partitioner: Partitioner | None) -> list[int]:
    try:
        keys: list[bytes | None] = list(messages.keys if isinstance(messages, Batch) else map(_KEY, messages))
    except AttributeError:
        keys = [message.key if isinstance(message, Message) else None for message in messages]
    try:
        return indices_of(keys, vchannels, partitioner)
    except TidelogError:
        raise
    except Exception as error:
        # A partitioner is the caller's: whatever it raises, nothing was sent.
        raise InvalidRequestError(f"the partitioner failed: {type(error).__name__}: {error}") from error


def _shares(messages: Sequence[Appendable], indices: list[int]) -> list[Share]:
    places: dict[int, list[int]] = {index: [] for index in sorted(set(indices))}
    add = {index: several.append for index, several in places.items()}
    for place, index in enumerate(indices):
        add[index](place)
    return [Share(index, _at(messages, several), several) for index, several in places.items()]


def _at(messages: Sequence[Appendable], places: list[int]) -> Sequence[Appendable]:
    if len(places) == len(messages):
        return messages
    if isinstance(messages, Batch):
        return Batch("", selected(messages.columns, runs_of(places)), range(len(places)))
    # With one place, itemgetter returns the message itself.
    return list(itemgetter(*places)(messages)) if len(places) > 1 else [messages[places[0]]]


def _no_key(place: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"messages[{place}] has no key, and a numbered append must go to the same vchannel when it is repeated: give "
        "each message a key, or name the vchannel and open the producer there",
        values={"field": "key"},
    )


class KnownChannels:
    """What a client knows of the channels that it appends to: how many vchannels they have, and whose turn it is.

    A number is wrong once the channel has grown, or another one has its name. Answers to appends have the number, so
    the first one corrects it; a vchannel that does not exist is refused without effect.
    """

    __slots__ = ("_counts", "_turns")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._turns: dict[str, VchannelTurns] = {}

    def get(self, channel: str) -> int | None:
        """Return the number of vchannels of a channel; None if it is not known to have several."""
        return self._counts.get(channel)

    def note(self, vchannel: str, count: int) -> None:
        """Record the number of vchannels of the channel of ``vchannel``, if it has several; 0: not in the answer."""
        if count <= 1:
            return
        self._counts[vchannel.partition("/")[0]] = count
        _bound(self._counts)

    def forget(self, channel: str) -> None:
        """Record that the number of vchannels of a channel is not known."""
        self._counts.pop(channel, None)

    def turns(self, channel: str) -> VchannelTurns:
        """Return the turns of the vchannels of a channel, for messages without keys."""
        turns = self._turns.get(channel)
        if turns is None:
            turns = self._turns[channel] = VchannelTurns()
            _bound(self._turns)
        return turns


def _bound(known: dict[str, Any]) -> None:
    if len(known) > CHANNELS_KEPT:
        del known[next(iter(known))]
