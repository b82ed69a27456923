"""What callers give to the groups of a node, and what they get to know of them."""

from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog_server.broker.group_catalog import GroupRecord
from tidelog_server.core.groups import GroupPosition
from tidelog_server.core.tenants import NO_TENANT, Tenant
from tidelog_server.log.lag import Lag


class Commit(NamedTuple):
    """How far a group got on a vchannel.

    Attributes:
        group: Its name.
        vchannel: As it was given.
        next_tick: The first tick that was not consumed.
        member_id: The member whose vchannel it is; empty where no member has it.
        epoch: Under which the member holds it.
        expected_tick: Where the position must stand; None for anywhere.
    """

    group: str
    vchannel: str
    next_tick: int
    member_id: str = ""
    epoch: int = 0
    expected_tick: int | None = None


def _always(_: str) -> bool:
    return True


class Subscriber(NamedTuple):
    """Who subscribes a group to channels.

    Attributes:
        tenant: The tenant of the principal.
        may_hold: Whether the group holds retention back on a channel.
    """

    tenant: Tenant = NO_TENANT
    may_hold: Callable[[str], bool] = _always


ANYBODY: Final = Subscriber()


class PositionState(NamedTuple):
    """What is known of a position; ``lag`` is None where it was not asked for."""

    vchannel: str
    position: GroupPosition
    member_id: str
    lag: Lag | None = None


class GroupState(NamedTuple):
    """What is known of a group; positions are in order of vchannel."""

    record: GroupRecord
    positions: list[PositionState]
