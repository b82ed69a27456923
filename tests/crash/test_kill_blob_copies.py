"""Blobs and bodies of messages are whole at every moment: housekeeping copies and collects, and servers are killed.

Method: servers that copy every chunk and every old message all the time, one after the other on one data folder, each
killed at a random moment. Callers read, describe and count blobs, peek, fetch and confirm messages with large and small
bodies, and store blobs that are collected. Each answer is compared with what was stored: no body is missing, nothing is
DATA_LOSS, and no reference is lost. At the end the same is read from a last server.

Promises of docs/reference/guarantees.md: G1, G49.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

import tidelog
from tidelog import AppendUnknownError, AsyncClient, Retry, UnavailableError
from tidelog.mailboxes.types import OutgoingMessage
from tidelog_testing.parts.soaks import Recorder, soak
from tidelog_testing.parts.waiting import until
from tidelog_testing.servers.processes import ServerProcess
from tidelog_testing.servers.skewed import SKEW_FILE

pytestmark = pytest.mark.crash

PROGRAM = ("-m", "tidelog_testing.servers.busy_mailboxes")
GRACE_S = 0.2
IMPATIENT = Retry(give_up_s=0.1)
SHORT_S, SOAK_S = 20, 300
# Of a chunk, of two, and of three.
SIZES = (10, 70_000, 600_000, 1_200_000)
LARGE_BYTES = 100_000
MESSAGES = 12
YEAR_S = 365 * 86_400
# What a call raises when its server was killed.
GONE = (UnavailableError, AppendUnknownError, tidelog.DeadlineError, tidelog.ClosedError)


class Storm:
    """What is stored, and the calls that check it.

    Attributes:
        seen: Number of answers of each kind.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        self.seen = {"read": 0, "described": 0, "counted": 0, "peeked": 0, "fetched": 0, "garbage": 0}
        self.rounds = 0
        self._folder = folder
        self._skew = folder.with_suffix(".skew")
        self._skew.write_text("0")
        self._blobs: dict[bytes, bytes] = {}
        # Numbers of references that a blob may have: two after a call whose answer was lost.
        self._references: dict[bytes, set[int]] = {}
        # Bodies of the messages that wait, by id, and those that are sent, fetched and confirmed.
        self._waiting: dict[int, bytes] = {}

    def start(self, grace_s: float = GRACE_S) -> ServerProcess:
        settings = {"mailboxes.blob_grace_s": grace_s}
        return ServerProcess(self._folder, settings, env={SKEW_FILE: str(self._skew)}, program=PROGRAM)

    def _content(self, size_bytes: int) -> bytes:
        return self.random.randbytes(min(size_bytes, 1_000)).ljust(size_bytes, b".")

    async def prepare(self) -> None:
        """Store what stays."""
        # A blob has no reference yet when it is stored, and a machine may be busy for a short grace period.
        with self.start(grace_s=60) as server:
            async with AsyncClient(server.grpc) as client:
                for size_bytes in SIZES:
                    data = self._content(size_bytes)
                    key = await client.blobs.put(data)
                    await client.blobs.update_ref_count(key, 1)
                    self._blobs[key], self._references[key] = data, {1}
                for name in ("waiting", "passing"):
                    await client.mailboxes.create(name)
                for number in range(MESSAGES):
                    body = self._content(LARGE_BYTES if number % 2 else 500)
                    sent = await client.mailbox("waiting").send_many([OutgoingMessage(body, delay=YEAR_S)])
                    self._waiting[sent[0].id] = body

    async def run(self, seconds: float) -> None:
        """Run servers, each until it is killed."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            with self.start() as server:
                asyncio.get_running_loop().call_later(self.random.uniform(0.5, 2.5), server.kill)
                async with AsyncClient(server.grpc, retry=IMPATIENT, timeout_s=5.0) as client:
                    calls = (self.read, self.describe, self.count, self.peek, self.pass_on, self.litter)
                    async with asyncio.TaskGroup() as group:
                        for call in calls:
                            group.create_task(self._repeat(server, client, call))
            self.rounds += 1

    async def _repeat(
        self, server: ServerProcess, client: AsyncClient, call: Callable[[AsyncClient], Awaitable[None]]
    ) -> None:
        with suppress(*GONE):
            while True:
                await call(client)
        # Only the kill ends a call.
        await until(lambda: server.code is not None, within_s=5)

    async def read(self, client: AsyncClient) -> None:
        key = self.random.choice(list(self._blobs))
        assert await client.blobs.get(key) == self._blobs[key]
        self.seen["read"] += 1

    async def describe(self, client: AsyncClient) -> None:
        key = self.random.choice(list(self._blobs))
        assert (await client.blobs.describe(key)).size_bytes == len(self._blobs[key])
        self.seen["described"] += 1

    async def count(self, client: AsyncClient) -> None:
        key = self.random.choice(list(self._blobs))
        before = self._references[key]
        delta = 1 if min(before) == 1 else self.random.choice((-1, 1))
        self._references[key] = before | {each + delta for each in before}
        now = await client.blobs.update_ref_count(key, delta)
        assert now - delta in before
        self._references[key] = {now}
        self.seen["counted"] += 1

    async def peek(self, client: AsyncClient) -> None:
        found = {each.header.id: each.body for each in await client.mailbox("waiting").peek(max_messages=MESSAGES)}
        assert found == self._waiting
        self.seen["peeked"] += 1

    async def pass_on(self, client: AsyncClient) -> None:
        """Send, fetch and confirm; what an earlier server has delivered may come first."""
        mailbox = client.mailbox("passing")
        marks = b"large", b"small"
        await mailbox.send_many([marks[0].ljust(LARGE_BYTES, b"."), marks[1] * 100])
        for delivery in await mailbox.fetch(10, lease=0.5):
            assert not delivery.is_body_missing
            assert delivery.body in (marks[0].ljust(LARGE_BYTES, b"."), marks[1] * 100)
            self.seen["fetched"] += 1
            # On a slow machine its lease may be over.
            with suppress(tidelog.LockError):
                await delivery.ack()

    async def litter(self, client: AsyncClient) -> None:
        """Store what is collected."""
        await client.blobs.put(self._content(300_000))
        self.seen["garbage"] += 1

    async def judge(self) -> None:
        """Read everything from a last server."""
        with self.start() as server:
            async with AsyncClient(server.grpc) as client:
                await self.peek(client)
                for key, data in self._blobs.items():
                    assert await client.blobs.get(key) == data
                    assert (await client.blobs.describe(key)).references in self._references[key]
        assert all(self.seen.values()), self.seen


async def run(folder: Path, seed: int, seconds: float) -> str:
    """Run a storm; return a summary."""
    storm = Storm(folder, seed)
    await storm.prepare()
    await storm.run(seconds)
    await storm.judge()
    return f"{storm.rounds} servers, {storm.seen}"


@pytest.mark.parametrize(("seed", "seconds"), [(1, SHORT_S), soak(None, SOAK_S, timeout_s=1_800)])
async def test_blobs_and_bodies_are_whole_while_housekeeping_copies_and_collects_and_servers_are_killed(
    tmp_path: Path, seed: int | None, seconds: float, record_property: Recorder
) -> None:
    record_property("measured", await run(tmp_path / "log", seed or int(time.time()), seconds))
