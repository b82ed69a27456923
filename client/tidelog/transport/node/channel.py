"""A gRPC channel that moves to another address: calls that begin from then on are made there."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import grpc
import grpc.aio

from tidelog.transport.stream_end import at_once

_DOUBTFUL: Final = frozenset((grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED))
"""How a call ends if the server is away, stops, is not the owner any more, or does not answer."""


class _Place:
    """A channel to one address, and its calls in progress."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.calls = 0


class _Method:
    """A method of a stub, which calls it at the present address."""

    __slots__ = ("_call", "_channel", "_make", "_place")

    def __init__(self, channel: "MovingChannel", make: Callable[[grpc.aio.Channel], Any]) -> None:
        self._channel = channel
        self._make = make
        self._place: _Place | None = None
        self._call: Any = None

    def __call__(self, *args: Any, **options: Any) -> Any:
        place = self._channel.place
        if place is not self._place:
            self._place, self._call = place, self._make(place.channel)
        call = self._call(*args, **options)
        place.calls += 1
        call.add_done_callback(partial(self._channel.ended, place))
        return call


class MovingChannel:
    """What stubs and transports use of ``grpc.aio.Channel``, with an address that changes.

    Calls in progress stay where they began, until they end: the server that is left may still answer them.

    Attributes:
        place: The channel to the present address.
    """

    def __init__(self, channel: grpc.aio.Channel, on_doubt: Callable[[], None]) -> None:
        """Begin at ``channel``. ``on_doubt`` is called when a call at the present address has failed there."""
        self.place = _Place(channel)
        self._left: list[_Place] = []
        self._on_doubt = on_doubt

    def move(self, channel: grpc.aio.Channel) -> None:
        """Make calls on ``channel`` from now on."""
        self._left.append(self.place)
        self.place = _Place(channel)

    async def close_left(self) -> None:
        """Close the channels that were left and have no calls in progress."""
        idle = [place for place in self._left if not place.calls]
        for place in idle:
            self._left.remove(place)
            await place.channel.close()

    async def close(self) -> None:
        """Close the channels to all addresses, which ends their calls."""
        for place in (*self._left, self.place):
            await place.channel.close()

    @property
    def get_state(self) -> Callable[..., grpc.ChannelConnectivity]:
        """The method of the channel to the present address."""
        return self.place.channel.get_state

    def __getattr__(self, kind: str) -> Callable[..., _Method]:
        """Return what makes a method of this kind, such as ``unary_unary``, for a stub."""
        if kind not in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
            raise AttributeError(kind)

        def make(*args: Any, **options: Any) -> _Method:
            return _Method(self, lambda channel: getattr(channel, kind)(*args, **options))

        return make

    def ended(self, place: _Place, call: Any) -> None:
        """Note the end of a call at ``place``."""
        place.calls -= 1
        # A status that the call itself has set arrives at once; anything else says nothing of the address.
        if place is self.place and at_once(call.code()) in _DOUBTFUL:
            self._on_doubt()
