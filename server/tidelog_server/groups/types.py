"""Arguments and results of operations on consumer groups."""

from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.groups import GroupPosition
from tidelog_server.groups.catalog import GroupRecord
from tidelog_server.groups.lag import Lag


class Commit(NamedTuple):
    """A position for a group to commit on a vchannel.

    Attributes:
        group: Name of the group.
        vchannel: Name of the vchannel as requested.
        next_tick: First tick that was not consumed.
        member_id: Member that holds the vchannel; empty if no member does.
        epoch: Epoch of the member's holding.
        expected_tick: Required current position; None for no condition.
    """

    group: str
    vchannel: str
    next_tick: int
    member_id: str = ""
    epoch: int = 0
    expected_tick: int | None = None


class Subscriber(NamedTuple):
    """The principal that subscribes a group to channels.

    Attributes:
        tenant: Tenant of the principal.
        may_pin: Returns True if the group may hold back retention on a channel.
    """

    tenant: Tenant = NO_TENANT
    may_pin: Callable[[str], bool] = lambda _: True


DEFAULT_SUBSCRIBER: Final = Subscriber()


class PositionState(NamedTuple):
    """A position with its holder; ``lag`` is None if it was not requested or the vchannel was destroyed."""

    vchannel: str
    position: GroupPosition
    member_id: str
    lag: Lag | None = None


class GroupState(NamedTuple):
    """A group with its positions, sorted by vchannel."""

    record: GroupRecord
    positions: list[PositionState]
