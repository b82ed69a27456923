"""Producers and workers of a mailbox whose server is killed again and again, judged by a ledger."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import grpc
import grpc.aio

from tidelog.v1 import error_pb2
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_testing.loads.workload import check_is_gone, detail_of
from tidelog_testing.oracles.mailbox_ledger import MAX_DELIVERIES, Lease, Ledger
from tidelog_testing.parts.grpc_calls import Client
from tidelog_testing.servers.processes import ServerProcess

JOBS: Final = "jobs"
DEAD: Final = "dead"
_PRODUCERS: Final = 3
_WORKERS: Final = 6
_SMALL_LEASE_MS: Final = 400
_REFUSED: Final = (error_pb2.REASON_LOCK_EXPIRED, error_pb2.REASON_LOCK_UNKNOWN)
_DRAINED_WITHIN_S: Final = 240.0
# Producers are faster than workers, so they wait above this; else a long storm would leave more than can be drained.
_MAX_WAITING: Final = 2_000


@dataclass(slots=True)
class MailboxStorm:
    """A mailbox, its mailbox for dead letters, and what their users know.

    Attributes:
        random: Source of all randomness.
        ledger: What they know.
        answered: Ids of messages whose send was answered.
        unanswered: Bodies whose send was not answered; they are sent again.
    """

    random: Random
    ledger: Ledger = field(default_factory=Ledger)
    answered: set[int] = field(default_factory=set)
    unanswered: list[bytes] = field(default_factory=list)
    _number: int = 0

    async def prepare(self, server: ServerProcess) -> None:
        """Create the mailboxes."""
        async with stub_of(server) as stub:
            await stub.CreateMailbox(pb.CreateMailboxRequest(name=DEAD))
            settings = pb.MailboxSettings(
                max_deliveries=MAX_DELIVERIES, dead_letter=DEAD, backoff=pb.Backoff(delays_ms=[0, 30])
            )
            await stub.CreateMailbox(pb.CreateMailboxRequest(name=JOBS, settings=settings))

    async def run_until_gone(self, server: ServerProcess) -> None:
        """Send, fetch and acknowledge until the server is gone."""
        async with stub_of(server) as stub:
            users = [self._produce(stub) for _ in range(_PRODUCERS)] + [self._work(stub) for _ in range(_WORKERS)]
            await asyncio.gather(*users)

    async def judge(self, server: ServerProcess) -> None:
        """Check the counts of a server that has just started."""
        async with stub_of(server) as stub:
            async with asyncio.timeout(_DRAINED_WITHIN_S):
                jobs, dead, later = -1, 0, 0
                # A message that moves meanwhile would be counted twice.
                while jobs != later:
                    jobs, dead, later = [await self._size(stub, name) for name in (JOBS, DEAD, JOBS)]
            self.ledger.check_counts(jobs + dead, len(self.answered))

    async def judge_end(self, server: ServerProcess) -> None:
        """Empty both mailboxes, and check that nothing is missing."""
        async with stub_of(server) as stub:
            end_s = time.monotonic() + _DRAINED_WITHIN_S
            while (await self._size(stub, JOBS)) > 0:
                assert time.monotonic() < end_s, "the mailbox was not drained in time"
                fetched = await self._fetch(stub, 100, 5_000)
                await self._confirm(stub, fetched)
            while response := (await stub.Fetch(pb.FetchRequest(mailbox=DEAD, max_messages=100))).deliveries:
                for delivery in response:
                    self.ledger.is_dead_letter(delivery)
                locks = [delivery.lock_id for delivery in response]
                assert not (await stub.AckDeliveries(pb.AckDeliveriesRequest(mailbox=DEAD, confirmed=locks))).failures
            assert await self._size(stub, DEAD) == 0
        self.ledger.check_end(self.answered)

    async def _size(self, stub: Any, name: str) -> int:
        counts = (await stub.DescribeMailbox(pb.DescribeMailboxRequest(name=name))).counts
        return int(counts.available + counts.delayed + counts.leased + counts.dead)

    # -- Producers -----------------------------------------------------------------------------------------

    async def _produce(self, stub: Any) -> None:
        chance = self.random
        while await self._has_room(stub):
            bodies = [self._next_body() for _ in range(chance.randint(1, 8))]
            messages = [
                pb.OutgoingMessage(
                    body=body, dedup_key=body.decode(), group=_group_of(body),
                    priority=chance.choice((0, 0, 3)), delay_ms=chance.choice((0, 0, 0, 20)),
                )
                for body in bodies
            ]  # fmt: skip
            self.ledger.sends(bodies)
            try:
                response = await stub.Send(pb.SendRequest(mailbox=JOBS, messages=messages))
            except grpc.aio.AioRpcError as error:
                check_is_over(error)
                self.unanswered += bodies
                return
            for body, message_id in zip(bodies, response.ids, strict=True):
                self.ledger.was_sent(body, message_id)
                self.answered.add(message_id)
            await asyncio.sleep(chance.uniform(0, 0.01))

    async def _has_room(self, stub: Any) -> bool:
        """Wait while too many messages wait; return False once the server is gone."""
        try:
            while (await self._size(stub, JOBS)) > _MAX_WAITING:
                await asyncio.sleep(0.05)
        except grpc.aio.AioRpcError as error:
            check_is_over(error)
            return False
        return True

    def _next_body(self) -> bytes:
        if self.unanswered:
            return self.unanswered.pop()
        self._number += 1
        return b"job %d" % self._number

    # -- Workers -------------------------------------------------------------------------------------------

    async def _work(self, stub: Any) -> None:
        chance = self.random
        try:
            while True:
                leases = await self._fetch(stub, chance.randint(1, 10), chance.choice((60, 200, _SMALL_LEASE_MS)))
                if leases and chance.random() < 0.3:
                    await self._extend(stub, leases)
                await asyncio.sleep(chance.choice((0.0, 0.0, 0.02, 0.1)))
                chance.shuffle(leases)
                cut = len(leases) - chance.choice((0, 0, 1, len(leases)))
                # The others expire.
                kept, rejected = leases[: cut // 2 + 1], leases[cut // 2 + 1 : cut]
                await self._confirm(stub, kept)
                await self._reject(stub, rejected)
        except grpc.aio.AioRpcError as error:
            check_is_over(error)

    async def _fetch(self, stub: Any, count: int, lease_ms: int) -> list[Lease]:
        response = await stub.Fetch(
            pb.FetchRequest(mailbox=JOBS, max_messages=count, lease_ms=lease_ms, wait_ms=self.random.choice((0, 50)))
        )
        return [self.ledger.delivered(each, response.leased_until_ms, lease_ms) for each in response.deliveries]

    async def _extend(self, stub: Any, leases: Sequence[Lease]) -> None:
        locks = [lease.lock_id for lease in leases]
        response = await stub.Extend(pb.ExtendRequest(mailbox=JOBS, lock_ids=locks, lease_ms=_SMALL_LEASE_MS))
        failed = _failed(response.failures)
        for lease in leases:
            if lease.lock_id not in failed:
                self.ledger.extended(lease, response.leased_until_ms)

    async def _confirm(self, stub: Any, leases: Sequence[Lease]) -> None:
        if not leases:
            return
        for lease in leases:
            lease.may_be_over = True
            self.ledger.maybe_confirmed.add(lease.message_id)
        request = pb.AckDeliveriesRequest(mailbox=JOBS, confirmed=[lease.lock_id for lease in leases])
        failed = _failed((await stub.AckDeliveries(request)).failures)
        for lease in leases:
            if lease.lock_id not in failed:
                self.ledger.was_confirmed(lease)
            elif self.ledger.leases[lease.message_id] is lease:
                # Refused: this confirmation has not happened, and none before it, or it would have no lock.
                self.ledger.maybe_confirmed.discard(lease.message_id)
            self.ledger.seen["refusals"] += lease.lock_id in failed

    async def _reject(self, stub: Any, leases: Sequence[Lease]) -> None:
        if not leases:
            return
        rejections: list[pb.Rejection] = []
        for lease in leases:
            lease.may_be_over = True
            is_final = self.random.random() < 0.1
            if is_final:
                self.ledger.finals.add(lease.message_id)
            rejections.append(pb.Rejection(lock_id=lease.lock_id, is_final=is_final))
        request = pb.AckDeliveriesRequest(mailbox=JOBS, rejected=rejections)
        _failed((await stub.AckDeliveries(request)).failures)
        self.ledger.seen["rejections"] += len(rejections)


@asynccontextmanager
async def stub_of(server: ServerProcess) -> Any:
    """Yield a stub of the mailboxes of a server."""
    async with grpc.aio.insecure_channel(server.grpc) as channel:
        yield Client(channel).mailboxes


def check_is_over(error: grpc.aio.AioRpcError) -> None:
    """Raise ``error`` unless it is one of a server that goes away."""
    detail = detail_of(error)
    if detail is None or detail.reason != error_pb2.REASON_ON_SHUTDOWN:
        check_is_gone(error)


def _group_of(body: bytes) -> str:
    """Return the group of a body, always the same one."""
    number = int(body.split()[1])
    return f"group {number % 5}" if number % 4 == 0 else ""


def _failed(failures: Sequence[Any]) -> set[bytes]:
    for failure in failures:
        assert failure.error.detail.reason in _REFUSED, failure
    return {failure.lock_id for failure in failures}
