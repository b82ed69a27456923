"""Readers and writers continue after the server was away, with default settings everywhere; nothing is lost or doubled.

Method: one server that is killed and started again later; one outage for all readers at once. The writers of
``tidelog_testing.loads.outage`` write all the time. Each reader records what it receives until it has received the last
message of each vchannel; then all of it is compared with the log.

Promises of docs/reference/guarantees.md: G10, G13.
"""

import contextlib
from functools import partial
from pathlib import Path

from tidelog import AsyncClient, Client
from tidelog_testing.loads.outage import AWAY, InterruptedServer, Writers
from tidelog_testing.loads.outage_readers import CHANNEL, VCHANNELS, Server, wrong_after


@AWAY
async def test_readers_and_writers_with_default_settings_go_on_when_the_server_was_away(
    tmp_path: Path, away_s: float
) -> None:
    with InterruptedServer(tmp_path / "log") as server, Client(server.grpc) as twin:
        async with (
            AsyncClient(server.grpc) as client,
            AsyncClient(server.grpc) as writing,
            contextlib.AsyncExitStack() as running,
        ):
            await client.create_channel(CHANNEL, vchannels=2)
            await client.create_channel("queue")
            writers = {
                channel: await running.enter_async_context(Writers(writing, names))
                for channel, names in ((CHANNEL, VCHANNELS), ("queue", ["queue/0"]))
            }
            source = Server(client, twin, [server.grpc])
            wrong = await wrong_after(source, writers, partial(server.away, away_s))
    assert not wrong, "\n".join(wrong)
