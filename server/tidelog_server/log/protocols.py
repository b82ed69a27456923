"""The protocols through which the features above use one another without importing one another."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from tidelog_server.core.entries import NewEntry
from tidelog_server.log.append import Append, Settled
from tidelog_server.log.channel_log import ChannelLog, VchannelLog
from tidelog_server.storage.rows import Row


class Place(NamedTuple):
    """A vchannel, with the log of its channel."""

    log: ChannelLog
    vchannel: VchannelLog


Find = Callable[[str], Place]
"""Returns the log and the vchannel of a name. Raises ChannelNotExistError, NotOwnerError, OwnershipLostError."""

FindAll = Callable[[str], Sequence[Place]]
"""As ``Find``, but the name of a channel stands for all vchannels that it has now."""

MovePositions = Callable[[], Sequence[Row]]
"""Moves positions of consumer groups in memory; returns the changes to persist, or raises if refused."""


def no_positions() -> Sequence[Row]:
    """Move no positions."""
    return ()


class Joined(Protocol):
    """Events of another feature that are written with a transaction, or not at all; none unless stated otherwise."""

    @property
    def events(self) -> int:
        """Maximum number of events, each of which has a tick."""
        return 0

    def check(self, base: int) -> None:
        """Raise TidelogServerError if they are refused with ticks from ``base`` on. Nothing happened then."""
        return

    def enter(self, base: int, first_tick: int) -> Sequence[NewEntry]:
        """Make the changes that ``check`` has accepted; return the entries to submit without an ``await``.

        ``first_tick`` is that of the transaction, to which the entries belong.
        """
        return ()

    def settled(self, append: Append) -> None:
        """Take note that the entries are durable, or that the log failed."""
        return


class _Nothing(Joined):
    """Joins nothing to a transaction."""


NOTHING_JOINED: Final[Joined] = _Nothing()


class Companions(NamedTuple):
    """What is written with a transaction, or not at all.

    Attributes:
        move_positions: Called for a new transaction after all other checks; its changes are written with the entries.
        joined: Events that are written with a new transaction, after its entries.
    """

    move_positions: MovePositions = no_positions
    joined: Joined = NOTHING_JOINED


ALONE: Final = Companions()


def settled_with(joined: Joined, on_settled: Settled) -> Settled:
    """Return a callback for an append with the entries of ``joined``, which are settled first."""
    if joined is NOTHING_JOINED:
        return on_settled

    def both(append: Append) -> None:
        joined.settled(append)
        on_settled(append)

    return both
