"""Batches for channels that the token may not append to, each for another one: every refusal is a denial."""

import asyncio
import json
from collections.abc import Mapping
from itertools import count
from typing import Any, Final

import grpc
import grpc.aio

from benchmarks.attacks.attack import Assault, Attack
from benchmarks.siege.server import BenchServer
from tidelog.v1 import message_pb2, wal_service_pb2
from tidelog_server.rpc.columns.rows import encode_rows

_STREAMS: Final = 3
_METHOD: Final = "/tidelog.v1.WalService/AppendStream"
_AUDIT: Final = "_audit"


async def run(assault: Assault) -> None:
    """Send them."""
    async with asyncio.TaskGroup() as streams:
        for _ in range(_STREAMS):
            streams.create_task(_flood(assault))
        assault.under_way()


async def _flood(assault: Assault) -> None:
    while True:
        async with assault.order.channel() as channel:
            append: Any = channel.stream_stream(_METHOD)
            stream = append(metadata=assault.order.metadata)
            sending = asyncio.create_task(_send(stream))
            try:
                while await stream.read() is not grpc.aio.EOF:
                    assault.counts["denied"] += 1
            except grpc.aio.AioRpcError:
                assault.counts["ended_streams"] += 1
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)


async def _send(stream: Any) -> None:
    columns = message_pb2.Columns.FromString(encode_rows([message_pb2.Message(payload=b"x")]))
    for number in count(1):
        request = wal_service_pb2.AppendStreamRequest(request_id=number, vchannel=f"c{number}", columns=columns)
        await stream.write(request.SerializeToString())


async def check(server: BenchServer) -> Mapping[str, float]:
    """Return how many denials the audit log has, as events and as numbers."""
    recorded = counted = size_bytes = 0
    async with server.client(server.admin) as client:
        async for batch in client.scan(_AUDIT):
            for line in batch.payloads:
                event = json.loads(bytes(line))
                recorded += event["event"] == "denied"
                counted += event["denials"] if event["event"] == "lost" else 0
                size_bytes += len(line)
    return {"recorded_denials": recorded, "counted_denials": counted, "audit_bytes": size_bytes}


ATTACK: Final = Attack(
    name="denials", what="appends to channels that it may not append to", run=run, grants=["append:bench-nothing"],
    check=check,
)  # fmt: skip
