"""Readers of every kind, which record what they receive while servers go away and come back.

Each reads ``VCHANNELS``, or the queue, until it has received the last message of each vchannel; then ``difference``
compares it with the log. The writers are those of ``tidelog_testing.loads.outage``.
"""

import asyncio
import contextlib
import json
import subprocess
from collections import defaultdict
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog import AsyncClient, AsyncCluster, At, Batch, Client, GroupFencedError, ReaderEvent
from tidelog.msgstream import AsyncMsgStream, AsyncRmqMsgStreamFactory, TsMsg
from tidelog.rocksmq import AsyncRocksMQ
from tidelog_cli.child_environment import child_environment
from tidelog_testing.loads.outage import END, Log, Writers
from tidelog_testing.servers.commands import COMMAND

CHANNEL: Final = "orders"
VCHANNELS: Final = ["orders/0", "orders/1"]
IN_TIME_S: Final = 40.0


@dataclass(frozen=True)
class Server:
    """What readers connect to: a server, or the owner of ``CHANNEL`` in a cluster.

    Attributes:
        client: A client of it.
        twin: A synchronous client of it.
        endpoints: Where a cluster's client finds it.
    """

    client: AsyncClient
    twin: Client
    endpoints: Sequence[str]


class Notes:
    """What one reader got.

    Attributes:
        messages: By vchannel, in the order in which they came.
        events: States of the reader, in order.
        has_begun: Set once it has something.
        is_done: Set once it has the last message of each vchannel.
    """

    def __init__(self, vchannels: Iterable[str] = VCHANNELS) -> None:
        self.messages: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
        self.events: list[str] = []
        self.has_begun = asyncio.Event()
        self.is_done = asyncio.Event()
        self._left = set(vchannels)
        self._loop = asyncio.get_running_loop()

    def take(self, vchannel: str, ticks: Iterable[int], payloads: Iterable[bytes]) -> bool:
        """Note messages, from any thread; return whether it is done."""
        self.messages[vchannel] += zip(ticks, payloads, strict=True)
        if self.messages[vchannel][-1][1] == END:
            self._left.discard(vchannel)
        self._loop.call_soon_threadsafe(self.has_begun.set)
        if not self._left:
            self._loop.call_soon_threadsafe(self.is_done.set)
        return not self._left

    def batch(self, batch: Batch) -> bool:
        """Note a batch."""
        return self.take(batch.vchannel, batch.ticks, batch.payloads)

    def event(self, event: ReaderEvent) -> None:
        """Note an event."""
        self.events.append(event.state)


async def merged_scan(server: Server, notes: Notes) -> None:
    async with server.client.scan(VCHANNELS, until=At.follow(), on_event=notes.event) as scan:
        async for batch in scan:
            if notes.batch(batch):
                return


async def scan_of_a_channel_of_a_cluster(server: Server, notes: Notes) -> None:
    async with AsyncCluster(server.endpoints) as cluster:
        channel = await cluster.channel(CHANNEL)
        async for batch in channel.scan(until=At.follow(), on_event=notes.event):
            if notes.batch(batch):
                return


async def synchronous_tail(server: Server, notes: Notes) -> None:
    def follow() -> None:
        for batch in server.twin.tail(CHANNEL, start=At.earliest(), on_event=notes.event):
            if notes.batch(batch):
                return

    await asyncio.to_thread(follow)


async def wal_read(server: Server, notes: Notes) -> None:
    async with contextlib.AsyncExitStack() as scanners:
        for vchannel in VCHANNELS:
            scanner = server.client.wal().read(vchannel, message_handler=notes.batch, on_event=notes.event)
            await scanners.enter_async_context(scanner)
        await notes.is_done.wait()


async def synchronous_wal_read(server: Server, notes: Notes) -> None:
    wal = server.twin.wal()
    scanners = [wal.read(vchannel, message_handler=notes.batch, on_event=notes.event) for vchannel in VCHANNELS]
    await notes.is_done.wait()
    for scanner in scanners:
        await asyncio.to_thread(scanner.close)


async def consumer(server: Server, notes: Notes) -> None:
    async with server.client.consumer("by-hand", CHANNEL, auto_commit=False, on_event=notes.event) as member:
        async for batch in member:
            is_done = notes.batch(batch)
            with contextlib.suppress(GroupFencedError):
                # The restarted server knows nothing of the member's hold, and delivers the batch again.
                await member.commit()
            if is_done:
                return


async def synchronous_consumer(server: Server, notes: Notes) -> None:
    def consume() -> None:
        with server.twin.consumer("by-itself", CHANNEL, on_event=notes.event) as member:
            for batch in member:
                if notes.batch(batch):
                    return

    await asyncio.to_thread(consume)


async def rocksmq(server: Server, notes: Notes) -> None:
    mq = AsyncRocksMQ(server.client, on_event=notes.event)
    await mq.create_consumer_group("queue-readers", "queue")
    is_done = False
    while not is_done:
        await mq.wait("queue-readers", "queue")
        if messages := await mq.consume("queue-readers", "queue", 100):
            is_done = notes.take("queue/0", [each.msg_id for each in messages], [each.payload for each in messages])


