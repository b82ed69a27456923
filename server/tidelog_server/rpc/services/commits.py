"""Decoding of position commits."""

from collections.abc import Sequence

from tidelog.v1 import wal_service_pb2
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.groups.types import Commit
from tidelog_server.rpc.columns.pages import check_tick


def commits_of(wire: Sequence[wal_service_pb2.PositionCommit], maximum: int, *, at_least: int = 0) -> list[Commit]:
    """Return validated position commits. Raises InvalidRequestError."""
    if not at_least <= len(wire) <= maximum:
        raise InvalidRequestError(
            f"the request commits {len(wire)} positions, expected {at_least} to {maximum}", field="positions"
        )
    commits = [
        Commit(
            each.group,
            each.vchannel,
            check_tick(each.next_tick, "next_tick"),
            each.member_id,
            each.epoch,
            each.expected_tick if each.HasField("expected_tick") else None,
        )
        for each in wire
    ]
    if len({(commit.group, commit.vchannel) for commit in commits}) < len(commits):
        raise InvalidRequestError(
            "the request commits a position twice: send only the greatest tick", field="positions"
        )
    return commits
