"""Conversion of consumer groups between the client's types and protocol messages."""

from tidelog.groups.types import GroupDescription, GroupMember, GroupPosition, GroupSummary
from tidelog.read import protocol as _requests
from tidelog.read.positions import At, Start, position
from tidelog.tick import Tick
from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1 import wal_service_pb2


def start_policy(start: Start) -> wal_service_pb2.DeliverPolicy:
    """Return the start of a group as the protocol message. Raises ValueError: an end. TypeError: not a position."""
    at: At = position(start)
    return _requests.deliver_policy(at)


def group_position(wire: pb.GroupPosition) -> GroupPosition:
    """Return the position in a protocol message."""
    return GroupPosition(
        vchannel=wire.vchannel,
        next_tick=Tick(wire.next_tick),
        committed_time_ms=wire.committed_time_ms,
        member_id=wire.member_id or None,
        lag_messages=wire.lag_messages,
        lag_bytes=wire.lag_bytes,
        lag_s=wire.lag_ms / 1_000,
        is_trimmed=wire.is_trimmed,
        holds_retention=wire.holds_retention,
    )


def description(wire: pb.GroupDescription) -> GroupDescription:
    """Return the description in a protocol message."""
    return GroupDescription(
        name=wire.name,
        created_tick=Tick(wire.created_tick),
        positions={each.vchannel: group_position(each) for each in wire.positions},
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                description=member.description,
                channels=tuple(member.channels),
                vchannels=tuple(member.vchannels),
                expires_in_s=member.expires_in_ms / 1_000,
            )
            for member in wire.members
        ),
    )


def summary(wire: pb.GroupSummary) -> GroupSummary:
    """Return the summary in a protocol message."""
    return GroupSummary(wire.name, Tick(wire.created_tick), wire.vchannels, wire.members, wire.committed_time_ms)