class Raw(TsMsg):
    """A message whose body is the payload."""

    payload: bytes = b""

    @classmethod
    def unmarshal(cls, data: bytes, msg_type: int) -> "Raw":
        message = cls(type=msg_type)
        message.payload = data
        return message

    @classmethod
    def of(cls, data: object) -> "Raw":
        assert isinstance(data, bytes)
        return cls.unmarshal(data, 0)

    def marshal(self) -> bytes:
        return self.payload


async def plain_message_stream(server: Server, notes: Notes) -> None:
    async with AsyncRmqMsgStreamFactory(server.client, on_event=notes.event).new_msg_stream() as stream:
        await consume_packs(stream, "plain", notes)


async def time_tick_message_stream(server: Server, notes: Notes) -> None:
    async with AsyncRmqMsgStreamFactory(server.client, on_event=notes.event).new_tt_msg_stream() as stream:
        await consume_packs(stream, "by-time", notes)


async def consume_packs(stream: AsyncMsgStream, sub_name: str, notes: Notes) -> None:
    stream.dispatcher.add_msg_template(0, Raw.of)
    await stream.as_consumer(VCHANNELS, sub_name)
    is_done = False
    while not is_done:
        for message in (await stream.consume()).msgs:
            assert isinstance(message, Raw)
            assert message.position is not None
            is_done = notes.take(message.position.channel_name, [message.position.timestamp], [message.payload])


async def tail_of_the_command_line(server: Server, notes: Notes) -> None:
    command = [*COMMAND, "tail", "-f", CHANNEL, "-n", "1000000", "-o", "jsonl", "--endpoint", server.client.endpoint]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=child_environment()
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async for line in process.stdout:
            message = json.loads(line)
            if notes.take(message["vchannel"], [int(message["tick"])], [message["payload"].encode()]):
                break
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        errors = (await process.stderr.read()).decode()
        notes.events += ["waiting"] * ("waits for the server" in errors) + ["connected"] * ("connected again" in errors)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


READERS: Final[Mapping[str, Callable[[Server, Notes], Coroutine[None, None, None]]]] = {
    reader.__name__: reader
    for reader in (
        merged_scan, scan_of_a_channel_of_a_cluster, synchronous_tail, wal_read, synchronous_wal_read, consumer,
        synchronous_consumer, rocksmq, plain_message_stream, time_tick_message_stream, tail_of_the_command_line,
    )
}  # fmt: skip
AT_LEAST_ONCE: Final = {"consumer", "synchronous_consumer"}
"""What these had not committed when the server went away may come again."""


async def wrong_after(
    source: Server,
    writers: Mapping[str, Writers],
    trouble: Callable[[], Awaitable[None]],
    left_out: Container[str] = (),
) -> list[str]:
    """Return what is wrong with a reader that reads from ``source`` before and after ``trouble``, of each kind.

    Args:
        source: The server.
        writers: The writers of ``CHANNEL`` and of the channel ``queue``, by channel.
        trouble: Makes the server go away and come back.
        left_out: Names of readers that are left out.
    """
    readers = {name: read for name, read in READERS.items() if name not in left_out}
    notes = {name: Notes(["queue/0"] if name == "rocksmq" else VCHANNELS) for name in readers}
    reading = {name: asyncio.create_task(read(source, notes[name])) for name, read in readers.items()}
    async with asyncio.timeout(IN_TIME_S):
        await asyncio.gather(*(begun(reading[name], notes[name]) for name in readers))
        await asyncio.gather(*(each.wrote_some() for each in writers.values()))

    await trouble()

    await asyncio.gather(*(each.wrote_some() for each in writers.values()))
    log = {**await writers[CHANNEL].finish(), **await writers["queue"].finish()}
    await asyncio.wait(reading.values(), timeout=IN_TIME_S)
    found = {name: difference(name, reading[name], notes[name], log) for name in readers}
    for task in reading.values():
        task.cancel()
    return [f"{name} {what}" for name, what in found.items() if what]


async def begun(reading: asyncio.Task[None], notes: Notes) -> None:
    """Return once a reader has something. Raises why it has ended."""
    waiting = asyncio.create_task(notes.has_begun.wait())
    await asyncio.wait((reading, waiting), return_when=asyncio.FIRST_COMPLETED)
    if reading.done():
        waiting.cancel()
        reading.result()


def difference(name: str, reading: asyncio.Task[None], notes: Notes, log: Log) -> str:
    """Return what is wrong with a reader; nothing for nothing."""
    if not reading.done():
        return f"has not ended, after {sum(map(len, notes.messages.values()))} messages and {notes.events}"
    if reading.exception() is not None:
        return f"ended with {reading.exception()!r}"
    if notes.events[0] != "connected" and name != "tail_of_the_command_line":
        return f"began with {notes.events[0]}"
    # What a queue has under way may be answered within its own time.
    if ("waiting" not in notes.events and name != "rocksmq") or notes.events[-1] != "connected":
        return f"reported {notes.events}"
    for vchannel, messages in notes.messages.items():
        got = list(dict.fromkeys(messages)) if name in AT_LEAST_ONCE else messages
        if got != list(log[vchannel]):
            lost = [message for message in log[vchannel] if message not in got]
            return f"lost {lost} of {vchannel}, and got {len(got)} messages of {len(log[vchannel])}"
    return ""
