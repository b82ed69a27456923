"""The protocols through which the features above use one another without importing one another."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog_server.log.channel_log import ChannelLog, VchannelLog
from tidelog_server.log.committer import PositionChange


class Place(NamedTuple):
    """A vchannel, with the log of its channel."""

    log: ChannelLog
    vchannel: VchannelLog


Find = Callable[[str], Place]
"""Returns the log and the vchannel of a name. Raises ChannelNotExistError, NotOwnerError, OwnershipLostError."""

MovePositions = Callable[[], Sequence[PositionChange]]
"""Moves positions of consumer groups in memory; returns the changes to persist, or raises if refused."""


def no_positions() -> Sequence[PositionChange]:
    """Move no positions."""
    return ()
