"""Members of a group for ``benchmarks steps``, which consume nothing: each is a stream of JoinGroup."""

import asyncio
from typing import Any, Final

import grpc.aio

from benchmarks.step_requests import WIDE_CHANNELS, WIDE_GROUP
from tidelog.v1 import group_service_pb2 as groups

_PATH: Final = "/tidelog.v1.GroupService/JoinGroup"
_LEASE_MS: Final = 600_000


class StepMembers:
    """Members of the group with many vchannels; their number is ``len``."""

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        self._method: Any = channel.stream_stream(
            _PATH, groups.JoinGroupRequest.SerializeToString, groups.JoinGroupResponse.FromString
        )
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._members: list[tuple[Any, asyncio.Task[None]]] = []

    def __len__(self) -> int:
        return len(self._members)

    async def join(self, number: int) -> None:
        """Let members join one after the other. Returns at the first one that may not join."""
        for _ in range(number):
            member = self._method(metadata=self._metadata)
            # What it holds moves at once: it consumes nothing.
            start = groups.JoinGroupStart(
                group=WIDE_GROUP, channels=WIDE_CHANNELS, lease_ms=_LEASE_MS, release_within_ms=1
            )
            try:
                await member.write(groups.JoinGroupRequest(join=start))
                await member.read()
            except grpc.aio.AioRpcError:
                return
            self._members.append((member, asyncio.create_task(_read(member), name="step-member")))

    async def leave(self, number: int) -> None:
        """Let some of the members leave, and wait until they have."""
        for _ in range(min(number, len(self._members))):
            member, reading = self._members.pop()
            await member.done_writing()
            await reading


async def _read(member: Any) -> None:
    """Read what a member gets until its stream ends."""
    while await member.read() is not grpc.aio.EOF:
        pass
